//! Servers behind the gateway: which there are, and the links to them.
//!
//! A [`Link`] is one connection as the server sees it: a child process, or a session over HTTP. It
//! belongs to a [`Key`]: links of sessions are shared only where the configuration says so, links to
//! stateless servers always. It knows the server's list, and keeps it as fresh as the server says. In
//! which era a server is spoken to is found out by a [search](search).

pub mod built_in;
pub mod catalogue;
mod connection;
mod connections;
mod era_cache;
mod error;
mod evicted;
pub(crate) mod handshake;
mod negotiate;
mod oauth;
pub(crate) mod remote;
mod size_limit;
pub(crate) mod stalls;
mod timeouts;
pub(crate) mod transport;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use toolward_wire::exchange::Event;
use toolward_wire::{Era, Message, MethodRow, Revision};

pub use self::connection::{Link, Listed};
pub use self::error::Unavailable;
pub use self::size_limit::Caps;
pub use self::transport::environment::Inherit;
pub use self::transport::line_server::InMemory;
pub use self::transport::stdio::Launch;
pub use oauth::OAuth;
pub use remote::{Remote, Wire};
pub use timeouts::Timeouts;

use self::connections::Links;
use self::era_cache::{Eras, Known};
use self::evicted::Evicted;
use self::handshake::Opening;
use self::negotiate::{Searches, WAYS};
use self::stalls::Stalls;
use self::transport::environment::WithheldReport;
use self::transport::reusable_process::Spare;
use crate::budget::Reservation;
use crate::client::{Caller, Client, Owner, Scope, ServerId};
use crate::lock::LockUnpoisoned;
use crate::metrics::calls::Calls;
use crate::metrics::lifecycle::Life;
use crate::permit::{Outgoing, Permit};

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    Child(Launch),
    /// A task of this process, for tests.
    InMemory(InMemory),
    Http(Remote),
    /// It is the gateway itself.
    Own,
}

/// How a server is used.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    pub name: Box<str>,
    pub reach: Reach,
    pub timeouts: Timeouts,
    /// All sessions use one link.
    pub share: bool,
    pub max_children: usize,
    pub eager: bool,
    /// The longest answer.
    pub answer_bytes: usize,
    /// The largest results of calls.
    pub results: Caps,
}

/// A server and the links to it.
pub struct Server {
    pub id: ServerId,
    pub definition: Definition,
    links: Links,
    /// Sessions that wait for one of its processes.
    line: tokio::sync::Mutex<()>,
    evicted: Arc<Evicted>,
    searches: Searches,
    eras: Mutex<Eras>,
    /// What it said first to whoever asked last.
    greeting: Mutex<Option<(Message, Era)>>,
    /// It was found to speak HTTP+SSE.
    sse: AtomicBool,
    spare: Arc<Spare>,
    withheld: Arc<WithheldReport>,
    /// How calls fared.
    pub calls: Calls,
    /// Starts and failures.
    pub life: Arc<Life>,
    changes: Changes,
}

