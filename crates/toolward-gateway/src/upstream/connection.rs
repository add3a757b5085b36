//! One connection to a server.

mod listing;
mod log_level;
pub(crate) mod subscriptions;
pub(crate) mod tasks;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use toolward_wire::{ClientCapabilities, Era, Message};

use self::listing::CachedList;
pub use self::listing::Listed;
use self::log_level::ConnectionLogLevel;
use self::subscriptions::Subscriptions;
use super::handshake::Opening;
use super::transport::line_server::LineServer;
use super::transport::line_session::Users;
use super::transport::{Signals, http, line_transport};
use super::{Carrier, Changes, Key, Launch, Opened, Reach, Server, Unavailable};
use crate::client::Owner;
use crate::lock::LockUnpoisoned;
use crate::permit::Outgoing;

pub struct ServerConnection {
    server: Weak<Server>,
    name: Box<str>,
    key: Key,
    carrier: Transport,
    /// The server's lists, by kind.
    lists: [CachedList; 4],
    subscriptions: Subscriptions,
    log_level: ConnectionLogLevel,
    changes: Changes,
    busy: AtomicUsize,
    used: Mutex<Instant>,
    /// The server has responded on this connection, and has sent a list on it.
    spoke: AtomicBool,
    listed: AtomicBool,
    /// The task that reads the transport's signals.
    follower: AbortHandle,
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

enum Transport {
    Child(line_transport::Child),
    Http(Arc<http::HttpSession>),
}

/// A connection in use while this value lives.
pub(crate) struct Busy(Arc<ServerConnection>);

impl Deref for Busy {
    type Target = Arc<ServerConnection>;

    fn deref(&self) -> &Arc<ServerConnection> {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

impl ServerConnection {
    /// `sharing`: a connection whose process is used by this one, too.
    pub(super) fn new(
        server: &Arc<Server>,
        key: Key,
        opening: Opening,
        sharing: Option<&ServerConnection>,
    ) -> Arc<ServerConnection> {
        let changes = server.changes.clone();
        let signal = Signals::default();
        let life = server.life.clone();
        let longest = server.definition.answer_bytes;
        let users = match key.owner {
            Owner::Session(_) => Users::Client,
            Owner::Agent(_) => Users::Agent,
            Owner::Everyone => Users::Everyone,
        };
        let carrier = match &server.definition.reach {
            _ if let Some(child) = sharing.and_then(ServerConnection::child) => {
                Transport::Child(child.clone())
            }
            Reach::Http(remote) if !server.uses_sse() => Transport::Http(http::HttpSession::new(
                server,
                remote.of(key.agent.as_deref(), key.holder.as_ref()),
                opening,
                key.revision,
                signal,
            )),
            _ => Transport::Child(line_transport::Child::new(
                line_source(server, &key),
                opening,
                longest,
                signal,
                life,
                users,
            )),
        };
        let signals = match &carrier {
            Transport::Child(child) => child.signals().subscribe(),
            Transport::Http(session) => session.signals().subscribe(),
        };
        Arc::new_cyclic(|own| ServerConnection {
            server: Arc::downgrade(server),
            name: server.name().into(),
            key,
            carrier,
            lists: Default::default(),
            subscriptions: Subscriptions::default(),
            log_level: ConnectionLogLevel::default(),
            changes,
            busy: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            spoke: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            follower: tokio::spawn(listing::follow(own.clone(), signals)).abort_handle(),
        })
    }

    fn child(&self) -> Option<&line_transport::Child> {
        match &self.carrier {
            Transport::Child(child) => Some(child),
            Transport::Http(_) => None,
        }
    }

    pub fn era(&self) -> Era {
        self.key.revision.era()
    }

    /// Whether the server responds with streams. A legacy server on stdio would over HTTP: its SDK does unless it is
    /// configured otherwise.
    pub(crate) fn streams(&self) -> bool {
        match &self.carrier {
            Transport::Child(_) => self.era() == Era::Legacy,
            Transport::Http(session) => session.streams(),
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether the server has responded on this connection.
    pub(super) fn has_spoken(&self) -> bool {
        self.spoke.load(Ordering::Acquire)
    }

    /// Whether the server has sent a list on this connection.
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

    /// Whether another call uses the connection, beside the one that asks.
    pub(super) fn is_used_by_others(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 1
    }

    /// Whether the connection carries one call at a time: all requests of an agent without sessions share it, and the
    /// server may ask something.
    pub(super) fn runs_one_call(&self) -> bool {
        let is_line = matches!(self.carrier, Transport::Child(_));
        let is_agents = matches!(self.key.owner, Owner::Agent(_));
        is_line && is_agents && self.key.declared != ClientCapabilities::NONE
    }

    /// Marks the connection as in use, which protects it from eviction.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.touch();
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Resolves once the process of the connection has ended, which happens when the last handle is
    /// dropped.
    pub(crate) fn ended(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.child().map(line_transport::Child::ended)
    }

    /// Starts the server if necessary; returns its response to `initialize` or `server/discover`.
    pub async fn hello(self: &Arc<Self>) -> Result<Message, Unavailable> {
        let _busy = self.busy();
        let answer = match &self.carrier {
            Transport::Child(child) => child.hello().await,
            Transport::Http(connection) => connection.hello().await,
        };
        let Some(server) = self.server.upgrade() else { return answer };
        match &answer {
            Ok(hello) => {
                if !self.spoke.swap(true, Ordering::AcqRel) {
                    server.greeted(hello, self.era());
                }
                server.speaks(self.era());
            }
            Err(Unavailable::OldTransport) => {
                server.is_sse();
                server.connections.remove(self);
            }
            Err(Unavailable::OtherEra) => {
                server.refuses(self.era());
                server.connections.remove(self);
            }
            Err(Unavailable::Unclear) => server.ends_in(self.era()),
            Err(Unavailable::Taken) => server.connections.remove(self),
            Err(_) => {}
        }
        answer
    }

    fn send(self: &Arc<Self>, outgoing: Outgoing) -> Opened {
        ServerConnection::send_on(self.busy(), outgoing)
    }

    pub(super) fn send_on(busy: Busy, outgoing: Outgoing) -> Opened {
        let carrier = match &busy.carrier {
            Transport::Child(child) => Carrier::Child(child.send(&outgoing)),
            Transport::Http(connection) => Carrier::Http(Box::new(connection.send(outgoing))),
        };
        Opened { era: busy.era(), busy, carrier, original: None }
    }
}

/// The source of messages of a server that does not use Streamable HTTP.
fn line_source(server: &Server, key: &Key) -> line_transport::Source {
    let name = server.name();
    let program = match &server.definition.reach {
        Reach::Http(remote) => {
            let remote = remote.of(key.agent.as_deref(), key.holder.as_ref());
            return line_transport::Source::Sse(name.into(), remote);
        }
        Reach::Child(launch) => LineServer::Process(launch.clone()),
        Reach::InMemory(memory) => LineServer::InMemory(name.into(), memory.clone()),
        // The built-in server needs no connection; if one is opened nevertheless, it cannot be
        // started.
        Reach::Own => LineServer::Process(Launch::nothing(name)),
    };
    line_transport::Source::Program(program, server.spare.clone(), server.withheld.clone())
}
