//! Tickets and grants that several gateways share, in PostgreSQL or Redis.
//!
//! The store has a number that every change increases. A change is made to the tables of this process first, and
//! stored only if the number is still the one that the tables were read at: one statement compares and increases it
//! (`UPDATE … RETURNING`, or a script). Otherwise another gateway was faster: the tables are read again and the change
//! is made again. So one gateway at most redeems a grant.
//!
//! One thread owns the connection, and carries out changes one after another. A caller that goes away interrupts
//! nothing. Changes of other gateways are announced by the store (`LISTEN`, or a subscription), and looked for at
//! intervals in case an announcement was lost.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "remote/without_redis.rs"]
mod redis;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::record;
use super::tables::{Change, Tables};
use crate::lock::LockUnpoisoned;
use crate::opaque_id::Sealer;
use crate::random;

/// The interval at which changes are looked for that were not announced.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Changes that wait; more are refused.
const MAX_WAITING: usize = 4096;
/// Attempts to make a change while other gateways are faster.
const MAX_ATTEMPTS: u32 = 32;
/// The timeout of one operation of the store.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long a gateway that starts waits for the store.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_RETRY: Duration = Duration::from_millis(250);
/// The purpose of the key that is wrapped in the store.
const PURPOSE: &str = "toolward: the shared key of approvals, 1";

/// A secret of the store, from which the keys of approvals are derived.
pub(super) type SharedSecret = [u8; 32];

/// Where tickets and grants are.
enum Engine {
    #[cfg(feature = "postgres")]
    Postgres(postgres::PostgresStore),
    Redis(redis::RedisStore),
}

/// Stored records: those that changed since a number of changes, or all of them.
struct Snapshot {
    count: u64,
    /// The tables are to be replaced.
    is_whole: bool,
    records: Vec<StoredRecord>,
}

/// A record, or the fact that it was removed.
struct StoredRecord {
    kind: RecordKind,
    id: String,
    json: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordKind {
    Ticket,
    Grant,
}

impl RecordKind {
    fn word(self) -> &'static str {
        match self {
            RecordKind::Ticket => "ticket",
            RecordKind::Grant => "grant",
        }
    }

    fn parse(word: &str) -> Option<RecordKind> {
        [RecordKind::Ticket, RecordKind::Grant].into_iter().find(|kind| kind.word() == word)
    }
}

impl Engine {
    fn new(url: &str, ca: Option<&[u8]>, hints: mpsc::Sender<()>) -> Result<Engine, String> {
        if url.starts_with("redis://") || url.starts_with("rediss://") {
            return redis::RedisStore::new(url, hints).map(Engine::Redis);
        }
        if url.starts_with("redis-") || url.starts_with("rediss-") {
            let why = "approvals can be in a single Redis server only: after a failover, a grant that was used could \
                       be there again; use PostgreSQL";
            return Err(why.into());
        }
        #[cfg(feature = "postgres")]
        return postgres::PostgresStore::new(url, ca, hints).map(Engine::Postgres);
        #[cfg(not(feature = "postgres"))]
        {
            let _ = ca;
            Err("this build has no support for PostgreSQL".into())
        }
    }

    /// Prepares the store, and returns its wrapped secret; `first` if it has none.
    async fn open(&mut self, first: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            #[cfg(feature = "postgres")]
            Engine::Postgres(store) => store.open(first).await,
            Engine::Redis(store) => store.open(first).await,
        }
    }

    /// Replaces the wrapped secret, unless another gateway has done so.
    async fn rewrap(&mut self, old: &[u8], new: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            #[cfg(feature = "postgres")]
            Engine::Postgres(store) => store.rewrap(old, new).await,
            Engine::Redis(store) => store.rewrap(old, new).await,
        }
    }

    /// The changes since the tables were read; `None` if nothing changed.
    async fn changes(&mut self, seen: Option<u64>) -> io::Result<Option<Snapshot>> {
        match self {
            #[cfg(feature = "postgres")]
            Engine::Postgres(store) => store.changes(seen).await,
            Engine::Redis(store) => store.changes(seen).await,
        }
    }

    /// Stores records if nothing has changed since. `false`: something has.
    async fn commit(&mut self, seen: u64, records: &[StoredRecord]) -> io::Result<bool> {
        match self {
            #[cfg(feature = "postgres")]
            Engine::Postgres(store) => store.commit(seen, records).await,
            Engine::Redis(store) => store.commit(seen, records).await,
        }
    }

    /// Drops the connection, because a reply may be outstanding.
    async fn disconnect(&mut self) {
        match self {
            #[cfg(feature = "postgres")]
            Engine::Postgres(store) => store.disconnect().await,
            Engine::Redis(store) => store.disconnect(),
        }
    }
}

