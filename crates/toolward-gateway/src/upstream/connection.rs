//! One connection to a server.

mod listing;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use toolward_wire::{Era, Message};

use self::listing::ListState;
pub use self::listing::Listed;
use super::handshake::Opening;
use super::transport::line_server::LineServer;
use super::transport::line_session::Users;
use super::transport::{http, line_transport};
use super::{Carrier, Changes, Key, Launch, Opened, Reach, Server, Unavailable};
use crate::client::Owner;
use crate::lock::LockUnpoisoned;
use crate::permit::Outgoing;

pub struct Link {
    server: Weak<Server>,
    name: Box<str>,
    key: Key,
    carrier: Transport,
    list: Mutex<ListState>,
    /// Counts the fetches that came to an end.
    fetched: watch::Sender<u64>,
    changes: Changes,
    busy: AtomicUsize,
    used: Mutex<Instant>,
    /// The server has answered here, and has listed its tools here.
    spoke: AtomicBool,
    listed: AtomicBool,
}

enum Transport {
    Child(line_transport::Child),
    Http(Arc<http::HttpLink>),
}

/// A link in use, for as long as this lives.
pub(crate) struct Busy(Arc<Link>);

impl Deref for Busy {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

impl Link {
    pub(super) fn new(server: &Arc<Server>, key: Key, opening: Opening) -> Arc<Link> {
        let changes = server.changes.clone();
        let (signal, signals) = mpsc::unbounded_channel();
        let life = server.life.clone();
        let longest = server.definition.answer_bytes;
        let users = match key.owner {
            Owner::Session(_) => Users::Client,
            Owner::Agent(_) => Users::Agent,
            Owner::Everyone => Users::Everyone,
        };
        let carrier = match &server.definition.reach {
            Reach::Http(remote) if !server.uses_sse() => Transport::Http(http::HttpLink::new(
                server,
                remote.of(key.agent.as_deref()),
                opening,
                key.revision,
                signal,
            )),
            _ => Transport::Child(line_transport::Child::new(
                line_source(server, key.agent.as_deref()),
                opening,
                longest,
                signal,
                life,
                users,
            )),
        };
        let link = Arc::new(Link {
            server: Arc::downgrade(server),
            name: server.name().into(),
            key,
            carrier,
            list: Mutex::default(),
            fetched: watch::Sender::new(0),
            changes,
            busy: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            spoke: AtomicBool::new(false),
            listed: AtomicBool::new(false),
        });
        tokio::spawn(listing::follow(Arc::downgrade(&link), signals));
        link
    }

    pub fn era(&self) -> Era {
        self.key.revision.era()
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether the server has answered here.
    pub(super) fn has_spoken(&self) -> bool {
        self.spoke.load(Ordering::Acquire)
    }

    /// Whether the server has listed its tools here.
    pub(super) fn has_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    pub(crate) fn touch(&self) {
        *self.used.locked() = Instant::now();
    }

    pub(crate) fn idle(&self) -> Duration {
        self.used.locked().elapsed()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Keeps the link from making room for another.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.touch();
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Resolves once the process behind the link has ended, which it does when nobody holds it.
    pub(crate) fn ended(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        match &self.carrier {
            Transport::Child(child) => Some(child.ended()),
            Transport::Http(_) => None,
        }
    }

    /// Starts the server if need be; gives its answer to `initialize` or `server/discover`.
    pub async fn hello(self: &Arc<Self>) -> Result<Message, Unavailable> {
        let _busy = self.busy();
        let answer = match &self.carrier {
            Transport::Child(child) => child.hello().await,
            Transport::Http(link) => link.hello().await,
        };
        let Some(server) = self.server.upgrade() else { return answer };
        match &answer {
            Ok(hello) => {
                if !self.spoke.swap(true, Ordering::AcqRel) {
                    server.greeted(hello, self.era());
                }
                server.eras().speaks(self.era());
            }
            Err(Unavailable::OldTransport) => {
                server.is_sse();
                server.links.remove(self);
            }
            Err(Unavailable::OtherEra) => {
                server.eras().refused(self.era(), Instant::now());
                server.links.remove(self);
            }
            Err(_) => {}
        }
        answer
    }

    fn send(self: &Arc<Self>, outgoing: Outgoing) -> Opened {
        Link::send_on(self.busy(), outgoing)
    }

    pub(super) fn send_on(busy: Busy, outgoing: Outgoing) -> Opened {
        let carrier = match &busy.carrier {
            Transport::Child(child) => Carrier::Child(child.send(&outgoing)),
            Transport::Http(link) => Carrier::Http(Box::new(link.send(outgoing))),
        };
        Opened { era: busy.era(), _busy: busy, carrier }
    }
}

/// Where the messages of a server that is not reached over Streamable HTTP come from.
fn line_source(server: &Server, agent: Option<&str>) -> line_transport::Source {
    let name = server.name();
    let program = match &server.definition.reach {
        Reach::Http(remote) => {
            return line_transport::Source::Sse(name.into(), remote.of(agent));
        }
        Reach::Child(launch) => LineServer::Process(launch.clone()),
        Reach::InMemory(memory) => LineServer::InMemory(name.into(), memory.clone()),
        // The gateway's own server has no connections; one that is opened all the same leads nowhere.
        Reach::Own => LineServer::Process(Launch::nothing(name)),
    };
    line_transport::Source::Program(program, server.spare.clone(), server.withheld.clone())
}
