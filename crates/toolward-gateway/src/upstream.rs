//! Servers behind the gateway: which there are, and the links to them.
//!
//! A [`Link`] is one connection as the server sees it: a child process, or a session over HTTP. It
//! belongs to a [`Key`]: links of sessions are shared only where the configuration says so, links to
//! stateless servers always. It knows the server's list, and keeps it as fresh as the server says. In
//! which era a server is spoken to is found out by a [search](search).

mod address;
pub mod catalogue;
mod connection;
mod connections;
pub(crate) mod document;
mod era_cache;
mod error;
mod evicted;
pub(crate) mod handshake;
mod negotiate;
mod oauth;
pub(crate) mod pool;
mod size_limit;
pub(crate) mod stalls;
mod timeouts;
pub(crate) mod transport;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use toolward_wire::exchange::Event;
use toolward_wire::{Era, Message, MethodRow, Revision};

pub use self::connection::{Link, Listed};
pub use self::error::Unavailable;
pub use self::size_limit::Caps;
pub use self::transport::environment::Inherit;
pub use self::transport::stdio::Launch;
pub use address::{Address, Remote, Wire};
pub use oauth::OAuth;
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
use crate::client::{Client, Owner};
use crate::log::Log;
use crate::methods::meta_tools;
use crate::metrics::calls::Calls;
use crate::metrics::lifecycle::Life;
use crate::view::Permit;

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    Child(Launch),
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
    pub index: usize,
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
    log: Log,
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
        let catalogue = || meta_tools::catalogue(revision);
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
        let child = matches!(self.definition.reach, Reach::Child(_));
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
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn greeted(&self, hello: &Message, era: Era) {
        if !self.is_personal() {
            let mut greeting = self.greeting.lock().unwrap_or_else(PoisonError::into_inner);
            *greeting = Some((hello.clone(), era));
        }
    }

    fn eras(&self) -> MutexGuard<'_, Eras> {
        self.eras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many links there may be.
    fn most_links(&self) -> Option<usize> {
        match self.definition.reach {
            Reach::Child(_) => Some(self.definition.max_children),
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
            Reach::Child(_) | Reach::Own => false,
        }
    }

    fn is_sse(&self) {
        self.sse.store(true, Ordering::Relaxed);
    }
}

/// All servers of the configuration, in its order.
pub struct Servers {
    all: RwLock<All>,
    evicted: Arc<Evicted>,
    changes: Changes,
    log: Log,
}

/// Servers that are there together.
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

impl Servers {
    pub fn new(definitions: Vec<Definition>, log: Log) -> Servers {
        let changes = Changes { count: Arc::default(), told: Arc::new(watch::Sender::new(0)) };
        let all = RwLock::new(Arc::new([]) as All);
        let servers = Servers { all, evicted: Arc::default(), changes, log };
        servers.become_these(servers.next(definitions));
        servers
    }

    pub fn all(&self) -> All {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The servers of another configuration. Those whose definition is the same stay as they are, with
    /// their processes and sessions.
    pub fn next(&self, definitions: Vec<Definition>) -> All {
        let before = self.all();
        let mut unused = before.iter().map(|server| server.index + 1).max().unwrap_or(0);
        let server = |definition: Definition| {
            let old = before.iter().find(|server| *server.name() == *definition.name);
            if let Some(same) = old.filter(|server| server.definition == definition) {
                return same.clone();
            }
            let index = old.map_or(unused, |server| server.index);
            unused = unused.max(index + 1);
            let (links, line, searches, eras, greeting, sse, spare, calls, life) =
                Default::default();
            let withheld = Arc::default();
            let evicted = self.evicted.clone();
            let (changes, log) = (self.changes.clone(), self.log.clone());
            Arc::new(Server {
                index,
                definition,
                links,
                line,
                evicted,
                searches,
                eras,
                greeting,
                sse,
                spare,
                withheld,
                calls,
                life,
                changes,
                log,
            })
        };
        definitions.into_iter().map(server).collect()
    }

    /// From now on these are the servers. Those that are gone end with the last call under way.
    pub fn become_these(&self, all: All) {
        let before = {
            let mut now = self.all.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, all.clone())
        };
        for gone in before.iter().filter(|old| !all.iter().any(|new| Arc::ptr_eq(old, new))) {
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
        permit: Permit,
        client: &Client,
        row: &'static MethodRow,
        room: &Arc<Reservation>,
    ) -> Result<Opened, Unavailable> {
        let server = permit.server().clone();
        let keys = keys(&server, client);
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
        Ok(Link::open(link, permit, row, room.clone()))
    }

    /// Whether a process of this client was ended to make room for another client.
    pub(crate) fn has_evicted(&self, owner: &Owner) -> bool {
        self.evicted.contains(owner)
    }

    /// A client is gone: what only it used ends.
    pub fn release(&self, owner: &Owner) {
        self.evicted.forget(owner);
        for server in self.all().iter() {
            server.searches.release(owner);
            server.links.release(owner);
        }
    }

    /// Ends what nobody used for a while.
    pub fn sweep(&self) {
        for server in self.all().iter() {
            server.links.sweep();
        }
    }

    /// Lets go of all servers, and waits until their processes have ended.
    pub async fn close(&self) {
        let mut ended = Vec::new();
        for server in self.all().iter() {
            server.searches.stop();
            ended.extend(server.links.drain().iter().filter_map(|link| link.ended()));
        }
        for server in self.all().iter() {
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

/// A request as a server gets it, before it has an id there.
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) row: &'static MethodRow,
    /// The name under which the server knows the tool, where that is another one.
    pub(crate) name: Option<Box<str>>,
    /// `Mcp-Param-*` headers, for servers over HTTP.
    pub(crate) headers: Vec<(String, String)>,
    /// The longest answer, where it is not that of the link.
    pub(crate) longest: Option<usize>,
    /// The memory of the answer, which grows as it arrives. `None` for the gateway's own requests.
    pub(crate) room: Option<Arc<Reservation>>,
}