/// What a link belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub revision: Revision,
    pub owner: Owner,
    /// Whose credentials are shown, where agents have their own.
    pub agent: Option<Arc<str>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Server {
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Whether it is the gateway itself.
    pub fn is_own(&self) -> bool {
        self.definition.reach == Reach::Own
    }

    /// The gateway's own list.
    pub(crate) fn own_list(&self, revision: Revision) -> Option<Listed> {
        let catalogue = || built_in::catalogue(revision);
        let listed = || Listed { catalogue: catalogue(), fresh_until: None, relist_at: None };
        self.is_own().then(listed)
    }

    /// Whether somebody speaks to it now, and in which revisions.
    pub fn state(&self) -> (&'static str, Vec<Revision>) {
        if self.is_own() {
            return ("up", Vec::new());
        }
        let mut spoken = self.links.spoken_in();
        spoken.sort_by_key(|revision| revision.as_str());
        spoken.dedup();
        match (self.links.is_empty(), spoken.is_empty()) {
            (true, _) => ("idle", spoken),
            (false, true) if self.life.so_far().failing => ("down", spoken),
            (false, true) => ("starting", spoken),
            // Its one process has ended; the next call starts another.
            (false, false) if self.has_ended() => ("down", spoken),
            (false, false) => ("up", spoken),
        }
    }

    /// Whether the only process that it had is gone.
    fn has_ended(&self) -> bool {
        let child = matches!(self.definition.reach, Reach::Child(_) | Reach::InMemory(_));
        child && self.links.len() == 1 && self.life.so_far().failing
    }

    /// The server's list, where somebody has asked for it.
    pub fn listed(&self) -> Option<Listed> {
        self.own_list(Revision::newest(Era::Modern)).or_else(|| self.links.listed())
    }

    /// How many bytes the answer to a call of a tool may have.
    pub fn result_bytes(&self, tool: &str) -> usize {
        let longest = self.definition.answer_bytes;
        self.definition.results.of(tool).map_or(longest, |most| most.min(longest))
    }

    /// What the server said first when it was asked last, unless agents have credentials of their own.
    pub(crate) fn greeting(&self) -> Option<(Message, Era)> {
        self.greeting.locked().clone()
    }

    fn greeted(&self, hello: &Message, era: Era) {
        if !self.is_personal() {
            let mut greeting = self.greeting.locked();
            *greeting = Some((hello.clone(), era));
        }
    }

    fn eras(&self) -> MutexGuard<'_, Eras> {
        self.eras.locked()
    }

    /// How many links there may be.
    fn most_links(&self) -> Option<usize> {
        match self.definition.reach {
            Reach::Child(_) | Reach::InMemory(_) => Some(self.definition.max_children),
            Reach::Http(_) | Reach::Own => None,
        }
    }

    /// Whether agents come to it with credentials of their own.
    fn is_personal(&self) -> bool {
        matches!(&self.definition.reach, Reach::Http(remote) if remote.is_personal())
    }

    /// Whether the server speaks HTTP+SSE, by the configuration or by what was found.
    fn uses_sse(&self) -> bool {
        match &self.definition.reach {
            Reach::Http(remote) => match remote.transport {
                Some(transport) => transport == Wire::Sse,
                None => self.sse.load(Ordering::Relaxed),
            },
            Reach::Child(_) | Reach::InMemory(_) | Reach::Own => false,
        }
    }

    fn is_sse(&self) {
        self.sse.store(true, Ordering::Relaxed);
    }
}

/// Creates servers and keeps what outlives a configuration: ids, connections of sessions, list changes.
pub struct Servers {
    /// The id of the next server. Ids are never reused.
    next_id: AtomicU64,
    evicted: Arc<Evicted>,
    changes: Changes,
}

/// The servers of one configuration, in its order.
pub type All = Arc<[Arc<Server>]>;

/// Counts the changes of any server's list, so that whoever looks again knows whether to.
#[derive(Clone)]
pub(crate) struct Changes {
    count: Arc<AtomicU64>,
    told: Arc<watch::Sender<u64>>,
}

impl Changes {
    pub(crate) fn bump(&self) {
        let count = self.count.fetch_add(1, Ordering::Release) + 1;
        self.told.send_replace(count);
    }

