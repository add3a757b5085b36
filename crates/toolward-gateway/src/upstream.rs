//! Upstream servers, and the gateway's connections to them.
//!
//! A [`ServerConnection`] is one connection as the server sees it: a child process, or a session
//! over HTTP. It belongs to a [`Key`]: sessions share a connection only if the configuration allows
//! it; connections to stateless servers are always shared. A connection caches the server's tool
//! list for as long as the server permits. [`negotiate`] finds the protocol version of a server.

pub mod built_in;
pub mod catalogue;
mod connection;
mod connections;
mod era_cache;
mod era_memory;
mod error;
mod evicted;
pub(crate) mod handshake;
mod identity;
mod list_store;
mod login_watch;
mod negotiate;
mod oauth;
pub(crate) mod remote;
mod roots;
mod size_limit;
pub(crate) mod stalls;
mod timeouts;
pub(crate) mod transport;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use toolward_wire::exchange::Event;
use toolward_wire::jsonrpc::request_body;
use toolward_wire::list::ListKind;
use toolward_wire::{
    ClientCapabilities, Edit, Era, Id, LogLevel, Message, MethodRow, Revision, Sender, meta, method,
};

pub(crate) use self::connection::subscriptions::{Deliver, Subscribed, Subscription, Update};
pub(crate) use self::connection::tasks::offers_tasks;
pub use self::connection::{Listed, ServerConnection};
pub use self::error::Unavailable;
pub use self::size_limit::Caps;
pub use self::transport::environment::Inherit;
pub use self::transport::line_server::InMemory;
pub use self::transport::stdio::Launch;
pub use oauth::OAuth;
pub use remote::{Remote, Wire};
pub use roots::{Roots, file_uri};
pub use timeouts::Timeouts;

use self::connections::ConnectionPool;
use self::era_cache::{EraSupport, Eras};
use self::era_memory::EraMemory;
use self::evicted::EvictedSessions;
use self::handshake::Opening;
use self::list_store::ListStore;
use self::login_watch::LoginWatch;
use self::negotiate::{MAX_ATTEMPTS, Searches};
use self::stalls::Stalls;
use self::transport::environment::WithheldReport;
use self::transport::reusable_process::Spare;
use crate::budget::Reservation;
use crate::client::{Caller, Claims, Client, Owner, Scope, ServerId};
use crate::lock::LockUnpoisoned;
use crate::login::grant::Grant;
use crate::login::{LoginEvent, NeedsLogin};
use crate::metrics::calls::Calls;
use crate::metrics::lifecycle::Life;
use crate::permit::{Outgoing, Permit};

/// The transport to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    Child(Launch),
    /// A task of this process, for tests.
    InMemory(InMemory),
    Http(Remote),
    /// The built-in server of the gateway.
    Own,
}

impl Reach {
    /// Whether a connection is a process, or a task in its place.
    fn is_stdio(&self) -> bool {
        matches!(self, Reach::Child(_) | Reach::InMemory(_))
    }
}

/// The configuration of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    pub name: Box<str>,
    pub reach: Reach,
    pub timeouts: Timeouts,
    /// All sessions share one connection.
    pub share: bool,
    pub max_children: usize,
    /// Its last known list is shown until it has started.
    pub cache: bool,
    pub eager: bool,
    /// The maximum size of a response.
    pub answer_bytes: usize,
    /// The maximum size of tool results.
    pub results: Caps,
    /// URI schemes of resources that belong to it: `jira`, or a scheme and host such as `https://docs.example`.
    pub schemes: Vec<Box<str>>,
    /// The gateway's answer to `roots/list`; `None`: the client's roots.
    pub roots: Option<Roots>,
}

/// A server and the connections to it.
pub struct Server {
    pub id: ServerId,
    pub definition: Definition,
    /// A digest of its command line or URL.
    pub(crate) identity: String,
    connections: ConnectionPool,
    /// Held by the session that is next to get a process; the others queue for it.
    line: tokio::sync::Mutex<()>,
    evicted: Arc<EvictedSessions>,
    searches: Searches,
    eras: Mutex<Eras>,
    /// The protocol versions that earlier runs of the gateway detected, and the server's name there.
    memory: Option<(Arc<EraMemory>, String)>,
    /// The response to the latest handshake.
    greeting: Mutex<Option<(Message, Era)>>,
    /// Detected: the server uses the legacy HTTP+SSE transport.
    sse: AtomicBool,
    spare: Arc<Spare>,
    withheld: Arc<WithheldReport>,
    /// Metrics of calls.
    pub calls: Calls,
    /// Starts and failures.
    pub life: Arc<Life>,
    changes: Changes,
    login_watch: LoginWatch,
}

