//! Sessions over HTTP: what a client of the era with sessions holds by its sealed id.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use toolward_wire::{Raw, Revision, sse};

use super::events::{EventLog, KEPT_BYTES};
use crate::client::{Caller, Client, Owner, Scope};
use crate::hello;
use crate::pipeline::Gateway;
use crate::present::Body;
use crate::sealed::{self, Kind, Sealer};
use crate::session::Running;

/// A session that nobody uses for so long ends.
const IDLE: Duration = Duration::from_secs(1800);
/// No session lasts longer, whatever happens.
const LONGEST: u64 = 86_400;
/// Sessions that one process holds.
const MOST: usize = 10_000;
/// Sessions of one agent, so that none keeps the others out.
const MOST_OF_ONE: usize = 1_000;
/// So many ended sessions are remembered by name; then all that began before now have ended.
const MOST_ENDED: usize = 100_000;
/// How long a client waits before it takes up a stream again.
const RETRY_MS: u64 = 1000;

pub(super) struct Sessions {
    sealer: Arc<Sealer>,
    all: Mutex<All>,
    idle: Duration,
    /// Where ended sessions are written down, so that they stay ended after a restart.
    ended: PathBuf,
}

#[derive(Default)]
struct All {
    live: HashMap<u128, Arc<Session>>,
    ended: HashSet<u128>,
    /// Sessions that began before this second have ended, where they are not live.
    not_before: u64,
}

/// A session of one client.
pub(super) struct Session {
    id: u128,
    pub(super) client: Arc<Client>,
    pub(super) running: Running,
    /// Since when this process has it, and when it was used last.
    since: Instant,
    used: Mutex<Instant>,
    streams: Mutex<Streams>,
    /// The task that tells of changes.
    feed: OnceLock<AbortHandle>,
    sealer: Arc<Sealer>,
}

#[derive(Default)]
struct Streams {
    logs: HashMap<u32, Arc<EventLog>>,
    next: u32,
}

/// The stream of what belongs to no request.
const FEED: u32 = 0;

impl Sessions {
    pub(super) fn new(sealer: Arc<Sealer>, idle: Option<Duration>, state: &Path) -> Sessions {
        let ended = state.join("ended-sessions");
        let all = All { ended: read_ended(&ended), ..All::default() };
        Sessions { sealer, all: Mutex::new(all), idle: idle.unwrap_or(IDLE), ended }
    }