/// A change of the tables that waits for its turn.
trait Job: Send {
    /// Can be repeated.
    fn run(&mut self, tables: &mut Tables);
    fn finish(self: Box<Self>, outcome: io::Result<()>);
}

struct ChangeJob<C, T, D> {
    change: C,
    value: Option<T>,
    done: D,
}

impl<C, T, D> Job for ChangeJob<C, T, D>
where
    C: FnMut(&mut Tables) -> T + Send,
    T: Send,
    D: FnOnce(io::Result<T>) + Send,
{
    fn run(&mut self, tables: &mut Tables) {
        self.value = Some((self.change)(tables));
    }

    fn finish(self: Box<Self>, outcome: io::Result<()>) {
        let Self { value, done, .. } = *self;
        let lost = || io::Error::other("the change was not made");
        done(outcome.and_then(|()| value.ok_or_else(lost)));
    }
}

/// The shared store, as this process sees it.
pub(super) struct RemoteStore {
    tables: Arc<Mutex<Tables>>,
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl RemoteStore {
    /// Opens the store. `ca` has the certificates of `sslrootcert`.
    pub(super) fn open(
        url: &str,
        ca: Option<&[u8]>,
        sealer: Arc<Sealer>,
        changed: watch::Sender<u64>,
    ) -> io::Result<(RemoteStore, SharedSecret)> {
        // One hint is enough, because everything is read then.
        let (hints, hinted) = mpsc::channel(1);
        let engine = Engine::new(url, ca, hints).map_err(io::Error::other)?;
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let tables: Arc<Mutex<Tables>> = Arc::default();
        let actor = Actor {
            engine,
            tables: tables.clone(),
            seen: None,
            changed,
            sealer,
            wrapped: Vec::new(),
            is_down: false,
        };
        let (opened, opening) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("approvals".into()).spawn(move || {
            runtime.block_on(actor.run(waiting, hinted, opened));
        })?;
        let failed = |_| io::Error::other("the thread of approvals has ended");
        let secret = opening.recv().map_err(failed)??;
        Ok((RemoteStore { tables, jobs }, secret))
    }

    pub(super) fn tables(&self) -> &Mutex<Tables> {
        &self.tables
    }

    /// Makes a change, which may be repeated. `done` gets the outcome.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut Tables) -> T + Send + 'static,
        done: impl FnOnce(io::Result<T>) + Send + 'static,
    ) {
        let job = Box::new(ChangeJob { change, value: None, done });
        if let Err(error) = self.jobs.try_send(job) {
            let why = "too many changes of tickets and grants wait for the store";
            error.into_inner().finish(Err(io::Error::other(why)));
        }
    }
}

/// The owner of the connection.
struct Actor {
    engine: Engine,
    tables: Arc<Mutex<Tables>>,
    /// The number of changes that the tables contain.
    seen: Option<u64>,
    changed: watch::Sender<u64>,
    sealer: Arc<Sealer>,
    /// The secret of the store, wrapped.
    wrapped: Vec<u8>,
    is_down: bool,
}

