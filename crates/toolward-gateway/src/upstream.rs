//! Servers behind the gateway: which there are, and the links to them.
//!
//! A [`Link`] is one connection as the server sees it: a child process, or a session over HTTP. It
//! belongs to a [`Key`]: links of sessions are shared only where the configuration says so, links to
//! stateless servers always. It knows the server's list, and keeps it as fresh as the server says.

mod address;
pub mod child;
mod events;
mod http;
mod link;
mod pool;
mod process;
mod sse;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::watch;
use toolward_policy::selector::Glob;
use toolward_wire::exchange::Event;
use toolward_wire::{Era, Kind, Message, MethodRow, Revision, code};

pub use address::{Address, Remote, Wire};
pub use child::Launch;
pub use link::{Link, Listed};

use crate::client::{Client, Owner};
use crate::decide::Permit;

/// Writes a line for the operator.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A link that nobody used for so long ends.
const IDLE: Duration = Duration::from_secs(300);
/// For so long a server that ended when it was asked in an era is not asked so again.
const UNCLEAR: Duration = Duration::from_secs(1);
/// For so long a server that does not speak an era is not asked again.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// In so many ways a server can be asked: two eras, and two transports of the older one.
const WAYS: usize = 3;

/// Why a server cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    Down(String),
    /// It is there, and does not speak the era it was asked in.
    OtherEra,
    /// It ended when it was asked in this era, for whatever reason.
    Unclear,
    /// It is there, and speaks HTTP+SSE of 2024-11-05.
    OldTransport,
    /// It has not listed its tools yet.
    Slow,
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unavailable::Down(why) => f.write_str(why),
            Unavailable::OtherEra => f.write_str("it speaks no revision that is known here"),
            Unavailable::Unclear => f.write_str("it ended when it was asked"),
            Unavailable::OldTransport => f.write_str("it speaks HTTP+SSE of 2024-11-05"),
            Unavailable::Slow => f.write_str("it has not listed its tools yet"),
        }
    }
}

impl Unavailable {
    /// The server may be there for whoever asks otherwise.
    fn is_otherwise(&self) -> bool {
        matches!(self, Unavailable::OtherEra | Unavailable::OldTransport | Unavailable::Unclear)
    }

    /// What a client may read of it. Commands and addresses are the operator's.
    pub fn public(&self) -> Unavailable {
        match self {
            Unavailable::Down(_) => Unavailable::Down("it cannot be reached now".into()),
            other => other.clone(),
        }
    }

    /// One word for `_meta` and the record.
    pub fn word(&self) -> &'static str {
        match self {
            Unavailable::Down(_) => "unavailable",
            Unavailable::Unclear => "unavailable",
            Unavailable::OtherEra | Unavailable::OldTransport => "unknown-revision",
            Unavailable::Slow => "starting",
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    Child(Launch),
    Http(Remote),
}

/// How a server is used.
#[derive(Debug, Clone)]
pub struct Definition {
    pub name: Box<str>,
    pub reach: Reach,
    /// How long a call may take: by tool, first match, and otherwise.
    pub timeouts: Vec<(Glob, Duration)>,
    pub timeout: Duration,
    /// All sessions use one link.
    pub share: bool,
    pub max_children: usize,
    pub eager: bool,
    /// The longest answer.
    pub answer_bytes: usize,
}

/// A server and the links to it.
pub struct Server {
    pub index: usize,
    pub definition: Definition,
    links: Mutex<HashMap<Key, Arc<Link>>>,
    /// Eras that it was found not to speak, and until when that is believed.
    foreign: Mutex<[Option<Instant>; 2]>,
    /// It was found to speak HTTP+SSE.
    sse: AtomicBool,
}

/// What a link belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub revision: Revision,
    pub owner: Owner,
}

impl Server {
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// How long a call of a tool may take.
    pub fn timeout(&self, tool: &str) -> Duration {
        let named = self.definition.timeouts.iter().find(|(glob, _)| glob.matches(tool));
        named.map_or(self.definition.timeout, |(_, timeout)| *timeout)
    }