/// Identifies a connection: connections are shared between clients with the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub revision: Revision,
    pub owner: Owner,
    /// The agent whose credentials are sent, if agents have their own.
    pub agent: Option<Arc<str>>,
    /// The holder of the JWT for which the server's tokens are exchanged.
    pub holder: Option<Arc<Claims>>,
    /// The client capabilities that are declared to the server.
    pub declared: ClientCapabilities,
    /// Numbers connections that carry one call at a time, so that a request of the server has one owner.
    pub lane: usize,
}

impl Key {
    /// The process of a connection to a server on stdio. Modern requests carry their own capabilities, so one process
    /// serves all of them; only lists are kept apart, because they may depend on capabilities.
    fn process(&self) -> Key {
        match self.revision.era() {
            Era::Modern => Key { declared: ClientCapabilities::NONE, ..self.clone() },
            Era::Legacy => self.clone(),
        }
    }
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

    /// Whether this is the built-in server.
    pub fn is_own(&self) -> bool {
        self.definition.reach == Reach::Own
    }

    /// A list of the built-in server.
    pub(crate) fn own_list(&self, kind: ListKind, revision: Revision) -> Option<Listed> {
        let catalogue = || built_in::list(kind, revision);
        let listed = || Listed { catalogue: catalogue(), fresh_until: None, relist_at: None };
        self.is_own().then(listed)
    }

    /// The server's state, and the protocol versions in which it has responded.
    pub fn state(&self) -> (&'static str, Vec<Revision>) {
        if self.is_own() {
            return ("up", Vec::new());
        }
        if self.missing_login().is_some() {
            return ("needs login", Vec::new());
        }
        let mut spoken = self.connections.spoken_in();
        spoken.sort_by_key(|revision| revision.as_str());
        spoken.dedup();
        match (self.connections.is_empty(), spoken.is_empty()) {
            (true, _) => ("idle", spoken),
            (false, true) if self.life.so_far().failing => ("down", spoken),
            (false, true) => ("starting", spoken),
            // Its only process has ended; the next call starts another one.
            (false, false) if self.has_ended() => ("down", spoken),
            (false, false) => ("up", spoken),
        }
    }

    /// The source of tokens, if the server has one.
    fn oauth(&self) -> Option<&Arc<OAuth>> {
        match &self.definition.reach {
            Reach::Http(remote) => remote.oauth.as_ref(),
            Reach::Child(_) | Reach::InMemory(_) | Reach::Own => None,
        }
    }

    /// The login without which the server cannot be used.
    pub fn missing_login(&self) -> Option<NeedsLogin> {
        self.oauth()?.needs_login()
    }

    /// The same for requests of one agent.
    pub(crate) fn missing_login_of(&self, agent: Option<&str>) -> Option<NeedsLogin> {
        match &self.definition.reach {
            Reach::Http(remote) => remote.of(agent, None).oauth?.needs_login(),
            Reach::Child(_) | Reach::InMemory(_) | Reach::Own => None,
        }
    }

    /// The logins for the server.
    pub fn logins(&self) -> Vec<Grant> {
        self.oauth().map(|oauth| oauth.grants()).unwrap_or_default()
    }

    /// Events of logins that have not been recorded yet.
    pub(crate) fn take_login_events(&self) -> Vec<LoginEvent> {
        self.oauth().map(|oauth| oauth.take_events()).unwrap_or_default()
    }

    /// Whether the server's only process has ended.
    fn has_ended(&self) -> bool {
        self.is_stdio() && self.connections.processes() == 1 && self.life.so_far().failing
    }

    /// The server's tool list, if any client has requested it.
    pub fn listed(&self) -> Option<Listed> {
        self.listed_as(ListKind::Tools)
    }

    /// The server's list of one kind, if any client has requested it.
    pub fn listed_as(&self, kind: ListKind) -> Option<Listed> {
        let own = self.own_list(kind, Revision::newest(Era::Modern));
        own.or_else(|| self.connections.listed(kind))
    }

    /// The maximum size in bytes of the response to a call of a tool.
    pub fn result_bytes(&self, tool: &str) -> usize {
        let longest = self.definition.answer_bytes;
        self.definition.results.of(tool).map_or(longest, |most| most.min(longest))
    }