impl Actor {
    async fn run(
        mut self,
        mut jobs: mpsc::Receiver<Box<dyn Job>>,
        mut hints: mpsc::Receiver<()>,
        opened: std::sync::mpsc::Sender<io::Result<SharedSecret>>,
    ) {
        let secret = self.open().await;
        let is_open = secret.is_ok();
        let _ = opened.send(secret);
        if !is_open {
            return;
        }
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.carry_out(job).await,
                    None => return,
                },
                _ = hints.recv() => drop(self.refresh().await),
                _ = heartbeat.tick() => {
                    if self.refresh().await.is_ok() {
                        self.rewrap().await;
                    }
                }
            }
        }
    }

    /// Connects, with retries, and gets the secret of the store.
    async fn open(&mut self) -> io::Result<SharedSecret> {
        let mut secret = SharedSecret::default();
        random::fill(&mut secret)?;
        let first = self.sealer.wrap(PURPOSE, &secret)?;
        let begun = Instant::now();
        self.wrapped = loop {
            match within(self.engine.open(&first)).await {
                Ok(wrapped) => break wrapped,
                Err(error) if begun.elapsed() >= START_TIMEOUT => return Err(error),
                Err(error) => {
                    if !std::mem::replace(&mut self.is_down, true) {
                        tracing::warn!(target: "approvals", "waiting for the store of approvals: {error}");
                    }
                    self.engine.disconnect().await;
                    tokio::time::sleep(START_RETRY).await;
                }
            }
        };
        self.is_down = false;
        let (secret, _) = self.sealer.unwrap(PURPOSE, &self.wrapped).ok_or_else(|| {
            let why = "the store of approvals belongs to gateways with other `state.keys`";
            io::Error::other(why)
        })?;
        self.refresh().await?;
        secret.try_into().map_err(|_| io::Error::other("the secret of the store is damaged"))
    }

    /// Reads what other gateways have changed.
    async fn refresh(&mut self) -> io::Result<()> {
        let snapshot = match within(self.engine.changes(self.seen)).await {
            Ok(snapshot) => snapshot,
            Err(error) => return Err(self.failed(error).await),
        };
        if std::mem::replace(&mut self.is_down, false) {
            tracing::info!(target: "approvals", "the store of approvals responds again");
        }
        let Some(Snapshot { count, is_whole, records }) = snapshot else { return Ok(()) };
        {
            let mut tables = self.tables.locked();
            if is_whole {
                let memories = tables.take_memories();
                *tables = Tables::default();
                tables.keep_memories(memories);
            }
            records.into_iter().for_each(|record| apply(&mut tables, record));
        }
        self.seen = Some(count);
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        Ok(())
    }

    /// Makes a change and stores it.
    async fn carry_out(&mut self, mut job: Box<dyn Job>) {
        for _ in 0..MAX_ATTEMPTS {
            if let Err(error) = self.refresh().await {
                return job.finish(Err(error));
            }
            let seen = self.seen.unwrap_or(0);
            // Restored if the change cannot be stored: nothing must be assumed that the store does not have.
            let (before, records) = {
                let mut tables = self.tables.locked();
                let before = tables.clone();
                job.run(&mut tables);
                let records = changed_records(&mut tables);
                (before, records)
            };
            if records.is_empty() {
                return job.finish(Ok(()));
            }
            match within(self.engine.commit(seen, &records)).await {
                Ok(true) => {
                    self.seen = Some(seen + 1);
                    self.changed.send_modify(|count| *count = count.wrapping_add(1));
                    return job.finish(Ok(()));
                }
                Ok(false) => *self.tables.locked() = before,
                Err(error) => {
                    *self.tables.locked() = before;
                    // It may have been stored all the same.
                    self.seen = None;
                    let error = self.failed(error).await;
                    return job.finish(Err(error));
                }
            }
        }
        job.finish(Err(io::Error::other("other gateways change tickets and grants all the time")));
    }

    /// Wraps the secret with the first key, if the keys were rotated.
    async fn rewrap(&mut self) {
        let Some((secret, false)) = self.sealer.unwrap(PURPOSE, &self.wrapped) else { return };
        let Ok(wrapped) = self.sealer.wrap(PURPOSE, &secret) else { return };
        match within(self.engine.rewrap(&self.wrapped, &wrapped)).await {
            Ok(current) => self.wrapped = current,
            Err(error) => drop(self.failed(error).await),
        }
    }

    /// Drops the connection, and logs once that the store is down.
    async fn failed(&mut self, error: io::Error) -> io::Error {
        self.engine.disconnect().await;
        if !std::mem::replace(&mut self.is_down, true) {
            tracing::error!(
                target: "approvals",
                "the store of approvals cannot be used: {error}; calls that need approval are refused"
            );
        }
        error
    }
}

/// Limits the time of an operation.
async fn within<T>(operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timed = tokio::time::timeout(TIMEOUT, operation).await;
    timed.unwrap_or_else(|_| Err(io::Error::other("the store does not respond")))
}

/// The records that a change has to store.
fn changed_records(tables: &mut Tables) -> Vec<StoredRecord> {
    let changes = tables.take_changes();
    let stored = |change: Change| {
        let text = |value: Value| value.to_string();
        match change {
            Change::Ticket(id) => StoredRecord {
                kind: RecordKind::Ticket,
                json: tables.ticket(&id).map(record::of_ticket).map(text),
                id,
            },
            Change::Grant(id) => StoredRecord {
                kind: RecordKind::Grant,
                json: tables.grant(&id).map(record::of_grant).map(text),
                id,
            },
        }
    };
    changes.into_iter().map(stored).collect()
}

/// Applies a record of the store. One that cannot be read counts as missing: a grant then permits nothing.
fn apply(tables: &mut Tables, StoredRecord { kind, id, json }: StoredRecord) {
    let Some(json) = json else { return tables.forget(kind == RecordKind::Ticket, &id) };
    let value: Option<Value> = serde_json::from_str(&json).ok();
    let known = match kind {
        RecordKind::Ticket => {
            let ticket = value.as_ref().and_then(record::to_ticket).filter(|one| one.id == id);
            ticket.map(|ticket| tables.put_ticket(ticket))
        }
        RecordKind::Grant => {
            let grant = value.as_ref().and_then(record::to_grant).filter(|one| one.id == id);
            grant.map(|grant| tables.put_grant(grant))
        }
    };
    if known.is_none() {
        tables.forget(kind == RecordKind::Ticket, &id);
        tracing::warn!(target: "approvals", "the {} {id} of the store cannot be read, and is ignored", kind.word());
    }
}