    fn links(&self) -> MutexGuard<'_, HashMap<Key, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn foreign(&self) -> MutexGuard<'_, [Option<Instant>; 2]> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server speaks HTTP+SSE, by the configuration or by what was found.
    fn uses_sse(&self) -> bool {
        match &self.definition.reach {
            Reach::Http(remote) => match remote.transport {
                Some(transport) => transport == Wire::Sse,
                None => self.sse.load(Ordering::Relaxed),
            },
            Reach::Child(_) => false,
        }
    }

    fn is_sse(&self) {
        self.sse.store(true, Ordering::Relaxed);
    }

    /// The server was found not to speak an era.
    fn is_foreign(&self, era: Era, believed: Duration) {
        self.foreign()[era as usize] = Some(Instant::now() + believed);
    }
}

/// All servers of the configuration, in its order.
pub struct Servers {
    all: Vec<Arc<Server>>,
    changes: Changes,
    log: Log,
}

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
        let all = definitions.into_iter().enumerate().map(|(index, definition)| {
            let (links, foreign, sse) = Default::default();
            Arc::new(Server { index, definition, links, foreign, sse })
        });
        let changes = Changes { count: Arc::default(), told: Arc::new(watch::Sender::new(0)) };
        Servers { all: all.collect(), changes, log }
    }

    pub fn all(&self) -> &[Arc<Server>] {
        &self.all
    }

    pub fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.all.iter().find(|server| server.name() == name)
    }

    /// A number that grows whenever a list may have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.changes.now()
    }

    /// Hears of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.told.subscribe()
    }

    /// The link of a client to a server, where there is one.
    pub fn existing(&self, server: &Server, client: &Client) -> Option<Arc<Link>> {
        let links = server.links();
        keys(server, client).iter().find_map(|key| links.get(key).cloned())
    }

    /// The link of a client to a server, made if need be: in the client's era where the server has
    /// it, else in the other. Nothing is started by this yet.
    pub fn link(&self, server: &Arc<Server>, client: &Client) -> Result<Arc<Link>, Unavailable> {
        let keys = keys(server, client);
        let mut links = server.links();
        if let Some(link) = keys.iter().find_map(|key| links.get(key)) {
            link.touch();
            return Ok(link.clone());
        }
        let foreign = *server.foreign();
        let old = server.uses_sse();
        let speaks = |key: &Key| {
            let found = foreign[key.revision.era() as usize];
            let legacy = key.revision.era() == Era::Legacy;
            found.is_none_or(|until| Instant::now() >= until) && (legacy || !old)
        };
        let key = keys.into_iter().find(speaks).ok_or(Unavailable::OtherEra)?;
        if matches!(server.definition.reach, Reach::Child(_)) {
            make_room(&mut links, server.definition.max_children)?;
        }
        let link = Link::new(server, key.clone(), client, self.changes.clone(), self.log.clone());
        links.insert(key, link.clone());
        Ok(link)
    }

    /// What a server says first, in the client's era or else in the other.
    pub async fn greet(
        &self,
        server: &Arc<Server>,
        client: &Client,
    ) -> Result<(Message, Era), Unavailable> {
        for _ in 0..WAYS {
            let link = self.link(server, client)?;
            match link.hello().await {
                Err(why) if why.is_otherwise() => {}
                hello => return Ok((hello?, link.era())),
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// A server's list as a client gets it.
    pub async fn list(
        &self,
        server: &Arc<Server>,
        client: &Client,
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        for _ in 0..WAYS {
            match self.link(server, client)?.list(patience).await {
                Err(why) if why.is_otherwise() => {}
                listed => return listed,
            }
        }
        Err(Unavailable::OtherEra)
    }

    /// Forwards a permitted call. The only way for a client's request to a server.
    pub fn open(
        &self,
        permit: Permit,
        client: &Client,
        row: &'static MethodRow,
    ) -> Result<Opened, Unavailable> {
        let server = self.all.get(permit.server());
        let server = server.ok_or_else(|| Unavailable::Down("there is no such server".into()))?;
        Ok(self.link(server, client)?.open(permit, row))
    }

    /// A client is gone: what only it used ends.
    pub fn release(&self, owner: &Owner) {
        for server in &self.all {
            server.links().retain(|key, _| key.owner != *owner);
        }
    }

    /// Ends what nobody used for a while.
    pub fn sweep(&self) {
        for server in &self.all {
            server.links().retain(|_, link| link.is_busy() || link.idle() < IDLE);
        }
    }

    /// Lets go of all servers, and waits until their processes have ended.
    pub async fn close(&self) {
        let mut ended = Vec::new();
        for server in &self.all {
            let links: Vec<_> = server.links().drain().map(|(_, link)| link).collect();
            ended.extend(links.iter().filter_map(|link| link.ended()));
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
        let shared = revision.era() == Era::Modern || server.definition.share;
        let owner = if shared { Owner::Everyone } else { client.owner.clone() };
        Key { revision, owner }
    })
}

/// At the limit, the child that was idle longest makes room.
fn make_room(links: &mut HashMap<Key, Arc<Link>>, most: usize) -> Result<(), Unavailable> {
    if links.len() < most {
        return Ok(());
    }
    let idle = links.iter().filter(|(_, link)| !link.is_busy()).max_by_key(|(_, link)| link.idle());
    match idle.map(|(key, _)| key.clone()) {
        Some(key) => {
            links.remove(&key);
            Ok(())
        }
        None => Err(Unavailable::Down(format!("all {most} of its processes are busy"))),
    }
}

/// Keeps a server that says too much from filling the log: so many lines a second, the rest is lost.
#[derive(Debug, Default)]
pub(crate) struct Sparing {
    second: Option<Instant>,
    said: u32,
}

impl Sparing {
    const MOST: u32 = 200;

    pub(crate) fn may_say(&mut self) -> bool {
        if self.second.is_none_or(|second| second.elapsed() >= Duration::from_secs(1)) {
            *self = Sparing { second: Some(Instant::now()), said: 0 };
        }
        self.said += 1;
        self.said <= Sparing::MOST
    }
}

/// A request under way at a server.
pub struct Opened {
    /// The era in which the server was asked.
    pub era: Era,
    /// Keeps the link from being taken for idle.
    _busy: link::Busy,
    carrier: Carrier,
}

enum Carrier {
    Child(child::Call),
    Http(Box<http::Call>),
}

impl Opened {
    /// What happens next; after [`Event::Done`] nothing does.
    pub async fn next(&mut self) -> Event {
        match &mut self.carrier {
            Carrier::Child(call) => call.next().await,
            Carrier::Http(call) => call.next().await,
        }
    }

    /// Nobody waits any more: the server is told, and `Done` follows.
    pub fn give_up(&mut self, timed_out: bool) {
        match &mut self.carrier {
            Carrier::Child(call) => call.give_up(timed_out),
            Carrier::Http(call) => call.give_up(timed_out),
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
}

/// What is said first on a link.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    /// `server/discover`, which also tells whether the server is modern.
    Modern,
    /// `initialize` with these parameters.
    Legacy { params: Bytes },
}

impl Opening {
    pub(crate) fn era(&self) -> Era {
        match self {
            Opening::Modern => Era::Modern,
            Opening::Legacy { .. } => Era::Legacy,
        }
    }

    /// What the answer to it says: that the server speaks the era, or that it does not.
    fn accept(&self, answer: &Message) -> Result<(), Unavailable> {
        let refused = answer.kind() == Kind::Error;
        match self {
            Opening::Modern if refused => match answer.error_code() {
                // A modern server that has other revisions than ours.
                Some(code) if code == i64::from(code::UNSUPPORTED_VERSION) => {
                    let why = answer.error_message().unwrap_or_default();
                    Err(Unavailable::Down(format!("it refused `server/discover`: {why}")))
                }
                _ => Err(Unavailable::OtherEra),
            },
            Opening::Legacy { .. } if refused => {
                let why = answer.error_message().unwrap_or_default();
                // What a modern server says of a request without its terms, or of the method.
                let foreign =
                    [code::METHOD_NOT_FOUND, code::INVALID_PARAMS, code::UNSUPPORTED_VERSION];
                match answer.error_code() {
                    Some(code) if foreign.iter().any(|one| i64::from(*one) == code) => {
                        Err(Unavailable::OtherEra)
                    }
                    _ => Err(Unavailable::Down(format!("it refused `initialize`: {why}"))),
                }
            }
            _ => Ok(()),
        }
    }
}