    /// The response to the latest handshake. `None` if agents have their own credentials: the
    /// response may be meant for one agent only.
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

    /// The server responded in a protocol version.
    fn speaks(&self, era: Era) {
        self.learn(|eras| eras.speaks(era, Instant::now()));
    }

    /// The server ended when it was tried in a protocol version.
    fn ends_in(&self, era: Era) {
        self.eras().ended(era, Instant::now());
    }

    /// The server rejected a protocol version.
    fn refuses(&self, era: Era) {
        self.learn(|eras| eras.refused(era, Instant::now()));
    }

    fn learn(&self, learn: impl FnOnce(&mut Eras)) {
        let only = {
            let mut eras = self.eras();
            learn(&mut eras);
            eras.only()
        };
        if let Some((memory, identity)) = &self.memory {
            memory.remember(identity, only);
        }
    }

    /// Whether a connection is a process.
    fn is_stdio(&self) -> bool {
        self.definition.reach.is_stdio()
    }

    /// The first request on a connection for a client.
    fn opening(&self, key: &Key, client: &Client) -> Opening {
        Opening::new(key, client, self.definition.roots.as_ref())
    }

    /// The maximum number of connections.
    fn max_connections(&self) -> Option<usize> {
        match self.definition.reach {
            Reach::Child(_) | Reach::InMemory(_) => Some(self.definition.max_children),
            Reach::Http(_) | Reach::Own => None,
        }
    }

    /// Whether agents have their own credentials for the server.
    fn is_personal(&self) -> bool {
        matches!(&self.definition.reach, Reach::Http(remote) if remote.is_personal())
    }

    /// Whether its tokens are exchanged for those of callers.
    fn exchanges(&self) -> bool {
        matches!(&self.definition.reach, Reach::Http(remote) if remote.exchanges())
    }

    /// Whether the server uses the legacy HTTP+SSE transport, as configured or detected.
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

/// Creates servers, and owns the state that outlives a configuration: ids, evicted sessions, list
/// changes.
pub struct Servers {
    /// The id of the next server. Ids are never reused.
    next_id: AtomicU64,
    evicted: Arc<EvictedSessions>,
    changes: Changes,
    memory: Option<Arc<EraMemory>>,
    lists: Option<Arc<ListStore>>,
}

/// The servers of one configuration, in its order.
pub type All = Arc<[Arc<Server>]>;

/// Counts changes of any server's tool list, so that a cached view can be checked for staleness.
#[derive(Clone)]
pub(crate) struct Changes {
    count: Arc<AtomicU64>,
    sender: Arc<watch::Sender<u64>>,
}

impl Changes {
    pub(crate) fn bump(&self) {
        let count = self.count.fetch_add(1, Ordering::Release) + 1;
        self.sender.send_replace(count);
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
        let changes = Changes { count: Arc::default(), sender: Arc::new(watch::Sender::new(0)) };
        let (evicted, memory, lists) = Default::default();
        Servers { next_id: AtomicU64::new(0), evicted, changes, memory, lists }
    }

    /// The same, with the protocol versions and lists that earlier runs kept in this state directory.
    pub fn remembering(state: &Path) -> Servers {
        let memory = Some(Arc::new(EraMemory::in_directory(state)));
        let lists = ListStore::in_state(state).map(Arc::new);
        Servers { memory, lists, ..Servers::new() }
    }

    /// The servers of a new configuration. A server whose definition did not change is the same
    /// value in both configurations, with its processes and sessions. A server with the same name
    /// keeps its id.
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
        let (connections, line, searches, greeting, sse, spare, calls, life) = Default::default();
        let memory = self.memory.clone().and_then(|memory| {
            Some((memory, identity::on_this_machine(&definition.reach, &definition.name)?))
        });
        let only = memory.as_ref().and_then(|(memory, identity)| memory.only(identity));
        Server {
            eras: Mutex::new(Eras::new(definition.reach.is_stdio(), only)),
            identity: identity::for_approvals(&definition.reach),
            memory,
            withheld: Arc::default(),
            id: id.unwrap_or_else(|| ServerId::new(self.next_id.fetch_add(1, Ordering::Relaxed))),
            definition,
            connections,
            line,
            evicted: self.evicted.clone(),
            searches,
            greeting,
            sse,
            spare,
            calls,
            life,
            changes: self.changes.clone(),
            login_watch: LoginWatch::default(),
        }
    }

