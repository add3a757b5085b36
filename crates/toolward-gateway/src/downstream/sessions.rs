//! HTTP sessions of legacy clients, found by their sealed session id.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use toolward_wire::{ClientCapabilities, Revision};

use super::ended_sessions::{EndedSessions, LONGEST};
use super::streams::Streams;
use crate::active::Active;
use crate::budget::Reservation;
use crate::client::{Caller, Client, ClientStatement, Outlet, Owner, Scope};
use crate::clock;
use crate::gateway::Gateway;
use crate::in_flight::InFlightRequests;
use crate::lock::LockUnpoisoned;
use crate::methods::initialize;
use crate::opaque_id::{Kind, Sealer};
use crate::random;
use crate::responses::Outbound;
use crate::view::cache::Viewer;

/// The header that carries a session's id.
pub(super) const SESSION_ID: &str = "mcp-session-id";
/// Default idle timeout of a session.
const IDLE: Duration = Duration::from_secs(1800);
/// Maximum number of sessions in one process.
const MOST: usize = 10_000;
/// Maximum number of sessions of one agent, so that no agent can lock out the others.
const MOST_OF_ONE: usize = 1_000;
/// Requests of one session that are in flight at once; more are refused.
pub(super) const MAX_IN_FLIGHT: usize = 256;
/// Memory overhead of a session's notification, and of the session itself.
const OVERHEAD: usize = 128;
const SESSION_BYTES: usize = 2 << 10;

pub(super) struct Sessions {
    sealer: Arc<Sealer>,
    all: Mutex<All>,
    idle: Duration,
    ended: EndedSessions,
}

#[derive(Default)]
struct All {
    live: HashMap<u128, Arc<Session>>,
}

/// A session of one client.
pub(super) struct Session {
    id: u128,
    /// When it began, in seconds since the Unix epoch.
    began: u64,
    pub(super) client: Arc<Viewer>,
    pub(super) running: InFlightRequests,
    /// The memory reserved for the session itself.
    room: Reservation,
    /// When this process created or restored it.
    since: Instant,
    pub(super) streams: Arc<Streams>,
    /// The task that sends `list_changed` notifications.
    feed: OnceLock<AbortHandle>,
}

/// The bits of a session id that contain its protocol version; the client's capabilities follow.
const REVISION_BITS: u8 = 3;

impl Sessions {
    pub(super) fn new(sealer: Arc<Sealer>, idle: Option<Duration>, state: &Path) -> Sessions {
        let ended = EndedSessions::in_directory(state);
        Sessions { sealer, all: Mutex::default(), idle: idle.unwrap_or(IDLE), ended }
    }

    /// The idle timeout of a session.
    pub(super) fn idle_time(&self) -> Duration {
        self.idle
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.locked()
    }

    /// Begins a session. Returns it with the session id for the client.
    pub(super) fn begin(
        &self,
        gateway: &Arc<Gateway>,
        active: &Active,
        (caller, scope): (Caller, Scope),
        initialize: &toolward_wire::Message,
        stated: ClientStatement,
    ) -> io::Result<(Arc<Session>, String)> {
        let id = random::random()?;
        let revision = initialize::revision(initialize);
        let mut payload = id.to_le_bytes().to_vec();
        let began = clock::seconds();
        payload.extend_from_slice(&began.to_le_bytes());
        let mut client = Client::new(caller.clone(), scope, revision, Owner::Session(id));
        client.state(stated);
        let version = Revision::ALL.iter().position(|one| *one == revision).unwrap_or(0) as u8;
        payload.push(version | client.declared.bits() << REVISION_BITS);
        if let Scope::One(id) = scope {
            let server = active.server_by_id(id);
            payload.extend_from_slice(server.map_or("", |server| server.name()).as_bytes());
        }
        let handle = self.sealer.seal(Kind::Session, &caller, LONGEST, &payload)?;
        Ok((self.insert(gateway, (id, began), client)?, handle))
    }

    fn insert(
        &self,
        gateway: &Arc<Gateway>,
        (id, began): (u128, u64),
        mut client: Client,
    ) -> io::Result<Arc<Session>> {
        let stated = [&client.info, &client.capabilities].into_iter().flatten().map(Bytes::len);
        let account = gateway.context.budget.account(client.caller.agent.as_ref());
        let room = account.try_reserve(SESSION_BYTES + stated.sum::<usize>());
        let room = room.ok_or_else(|| io::Error::other("the agent's memory limit is reached"))?;
        let (notes, told) = mpsc::channel::<Outbound>(16);
        client.outlet = Some(Outlet::new(&notes, gateway.client_gate(&client)));
        let revision = client.revision;
        let streams = Streams::new(id, (&client.caller, revision), self.sealer.clone())?;
        let session = Arc::new(Session {
            id,
            began,
            client: Arc::new(Viewer::from(client)),
            running: InFlightRequests::default(),
            room,
            since: Instant::now(),
            streams: Arc::new(streams),
            feed: OnceLock::new(),
        });
        let mut all = self.all();
        let same = |other: &&Arc<Session>| other.client.caller.agent == session.client.caller.agent;
        if all.live.len() >= MOST || all.live.values().filter(same).count() >= MOST_OF_ONE {
            return Err(io::Error::other("there are too many sessions"));
        }
        if let Some(live) = all.live.get(&id) {
            return Ok(live.clone());
        }
        all.live.insert(id, session.clone());
        drop(all);
        session.follow(gateway, notes, told);
        Ok(session)
    }