    /// How long a session may be idle.
    pub(super) fn idle_time(&self) -> Duration {
        self.idle
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins: gives it and the id that the client gets.
    pub(super) fn begin(
        &self,
        gateway: &Arc<Gateway>,
        caller: Caller,
        scope: Scope,
        initialize: &toolward_wire::Message,
    ) -> io::Result<(Arc<Session>, String)> {
        let id = sealed::random()?;
        let revision = hello::revision(initialize);
        let mut payload = id.to_le_bytes().to_vec();
        payload.extend_from_slice(&sealed::now().to_le_bytes());
        payload.push(Revision::ALL.iter().position(|one| *one == revision).unwrap_or(0) as u8);
        if let Scope::One(index) = scope {
            let servers = gateway.servers.all();
            let server = servers.iter().find(|server| server.index == index);
            payload.extend_from_slice(server.map_or("", |server| server.name()).as_bytes());
        }
        let handle = self.sealer.seal(Kind::Session, &caller, LONGEST, &payload)?;
        let mut client = Client::new(caller, scope, revision, Owner::Session(id));
        let info = initialize.param("clientInfo").filter(|raw| raw.is_object());
        client.info = info.map(|raw| Bytes::copy_from_slice(Raw::bytes(raw)));
        let stated = initialize.param("capabilities").filter(|raw| raw.is_object());
        client.capabilities = stated.map(|raw| Bytes::copy_from_slice(Raw::bytes(raw)));
        Ok((self.insert(gateway, id, client)?, handle))
    }

    fn insert(&self, gateway: &Arc<Gateway>, id: u128, client: Client) -> io::Result<Arc<Session>> {
        let session = Arc::new(Session {
            id,
            client: Arc::new(client),
            running: Running::default(),
            since: Instant::now(),
            used: Mutex::new(Instant::now()),
            streams: Mutex::new(Streams { logs: HashMap::new(), next: FEED + 1 }),
            feed: OnceLock::new(),
            sealer: self.sealer.clone(),
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
        session.follow(gateway);
        Ok(session)
    }

    /// The session behind an id, for the agent that began it. One that an earlier process began is
    /// taken up again.
    pub(super) fn find(
        &self,
        gateway: &Arc<Gateway>,
        caller: &Caller,
        scope: Scope,
        handle: &str,
    ) -> Option<Arc<Session>> {
        let payload = self.sealer.open(Kind::Session, caller, handle)?;
        let (id, rest) = payload.split_first_chunk::<16>()?;
        let (began, rest) = rest.split_first_chunk::<8>()?;
        let (revision, server) = rest.split_first()?;
        let id = u128::from_le_bytes(*id);
        let sealed_scope = match server {
            [] => Scope::All,
            name => {
                let snapshot = gateway.current.get();
                Scope::One(snapshot.server(std::str::from_utf8(name).ok()?)?.index)
            }
        };
        // A session belongs to the address where it began.
        if sealed_scope != scope {
            return None;
        }
        let all = self.all();
        if let Some(session) = all.live.get(&id) {
            session.touch();
            return Some(session.clone());
        }
        let over = all.ended.contains(&id) || u64::from_le_bytes(*began) < all.not_before;
        drop(all);
        if over {
            return None;
        }
        let revision = *Revision::ALL.get(usize::from(*revision))?;
        let client = Client::new(caller.clone(), scope, revision, Owner::Session(id));
        self.insert(gateway, id, client).ok()
    }

    /// Ends a session, and with it the links that only it used.
    pub(super) fn end(&self, gateway: &Gateway, session: &Session) {
        let mut all = self.all();
        all.live.remove(&session.id);
        if all.ended.len() >= MOST_ENDED {
            all.ended.clear();
            all.not_before = sealed::now() + 1;
        }
        all.ended.insert(session.id);
        drop(all);
        let until = sealed::now() + LONGEST;
        let line = format!("{:032x} {until}\n", session.id);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.ended);
        // Where it cannot be written, the session is over for as long as this process lives.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        session.close();
        gateway.servers.release(&session.client.owner);
    }

    /// Ends what nobody used for a while.
    pub(super) fn sweep(&self, gateway: &Gateway) {
        let idle: Vec<Arc<Session>> = {
            let all = self.all();
            let over = |session: &&Arc<Session>| {
                let used = session.running.count() > 0 || session.is_listened_to();
                if used {
                    session.touch();
                }
                session.idle() >= self.idle || session.since.elapsed().as_secs() >= LONGEST
            };
            all.live.values().filter(over).cloned().collect()
        };
        for session in idle {
            self.end(gateway, &session);
        }
        for session in self.all().live.values() {
            session.prune();
        }
    }

    /// Ends the streams that would never end, so that their connections can close; answers that are
    /// under way go on.
    pub(super) fn close(&self) {
        for session in self.all().live.values() {
            if let Some(feed) = session.streams().logs.get(&FEED) {
                feed.finish();
            }
        }
    }
}

/// Sessions that ended under an earlier process and would still be valid.
fn read_ended(path: &Path) -> HashSet<u128> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let now = sealed::now();
    let valid = |line: &str| {
        let (id, until) = line.split_once(' ')?;
        let until: u64 = until.parse().ok()?;
        (until > now).then(|| u128::from_str_radix(id, 16).ok()).flatten()
    };
    let ended: HashSet<u128> = text.lines().filter_map(valid).collect();
    if ended.is_empty() && !text.is_empty() {
        let _ = std::fs::remove_file(path);
    }
    ended
}

impl Session {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether a client reads one of its streams.
    fn is_listened_to(&self) -> bool {
        self.streams().logs.values().any(|log| log.is_read())
    }