    fn now(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

impl Default for Servers {
    fn default() -> Servers {
        Servers::new()
    }
}

impl Servers {
    pub fn new() -> Servers {
        let changes = Changes { count: Arc::default(), told: Arc::new(watch::Sender::new(0)) };
        Servers { next_id: AtomicU64::new(0), evicted: Arc::default(), changes }
    }

    /// The servers of a configuration that replaces another one. A server with an equal definition is the same value
    /// in both, with its processes and sessions. A server of the same name keeps its id.
    pub fn create(&self, definitions: Vec<Definition>, before: &[Arc<Server>]) -> All {
        let server = |definition: Definition| {
            let old = before.iter().find(|server| *server.name() == *definition.name);
            match old.filter(|server| server.definition == definition) {
                Some(same) => same.clone(),
                None => Arc::new(self.server(old.map(|server| server.id), definition)),
            }
        };
        definitions.into_iter().map(server).collect()
    }

    fn server(&self, id: Option<ServerId>, definition: Definition) -> Server {
        let (links, line, searches, eras, greeting, sse, spare, calls, life) = Default::default();
        Server {
            withheld: Arc::default(),
            id: id.unwrap_or_else(|| ServerId::new(self.next_id.fetch_add(1, Ordering::Relaxed))),
            definition,
            links,
            line,
            evicted: self.evicted.clone(),
            searches,
            eras,
            greeting,
            sse,
            spare,
            calls,
            life,
            changes: self.changes.clone(),
        }
    }

    /// Retires the servers that are not in the new configuration. They end with the last call in flight.
    pub fn retire(&self, before: &[Arc<Server>], now: &[Arc<Server>]) {
        for gone in before.iter().filter(|old| !now.iter().any(|new| Arc::ptr_eq(old, new))) {
            gone.searches.stop();
            drop(gone.links.drain());
            drop(gone.spare.take());
        }
        self.changes.bump();
    }

    /// A number that grows whenever a list may have changed.
    pub fn generation(&self) -> u64 {
        self.changes.now()
    }

    /// Hears of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.told.subscribe()
    }

    /// The link of a client to a server, where there is one.
    pub fn existing(&self, server: &Server, client: &Client) -> Option<Arc<Link>> {
        server.links.seen(&keys(server, client), server.is_foreign(client.era()))
    }

    /// What a server says first, in the client's era or else in the other.
    pub async fn greet(
        &self,
        server: &Arc<Server>,
        client: &Client,
    ) -> Result<(Message, Era), Unavailable> {
        let keys = keys(server, client);
        for _ in 0..WAYS {
            let link = server.reach(client, &keys, None).await?;
            match link.hello().await {
                Err(why) if why.is_otherwise() => {}
                hello => return Ok((hello?, link.era())),
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// What a server says first in the client's own era. Where it does not speak that, nothing is left
    /// begun in the other.
    pub async fn greet_in_own_era(
        &self,
        server: &Arc<Server>,
        client: &Client,
    ) -> Result<Message, Unavailable> {
        let keys = keys(server, client);
        if let Some(answer) = server.own_greeting(client, &keys).await {
            return answer;
        }
        match self.greet(server, client).await? {
            (hello, era) if era == client.era() => Ok(hello),
            _ => {
                let [_, other] = &keys;
                server.links.remove_unlisted(other);
                Err(Unavailable::OtherEra)
            }
        }
    }

    /// A server's list as a client gets it.
    pub async fn list(
        &self,
        server: &Arc<Server>,
        client: &Client,
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        if let Some(listed) = server.own_list(client.revision) {
            return Ok(listed);
        }
        let keys = keys(server, client);
        let deadline = tokio::time::Instant::now() + patience;
        for _ in 0..WAYS {
            let link = server.reach(client, &keys, Some(patience)).await?;
            let listed = tokio::time::timeout_at(deadline, link.list(patience)).await;
            match listed.unwrap_or(Err(Unavailable::Slow)) {
                Err(why) if why.is_otherwise() => {}
                listed => return listed,
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// Forwards a permitted call. The only way for a client's request to a server.
    pub async fn open(
        &self,
        server: &Arc<Server>,
        permit: Permit,
        client: &Client,
        row: &'static MethodRow,
        room: &Arc<Reservation>,
    ) -> Result<Opened, Unavailable> {
        if permit.server() != server.id {
            let why = "internal error: the permit is for another server";
            tracing::error!(target: "upstream", server = server.name(), "{why}");
            return Err(Unavailable::Down(why.into()));
        }
        let keys = keys(server, client);
        let link = match server.links.used(&keys, server.is_foreign(client.era())) {
            Some(link) => link,
            // The link on which the list came had to make room.
            None => {
                let speaks = |key: &&Key| server.known(key.revision.era()) == Known::Speaks;
                let gone = || Unavailable::Down("it is not there any more".into());
                let key = keys.iter().find(speaks).ok_or_else(gone)?;
                Box::pin(server.room_for(key, &Opening::new(key, client))).await?
            }
        };
        let longest = Some(server.result_bytes(&permit.decision().original));
        let outgoing = Outgoing { longest, room: Some(room.clone()), ..permit.spend(row) };
        Ok(Link::send_on(link, outgoing))
    }

    /// A server's list in whichever era it speaks, asked for by nobody in particular.
    pub async fn own_list(
        &self,
        server: &Arc<Server>,
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        let caller = Caller::new(None, "gateway");
        let revision = Revision::newest(Era::Modern);
        let client = Client::new(caller, Scope::All, revision, Owner::Everyone);
        self.list(server, &client, patience).await
    }

    /// Whether a process of this client was ended to make room for another client.
    pub(crate) fn has_evicted(&self, owner: &Owner) -> bool {
        self.evicted.contains(owner)
    }

    /// Ends the connections that only this client used.
    pub fn release(&self, servers: &[Arc<Server>], owner: &Owner) {
        self.evicted.forget(owner);
        for server in servers {
            server.searches.release(owner);
            server.links.release(owner);
        }
    }

    /// Ends idle connections.
    pub fn sweep(&self, servers: &[Arc<Server>]) {
        for server in servers {
            server.links.sweep();
        }
    }

    /// Closes all connections, and waits until the child processes have ended.
    pub async fn close(&self, servers: &[Arc<Server>]) {
        let mut ended = Vec::new();
        for server in servers {
            server.searches.stop();
            ended.extend(server.links.drain().iter().filter_map(|link| link.ended()));
        }
        for server in servers {
            if let Some(process) = server.spare.take() {
                process.end().await;
            }
        }
        for end in ended {
            end.await;
        }
    }
}

/// What a client's links to a server belong to: in its own era, and in the other.
fn keys(server: &Server, client: &Client) -> [Key; 2] {
    let other = match client.era() {
        Era::Modern => Revision::newest(Era::Legacy),
        Era::Legacy => Revision::newest(Era::Modern),
    };
    [client.revision, other].map(|revision| {
        let modern = revision.era() == Era::Modern;
        let agent = client.caller.agent.clone().filter(|_| server.is_personal());
        let owner = match modern || server.definition.share {
            true => Owner::Everyone,
            false => client.owner.clone(),
        };
        Key { revision, owner, agent }
    })
}

/// A request under way at a server.
pub struct Opened {
    /// The era in which the server was asked.
    pub era: Era,
    /// Keeps the link from being taken for idle.
    _busy: connection::Busy,
    carrier: Carrier,
}

/// Why a request is given up.
#[derive(Debug, Clone)]
pub enum GiveUp {
    TimedOut,
    /// The client canceled it, for a reason that is a JSON string.
    Cancelled(Option<Bytes>),
}

impl GiveUp {
    /// The client left, or does not say why.
    pub(crate) const LEFT: GiveUp = GiveUp::Cancelled(None);
}

enum Carrier {
    Child(transport::line_transport::Call),
    Http(Box<transport::http::Call>),
}

impl Opened {
    /// When nothing was read from the server because another result waited for room.
    pub fn stalls(&self) -> Stalls {
        match &self.carrier {
            Carrier::Child(call) => call.stalls().clone(),
            // Each call has a connection of its own.
            Carrier::Http(_) => Stalls::default(),
        }
    }

    /// What happens next; after [`Event::Done`] nothing does.
    pub async fn next(&mut self) -> Event {
        match &mut self.carrier {
            Carrier::Child(call) => call.next().await,
            Carrier::Http(call) => call.next().await,
        }
    }

    /// Nobody waits any more: the server is told, and `Done` follows.
    pub fn give_up(&mut self, why: GiveUp) {
        match &mut self.carrier {
            Carrier::Child(call) => call.give_up(why),
            Carrier::Http(call) => call.give_up(why),
        }
    }
}