    /// Retires the servers that are not in the new configuration. They end with the last call in
    /// flight.
    pub fn retire(&self, before: &[Arc<Server>], now: &[Arc<Server>]) {
        for gone in before.iter().filter(|old| !now.iter().any(|new| Arc::ptr_eq(old, new))) {
            gone.searches.stop();
            drop(gone.connections.drain());
            drop(gone.spare.take());
        }
        self.changes.bump();
    }

    /// A number that increases whenever a list may have changed.
    pub fn generation(&self) -> u64 {
        self.changes.now()
    }

    /// Notifies of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.sender.subscribe()
    }

    /// The client's connection to a server, if there is one.
    pub fn existing(
        &self,
        server: &Server,
        client: &Client,
        declared: ClientCapabilities,
    ) -> Option<Arc<ServerConnection>> {
        server.connections.seen(&keys(server, client, declared), server.is_foreign(client.era()))
    }

    /// The server's handshake response, in the client's protocol version, or else in the other one.
    pub async fn greet(
        &self,
        server: &Arc<Server>,
        client: &Client,
        declared: ClientCapabilities,
    ) -> Result<(Message, Era), Unavailable> {
        let keys = keys(server, client, declared);
        for _ in 0..MAX_ATTEMPTS {
            let connection = server.reach(client, &keys, None).await?;
            match connection.hello().await {
                Err(why) if why.is_otherwise() => {}
                hello => return Ok((hello?, connection.era())),
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// The client's connection to a server, on which the server has responded.
    pub(crate) async fn connect(
        &self,
        server: &Arc<Server>,
        client: &Client,
        declared: ClientCapabilities,
    ) -> Result<Arc<ServerConnection>, Unavailable> {
        let keys = keys(server, client, declared);
        for _ in 0..MAX_ATTEMPTS {
            let connection = server.reach(client, &keys, None).await?;
            match connection.hello().await {
                Err(why) if why.is_otherwise() => {}
                Err(why) => return Err(why),
                Ok(_) => return Ok(connection.clone()),
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// The server's handshake response in the client's own protocol version.
    pub(crate) async fn greet_in_own_era(
        &self,
        server: &Arc<Server>,
        client: &Client,
        declared: ClientCapabilities,
    ) -> Result<Message, Unavailable> {
        if server.is_stdio() {
            return server.own_greeting(client, &keys(server, client, declared)).await;
        }
        match self.greet(server, client, declared).await? {
            (hello, era) if era == client.era() => Ok(hello),
            _ => Err(Unavailable::OtherEra),
        }
    }

    /// A server's list of one kind for a client.
    pub async fn list(
        &self,
        (server, kind): (&Arc<Server>, ListKind),
        (client, declared): (&Client, ClientCapabilities),
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        if let Some(listed) = server.own_list(kind, client.revision) {
            return Ok(listed);
        }
        let keys = keys(server, client, declared);
        let listed = self.fetch_list((server, kind), client, &keys, patience).await;
        if let Err(Unavailable::NeedsLogin(_)) = &listed {
            login_watch::watch(server, client, &keys);
        }
        if let Some(lists) = &self.lists {
            let list = listed.as_ref().map(|listed| &listed.catalogue);
            // Clients that were shown the stored list learn that the server failed.
            if lists.heard(&server.definition, (&keys[0], kind), list) {
                self.changes.bump();
            }
        }
        listed
    }

    /// The list that a server sent in an earlier run, until it responds or fails. It is for listings only: nothing is
    /// decided on it.
    pub(crate) fn first_list(
        &self,
        (server, kind): (&Server, ListKind),
        (client, declared): (&Client, ClientCapabilities),
    ) -> Option<Listed> {
        let [own, _] = &keys(server, client, declared);
        let catalogue = self.lists.as_ref()?.first(&server.definition, (own, kind))?;
        let now = Some(Instant::now());
        Some(Listed { catalogue, fresh_until: now, relist_at: now })
    }

    async fn fetch_list(
        &self,
        (server, kind): (&Arc<Server>, ListKind),
        client: &Client,
        keys: &[Key; 2],
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        let deadline = Instant::now() + patience;
        for _ in 0..MAX_ATTEMPTS {
            let connection = server.reach(client, keys, Some(patience)).await?;
            let listed = tokio::time::timeout_at(deadline, connection.list(kind, patience)).await;
            match listed.unwrap_or(Err(Unavailable::Slow)) {
                Err(why) if why.is_otherwise() => {}
                listed => return listed,
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// Forwards a permitted call. A client's request reaches a server in no other way.
    pub async fn open(
        &self,
        server: &Arc<Server>,
        permit: Permit,
        (client, declared): (&Client, ClientCapabilities),
        row: &'static MethodRow,
        room: &Arc<Reservation>,
    ) -> Result<Opened, Unavailable> {
        if permit.server() != server.id {
            let why = "internal error: the permit is for another server";
            tracing::error!(target: "upstream", server = server.name(), "{why}");
            return Err(Unavailable::Down(why.into()));
        }
        let keys = keys(server, client, declared);
        let connection = match server.connections.used(&keys, server.is_foreign(client.era())) {
            Some(connection) => connection,
            // The connection that the list came from was evicted.
            None => {
                let speaks = |key: &&Key| server.known(key.revision.era()) == EraSupport::Supported;
                let gone = || Unavailable::Down("it is no longer available".into());
                let key = keys.iter().find(speaks).ok_or_else(gone)?;
                Box::pin(server.room_for(key, &server.opening(key, client))).await?
            }
        };
        let connection = match connection.runs_one_call() && connection.is_used_by_others() {
            true => Box::pin(server.free_lane(connection.key(), client)).await?,
            false => connection,
        };
        let longest = Some(server.result_bytes(permit.tool()));
        let room = Some(room.clone());
        let log_level = client.outlet.as_ref().and_then(|outlet| outlet.log_level());
        let asked = || log_level.or_else(|| requested_log_level(permit.message()));
        if connection.era() == Era::Legacy
            && let Some(level) = asked()
        {
            connection.log_from(level);
        }
        let declared = match server.definition.roots {
            Some(_) => declared | ClientCapabilities::ROOTS,
            None => declared,
        };
        let wants_task =
            permit.message().param("task").is_some() && client.revision == Revision::R2025_11_25;
        // The gateway asks for a task if the tool needs one and the client does not ask.
        let makes_task = permit.needs_task() && !wants_task;
        let is_legacy = connection.era() == Era::Legacy;
        let may_be_task =
            is_legacy && (wants_task || makes_task) && Box::pin(connection.offers_tasks()).await;
        let task = may_be_task && makes_task;
        let outgoing =
            Outgoing { longest, room, declared, log_level, may_be_task, ..permit.spend(row) };
        // A legacy client cannot repeat a call with its input: the gateway does it, as it does with configured roots.
        let is_asked_here = client.era() == Era::Legacy || server.definition.roots.is_some();
        let outgoing = if task { outgoing.into_task() } else { outgoing };
        let repeatable = connection.era() == Era::Modern && is_asked_here;
        let original = (repeatable || task).then(|| Arc::new(outgoing.clone()));
        Ok(Opened { original, ..ServerConnection::send_on(connection, outgoing) })
    }

    /// A server's tool list in any protocol version, for the gateway itself rather than a client.
    pub async fn own_list(
        &self,
        server: &Arc<Server>,
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        self.own_list_as((server, ListKind::Tools), patience).await
    }

    /// The same for a list of any kind.
    pub async fn own_list_as(
        &self,
        list: (&Arc<Server>, ListKind),
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        let caller = Caller::new(None, "gateway");
        let revision = Revision::newest(Era::Modern);
        let client = Client::new(caller, Scope::All, revision, Owner::Everyone);
        self.list(list, (&client, ClientCapabilities::NONE), patience).await
    }

    /// Whether a process of this client was evicted in favor of another client.
    pub(crate) fn has_evicted(&self, owner: &Owner) -> bool {
        self.evicted.contains(owner)
    }

    /// Ends the connections that only this client used.
    pub fn release(&self, servers: &[Arc<Server>], owner: &Owner) {
        self.evicted.forget(owner);
        for server in servers {
            server.searches.release(owner);
            server.connections.release(owner);
        }
    }

    /// Ends idle connections.
    pub(crate) fn sweep(&self, servers: &[Arc<Server>]) {
        for server in servers {
            server.connections.sweep();
        }
    }

    /// Closes all connections, and waits until the child processes have ended.
    pub async fn close(&self, servers: &[Arc<Server>]) {
        let mut ended = Vec::new();
        for server in servers {
            server.searches.stop();
            ended.extend(
                server.connections.drain().iter().filter_map(|connection| connection.ended()),
            );
        }
        for server in servers {
            if let Some(process) = server.spare.take() {
                process.end().await;
            }
        }
        for end in ended {
            end.await;
        }
        for oauth in servers.iter().filter_map(|server| server.oauth()) {
            oauth.settled().await;
        }
    }
}

/// The log level that a modern request asks for.
fn requested_log_level(message: &Message) -> Option<LogLevel> {
    LogLevel::parse(&message.meta(meta::LOG_LEVEL)?.as_str()?)
}

/// The keys of a client's connections to a server: in its own protocol version, and in the other.
fn keys(server: &Server, client: &Client, declared: ClientCapabilities) -> [Key; 2] {
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
        let holder = client.caller.claims.clone().filter(|_| server.exchanges());
        let declared = declared.in_era(revision.era());
        Key { revision, owner, agent, holder, declared, lane: 0 }
    })
}

/// A request in flight to a server.
pub struct Opened {
    /// The protocol version of the connection to the server.
    pub era: Era,
    /// Keeps the connection from counting as idle.
    busy: connection::Busy,
    carrier: Carrier,
    /// The request, if it may have to be repeated with the client's input.
    original: Option<Arc<Outgoing>>,
}

/// Why a request is abandoned.
#[derive(Debug, Clone)]
pub enum GiveUp {
    TimedOut,
    /// The client canceled it, with this reason as a JSON string.
    Cancelled(Option<Bytes>),
}

impl GiveUp {
    /// The client disconnected, or canceled without a reason.
    pub(crate) const LEFT: GiveUp = GiveUp::Cancelled(None);
}

enum Carrier {
    Child(transport::line_transport::Call),
    Http(Box<transport::http::Call>),
}

impl Opened {
    /// The periods in which nothing was read from the server because another result waited for
    /// memory.
    pub(crate) fn stalls(&self) -> Stalls {
        match &self.carrier {
            Carrier::Child(call) => call.stalls().clone(),
            // Each call has a connection of its own.
            Carrier::Http(_) => Stalls::default(),
        }
    }

    /// Whether the server responded with a stream.
    pub(crate) fn is_streamed(&self) -> bool {
        match &self.carrier {
            Carrier::Child(_) => self.busy.streams(),
            Carrier::Http(call) => call.is_streamed(),
        }
    }

    /// The next event. [`Event::Done`] is the last one.
    pub async fn next(&mut self) -> Event {
        match &mut self.carrier {
            Carrier::Child(call) => call.next().await,
            Carrier::Http(call) => call.next().await,
        }
    }

    /// Passes on the client's response to a request of the server.
    pub(crate) fn respond(&mut self, id: Id, response: Message) {
        match &mut self.carrier {
            Carrier::Child(call) => call.respond(id, response),
            Carrier::Http(call) => call.respond(&id, &response),
        }
    }

    /// Sends the request again, with these parameters changed: the client's input for a modern server. `None` if the
    /// request cannot be repeated.
    pub(crate) fn repeat(&self, change: impl FnOnce(Edit<'_>) -> Edit<'_>) -> Option<Opened> {
        let original = self.original.as_deref()?;
        let body = change(original.message.edit()).finish();
        let message = Message::parse(body, usize::MAX, Sender::Client).ok()?;
        let opened =
            ServerConnection::send_on(self.busy.busy(), Outgoing { message, ..original.clone() });
        Some(Opened { original: self.original.clone(), ..opened })
    }

    /// The connection that the request was sent on.
    pub(crate) fn connection(&self) -> &Arc<ServerConnection> {
        &self.busy
    }

    /// Asks for the result of a task that the gateway made for a client without tasks. `None` if it made none.
    pub(crate) fn result_of_task(&self, id: &str) -> Option<Opened> {
        let original = self.original.as_deref().filter(|original| original.may_be_task)?;
        let row = method::lookup("tasks/result", Sender::Client, Era::Legacy)?;
        let body = {
            let mut params = json!({ "taskId": id });
            if let Some(token) = original.message.progress_token() {
                let token: Value = serde_json::from_slice(token.raw()).ok()?;
                params["_meta"] = json!({ "progressToken": token });
            }
            request_body(original.message.id(), row.name, Some(params.to_string().as_bytes()))
        };
        let message = Message::parse(body, usize::MAX, Sender::Client).ok()?;
        let (name, headers) = (None, Vec::new());
        let outgoing = Outgoing { message, row, name, headers, ..original.clone() };
        Some(ServerConnection::send_on(self.busy.busy(), outgoing))
    }

    /// Abandons the request: cancels it at the server. `Done` follows.
    pub fn give_up(&mut self, why: GiveUp) {
        match &mut self.carrier {
            Carrier::Child(call) => call.give_up(why),
            Carrier::Http(call) => call.give_up(why),
        }
    }
}