    fn idle(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn close(&self) {
        if let Some(feed) = self.feed.get() {
            feed.abort();
        }
        for log in self.streams().logs.values() {
            log.finish();
        }
    }

    /// What the client is told beside its requests goes to the feed.
    fn follow(self: &Arc<Self>, gateway: &Arc<Gateway>) {
        let (notes, mut told) = mpsc::channel::<Body>(16);
        let log = Arc::new(EventLog::default());
        self.streams().logs.insert(FEED, log.clone());
        let follower = gateway.follow_changes(&self.client, notes);
        // It ends with the task that tells.
        tokio::spawn(async move {
            while let Some(body) = told.recv().await {
                log.add(body.whole());
            }
        });
        let _ = self.feed.set(follower);
    }

    /// A new stream for the answer to a request.
    pub(super) fn stream(&self) -> (u32, Arc<EventLog>) {
        let mut streams = self.streams();
        let number = streams.next;
        streams.next = streams.next.checked_add(1).unwrap_or(FEED + 1);
        let log = Arc::new(EventLog::default());
        streams.logs.insert(number, log.clone());
        (number, log)
    }

    /// Reads a stream from an event on.
    pub(super) fn read(
        self: &Arc<Self>,
        stream: u32,
        log: &Arc<EventLog>,
        from: u64,
    ) -> mpsc::Receiver<Bytes> {
        // Older clients take an event without data for a broken message.
        let primer = self.client.revision >= Revision::R2025_11_25;
        let session = self.clone();
        log.read(from, primer, move |number, message| {
            let id = session.event_id(stream, number)?;
            let mut out = Vec::new();
            match message {
                Some(message) => sse::encode(None, Some(&id), message, &mut out),
                None => sse::encode_primer(&id, Some(RETRY_MS), &mut out),
            }
            session.touch();
            Some(out)
        })
    }

    /// The feed, or the stream that an event id of this session names.
    pub(super) fn resume(self: &Arc<Self>, last: Option<&str>) -> Option<mpsc::Receiver<Bytes>> {
        let (stream, from) = match last {
            None => (FEED, None),
            Some(handle) => {
                let payload = self.sealer.open(Kind::Event, &self.client.caller, handle)?;
                let (id, rest) = payload.split_first_chunk::<16>()?;
                let (stream, number) = rest.split_first_chunk::<4>()?;
                let number = number.first_chunk::<8>()?;
                if u128::from_le_bytes(*id) != self.id {
                    return None;
                }
                (u32::from_le_bytes(*stream), Some(u64::from_le_bytes(*number)))
            }
        };
        let log = self.streams().logs.get(&stream)?.clone();
        let from = from.unwrap_or_else(|| log.unread());
        Some(self.read(stream, &log, from))
    }

    fn event_id(&self, stream: u32, number: u64) -> Option<String> {
        let mut payload = self.id.to_le_bytes().to_vec();
        payload.extend_from_slice(&stream.to_le_bytes());
        payload.extend_from_slice(&number.to_le_bytes());
        self.sealer.seal(Kind::Event, &self.client.caller, LONGEST, &payload).ok()
    }

    /// Forgets streams that are over and old, and the oldest of them where there is too much.
    pub(super) fn prune(&self) {
        let mut streams = self.streams();
        let mut kept = 0;
        let mut numbers: Vec<u32> = streams.logs.keys().copied().collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        for number in numbers {
            let Some(log) = streams.logs.get(&number) else { continue };
            let (bytes, readable) = log.prune();
            kept += bytes;
            if !readable || (number != FEED && log.is_done() && kept > KEPT_BYTES) {
                streams.logs.remove(&number);
                kept -= bytes;
            }
        }
    }
}