    /// Finds the session of an id, for the agent that began it. A session that an earlier process began
    /// is restored.
    pub(super) fn find(
        &self,
        gateway: &Arc<Gateway>,
        active: &Active,
        (caller, scope): (&Caller, Scope),
        handle: &str,
    ) -> Option<Arc<Session>> {
        let payload = self.sealer.open(Kind::Session, caller, handle)?;
        let (id, rest) = payload.split_first_chunk::<16>()?;
        let (began, rest) = rest.split_first_chunk::<8>()?;
        let (revision, server) = rest.split_first()?;
        let id = u128::from_le_bytes(*id);
        let sealed_scope = match server {
            [] => Scope::All,
            name => Scope::One(active.server(std::str::from_utf8(name).ok()?)?.id),
        };
        // A session is valid only at the address where it began.
        if sealed_scope != scope {
            return None;
        }
        let live = self.all().live.get(&id).cloned();
        if let Some(session) = live {
            // The server was removed and added again, so its own session is gone.
            if session.client.scope != scope {
                self.end(gateway, &session);
                return None;
            }
            // A server connection of the session was evicted with its state: the client has to initialize
            // again.
            if gateway.context.servers.has_evicted(&session.client.owner) {
                self.end(gateway, &session);
                return None;
            }
            session.streams.touch();
            return Some(session);
        }
        let began = u64::from_le_bytes(*began);
        if self.ended.contains(id, caller.agent.as_deref(), began) {
            return None;
        }
        let declared = ClientCapabilities::from_bits(*revision >> REVISION_BITS);
        let revision = usize::from(*revision & ((1 << REVISION_BITS) - 1));
        let revision = *Revision::ALL.get(revision)?;
        let mut client = Client::new(caller.clone(), scope, revision, Owner::Session(id));
        client.declared = declared;
        self.insert(gateway, (id, began), client).ok()
    }

    /// Ends a session and the server connections that only it used.
    pub(super) fn end(&self, gateway: &Gateway, session: &Session) {
        let mut all = self.all();
        all.live.remove(&session.id);
        drop(all);
        let agent = session.client.caller.agent.as_deref();
        self.ended.add(session.id, agent, session.began + LONGEST);
        session.close();
        let servers = &gateway.active().servers;
        gateway.context.servers.release(servers, &session.client.owner);
    }

    /// Ends idle and overlong sessions, and prunes the streams of the others.
    pub(super) fn sweep(&self, gateway: &Gateway) {
        let idle: Vec<Arc<Session>> = {
            let all = self.all();
            let over = |session: &&Arc<Session>| {
                let used = session.running.count() > 0 || session.streams.are_read();
                if used {
                    session.streams.touch();
                }
                session.streams.idle() >= self.idle || session.since.elapsed().as_secs() >= LONGEST
            };
            all.live.values().filter(over).cloned().collect()
        };
        for session in idle {
            self.end(gateway, &session);
        }
        for session in self.all().live.values() {
            session.streams.prune();
        }
    }

    /// Ends the streams that would never end by themselves, so that their connections can close.
    /// Responses in flight continue.
    pub(super) fn close(&self) {
        for session in self.all().live.values() {
            session.streams.feed.finish();
        }
    }
}

impl Session {
    fn close(&self) {
        if let Some(feed) = self.feed.get() {
            feed.abort();
        }
        self.streams.finish();
    }

    /// Sends notifications that belong to no request to the feed.
    fn follow(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        notes: mpsc::Sender<Outbound>,
        mut changes: mpsc::Receiver<Outbound>,
    ) {
        let log = self.streams.feed.clone();
        let account = self.room.account().clone();
        let follower = gateway.follow_changes(&self.client, notes);
        // Ends when the sending task ends.
        tokio::spawn(async move {
            while let Some(Outbound { body, .. }) = changes.recv().await {
                if let Some(room) = account.try_reserve(body.len() + OVERHEAD) {
                    log.add(body, Some(Arc::new(room)));
                }
            }
        });
        let _ = self.feed.set(follower);
    }
}
