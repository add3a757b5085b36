//! The audit log: every decision and its outcome, one JSON object per line, each with the hash of
//! the previous one.
//!
//! An [`Intent`] is written before a call is forwarded. Its holder ends it with an outcome; an
//! intent that is dropped records `aborted`. If the log cannot be written, nothing is forwarded.
//!
//! | module | contains |
//! |---|---|
//! | [`line`] | the format of a record, and the hash chain |
//! | `batch` | records that are written together, and the tasks that wait for them |
//! | `ids` | ids that sort by time and reveal nothing else |
//! | `intent` | a call in flight, which ends with an outcome |
//! | `writer` | the file: whole lines, rotation, retention, repair |
//! | `outage` | a period in which the log could not be written |
//! | [`segment`] | the files of the log |
//! | `rejected_counter` | rejected requests, which are only counted because anyone can send them |
//! | [`arguments`] | the keyed hash of a call's arguments |
//! | [`redact`] | redaction of a call's arguments |
//! | [`refusals`] | a limit on the records of an agent's refusals |
//! | [`space`] | free disk space |
//! | [`signatures`] | signed heads |
//! | [`sink_state`] | how far behind sinks are, and which segments they still need |
//! | [`read`] | reading and verifying the log |

pub mod arguments;
mod batch;
pub mod facts;
mod ids;
mod intent;
pub mod line;
mod outage;
pub mod read;
pub mod redact;
pub mod refusals;
mod rejected_counter;
pub mod segment;
pub mod signatures;
pub mod sink_state;
pub mod space;
mod writer;

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use toolward_policy::Rate;

use self::arguments::RecordedArguments;
use self::batch::{Batch, Wait};
use self::facts::Facts;
use self::ids::Ids;
use self::line::Lines;
use self::refusals::Refusals;
use self::rejected_counter::RejectedRequests;
use self::segment::Stream;
use self::sink_state::SinkState;
use self::space::Space;
use self::writer::{Head, How, Writer};
use crate::clock::micros;
use crate::lock::LockUnpoisoned;
use crate::metrics::{SLOTS, slot};
use crate::traces;

pub use self::intent::{Intent, Outcome};
pub(crate) use self::rejected_counter::{Source, source};
pub use self::writer::Keep;

/// The configuration of the audit log.
#[derive(Debug, Clone)]
pub struct Setup {
    pub folder: PathBuf,
    /// A record counts as written after fsync, not after the write.
    pub on_disk: bool,
    /// Calls are refused if they cannot be recorded.
    pub required: bool,
    pub keep: Keep,
    pub arguments: RecordedArguments,
    /// The rate up to which refusals and listings of an agent get individual records.
    pub refusals: Rate,
    /// Warn if less disk space than this is free, in bytes.
    pub reserve: u64,
    /// The sinks that read the log.
    pub sinks: Vec<Arc<SinkState>>,
}

impl Setup {
    /// The defaults, for a log in a directory.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Setup {
        let keep =
            Keep { rotate_size: 256 << 20, rotate_age: Duration::from_secs(86_400), retain: None };
        let (on_disk, required, arguments) = (false, true, RecordedArguments::default());
        let (refusals, reserve) = (refusals::DEFAULT, space::DEFAULT);
        let (folder, sinks) = (folder.into(), Vec::new());
        Setup { folder, on_disk, required, keep, arguments, refusals, reserve, sinks }
    }
}

/// How calls are treated, given the state of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// They are recorded.
    Recorded,
    /// The log cannot be written, and calls are refused.
    Refused,
    /// The log cannot be written, and calls are forwarded without a record: `audit.required:
    /// false`.
    Unrecorded,
}

/// The audit log.
pub struct Audit {
    slots: [Mutex<Batch>; SLOTS],
    /// Threads with a scheduled write of records that nothing waits for.
    settling: [AtomicBool; SLOTS],
    /// Calls in flight, by the thread on which they began.
    under_way: [AtomicUsize; SLOTS],
    writer: Mutex<Writer>,
    /// The thread that writes if records must be synced to disk.
    synced: Option<mpsc::Sender<Batch>>,
    required: bool,
    folder: PathBuf,
    ids: Ids,
    /// The size of the latest write if it failed, otherwise 0.
    failed: AtomicUsize,
    pub arguments: RecordedArguments,
    /// The segment of the latest write.
    segment: AtomicU64,
    /// Views whose names are in the log, by segment.
    views: Mutex<HashMap<String, u64>>,
    rejected: RejectedRequests,
    refusals: Refusals,
    space: Space,
    sinks: Vec<Arc<SinkState>>,
    /// Called once everything is written.
    at_close: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

/// How soon a record must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// A task waits for it, and no other record is expected.
    Now,
    /// A task waits for it; others may be written with it.
    Soon,
    /// Nothing waits for it.
    Whenever,
}

/// A build without audit records, for measuring their cost. It warns at startup.
pub const UNRECORDED: bool = cfg!(feature = "unrecorded");

/// Records that nothing waits for are written with the next record, or after this time; so is the
/// head if records come fast. That way a call waits for only one write.
const WRITE_DELAY: Duration = Duration::from_millis(5);

/// How long shutdown waits for the disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of views to remember.
const MAX_VIEWS: usize = 10_000;

/// The audit record could not be written, so the call must not be made.
#[derive(Debug, Clone)]
pub struct NotRecorded(Arc<Error>);

impl From<Error> for NotRecorded {
    fn from(error: Error) -> Self {
        NotRecorded(Arc::new(error))
    }
}

impl std::fmt::Display for NotRecorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the audit record cannot be written: {}", self.0)
    }
}

impl std::error::Error for NotRecorded {}

impl Audit {
    /// Opens the log in a directory, which is created if necessary, readable only by this user.
    pub fn open(setup: Setup) -> Result<Arc<Audit>, NotRecorded> {
        make_directory(&setup.folder)?;
        let ids = Ids::new()?;
        let Setup { folder, keep, required, sinks, .. } = &setup;
        let writer = Writer::open(folder, *keep, *required, &ids)?.with_sinks(sinks.clone());
        let (synced, batches) = mpsc::channel();
        let audit = Arc::new(Audit {
            slots: std::array::from_fn(|_| Mutex::default()),
            settling: std::array::from_fn(|_| AtomicBool::new(false)),
            under_way: std::array::from_fn(|_| AtomicUsize::new(0)),
            writer: Mutex::new(writer),
            synced: setup.on_disk.then_some(synced),
            required: setup.required,
            folder: setup.folder,
            ids,
            failed: AtomicUsize::new(0),
            arguments: setup.arguments,
            segment: AtomicU64::new(0),
            views: Mutex::default(),
            rejected: RejectedRequests::default(),
            refusals: Refusals::new(setup.refusals),
            space: Space::new(setup.reserve),
            sinks: setup.sinks,
            at_close: Mutex::default(),
        });
        if setup.on_disk {
            let audit = Arc::downgrade(&audit);
            std::thread::Builder::new().name("audit".into()).spawn(move || {
                while let (Ok(first), Some(audit)) = (batches.recv(), audit.upgrade()) {
                    audit.sync(first, &batches);
                }
            })?;
        }
        Ok(audit)
    }

    /// The directory of the log.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether calls are refused while the log cannot be written.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// The stream that this process writes.
    pub fn stream(&self) -> Stream {
        lock(&self.writer).stream().clone()
    }

    /// The sinks of the log.
    pub fn sinks(&self) -> &[Arc<SinkState>] {
        &self.sinks
    }

    /// Why calls are refused, if a sink is further behind than its `max_lag`.
    fn behind(&self) -> Option<Error> {
        self.sinks.iter().find_map(|sink| sink.refusal())
    }

    /// An id that sorts by time.
    pub fn id(&self) -> String {
        self.ids.next()
    }

    /// Writes a single record: a listing, a refusal, a start.
    pub async fn record(
        self: &Arc<Self>,
        id: &str,
        kind: &str,
        facts: &Facts,
    ) -> Result<(), NotRecorded> {
        traces::decided(id);
        let written = self.written(id, kind, facts).await;
        if self.required { written } else { Ok(()) }
    }

    /// Adds a record that nothing waits for.
    pub(crate) fn note(self: &Arc<Self>, kind: &str, facts: &Facts) {
        if !UNRECORDED {
            drop(self.push(&self.id(), kind, facts, When::Whenever));
        }
    }

    /// Writes one record: immediately if no other call of this thread is in flight, because then
    /// there is nothing to batch it with.
    async fn written(
        self: &Arc<Self>,
        id: &str,
        kind: &str,
        facts: &Facts,
    ) -> Result<(), NotRecorded> {
        if UNRECORDED {
            return Ok(());
        }
        let under_way = self.under_way.get(slot()).map(|count| count.load(Ordering::Relaxed));
        let alone = under_way.is_some_and(|count| count <= 1);
        self.push(id, kind, facts, if alone { When::Now } else { When::Soon }).await
    }

    /// Adds a record to the next batch.
    fn push(self: &Arc<Self>, id: &str, kind: &str, facts: &Facts, when: When) -> Wait {
        let slot = slot();
        let Some(batch) = self.slots.get(slot) else { return Wait(Arc::default()) };
        let (unscheduled, written) = {
            let mut batch = lock(batch);
            batch.lines.push_as(id, kind, facts, when != When::Whenever);
            batch.awaited |= when != When::Whenever;
            let scheduled = batch.scheduled;
            batch.scheduled |= when == When::Soon;
            (!scheduled, batch.written.clone())
        };
        match when {
            When::Now => self.flush(slot, Head::Soon),
            When::Soon if unscheduled => self.flush_soon(slot),
            When::Soon | When::Whenever => {}
        }
        self.settle(slot);
        Wait(written)
    }

    /// Schedules a write of the records that a thread leaves behind, and of the head.
    fn settle(self: &Arc<Self>, slot: usize) {
        if self.settling.get(slot).is_none_or(|settling| settling.swap(true, Ordering::Relaxed)) {
            return;
        }
        let settling = Settling { audit: self.clone(), slot };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(WRITE_DELAY).await;
                drop(settling);
            });
        }
    }

    /// Writes a thread's batch after everything that is ready now has added to it.
    fn flush_soon(self: &Arc<Self>, slot: usize) {
        let audit = self.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { audit.flush(slot, Head::Soon) })),
            Err(_) => self.flush(slot, Head::Soon),
        }
    }

    /// Writes a thread's batch.
    fn flush(self: &Arc<Self>, slot: usize, head: Head) {
        let Some(batch) = self.slots.get(slot).map(|batch| std::mem::take(&mut *lock(batch)))
        else {
            return;
        };
        if batch.lines.is_empty() {
            // With sync, the head was written together with the records.
            if head == Head::Written && self.synced.is_none() {
                lock(&self.writer).write_head(micros());
            }
            return;
        }
        match &self.synced {
            None => {
                batch.written.set(self.write(&batch.lines, batch.awaited, head));
                let room = batch.lines.reuse();
                if let Some(slot) = self.slots.get(slot).map(lock).filter(|s| s.lines.is_empty()) {
                    let mut slot = slot;
                    slot.lines = room;
                }
            }
            Some(synced) => {
                if let Err(mpsc::SendError(batch)) = synced.send(batch) {
                    batch.written.set(Err(Error::from(ErrorKind::BrokenPipe).into()));
                }
            }
        }
    }

    fn write(&self, lines: &Lines, awaited: bool, head: Head) -> Result<(), NotRecorded> {
        let how = How { awaited, head, room: 0, on_disk: false };
        let written = lock(&self.writer).write(lines, how, &self.ids);
        self.noted(written, lines.bytes())
    }

    /// Writes all waiting batches together, with one fsync.
    fn sync(&self, first: Batch, others: &mpsc::Receiver<Batch>) {
        let mut batches = vec![first.written];
        let mut lines = first.lines;
        for batch in others.try_iter() {
            lines.append(&batch.lines);
            batches.push(batch.written);
        }
        let how = How { awaited: true, head: Head::Written, room: 0, on_disk: true };
        let written = lock(&self.writer).write(&lines, how, &self.ids);
        let written = self.noted(written, lines.bytes());
        batches.into_iter().for_each(|batch| batch.set(written.clone()));
    }

    /// Logs when writing fails, and when it works again.
    fn noted(&self, written: std::io::Result<()>, bytes: usize) -> Result<(), NotRecorded> {
        let written = written.map_err(NotRecorded::from);
        let failed = if written.is_err() { bytes.max(1) } else { 0 };
        if (self.failed.swap(failed, Ordering::AcqRel) > 0) != written.is_err() {
            match (&written, self.required) {
                (Err(error), true) => tracing::error!(
                    target: "audit",
                    "{error}; calls are refused until it can be written"
                ),
                (Err(error), false) => tracing::error!(
                    target: "audit",
                    "{error}; calls are forwarded without a record (`audit.required: false`)"
                ),
                (Ok(()), _) => {
                    tracing::info!(target: "audit", "the audit log can be written again")
                }
            }
        }
        written
    }

    /// Whether calls are made: they are recorded, or need not be.
    pub async fn accepts(self: &Arc<Self>) -> bool {
        self.recording().await != Recording::Refused
    }

    /// Whether calls are recorded. After a failed write, tries to write a record of the same
    /// length; if that works, the log gets a record of the outage.
    pub async fn recording(self: &Arc<Self>) -> Recording {
        if self.behind().is_some() {
            return Recording::Refused;
        }
        let failed = self.failed.load(Ordering::Acquire);
        if failed == 0 {
            return Recording::Recorded;
        }
        let how = How {
            awaited: true,
            head: Head::Written,
            room: failed.min(64 << 10),
            on_disk: self.synced.is_some(),
        };
        let written = lock(&self.writer).write(&Lines::default(), how, &self.ids);
        match (self.noted(written, failed), self.required) {
            (Ok(()), _) => Recording::Recorded,
            (Err(_), true) => Recording::Refused,
            (Err(_), false) => Recording::Unrecorded,
        }
    }

    /// The segment that is written to, as far as is known without waiting for the disk.
    fn segment(&self) -> u64 {
        if let Ok(mut writer) = self.writer.try_lock() {
            self.segment.store(writer.segment(&self.ids), Ordering::Relaxed);
        }
        self.segment.load(Ordering::Relaxed)
    }

    /// Records a listing. `names` are written once per segment and view id.
    pub async fn listing(
        self: &Arc<Self>,
        agent: Option<&Arc<str>>,
        view: &str,
        names: impl Fn() -> String,
        mut facts: Facts,
    ) -> Result<(), NotRecorded> {
        // Segments are deleted when they expire, so each one contains the names of its views.
        let segment = self.segment();
        let new = lock(&self.views).get(view) != Some(&segment);
        if new {
            facts.json("names", &names());
        }
        let ticket = self.ticket(agent);
        self.record_ticket(&ticket, "list", "", &facts).await?;
        if new && !ticket.is_counted() {
            let mut views = lock(&self.views);
            // Writing names twice is harmless.
            if views.len() >= MAX_VIEWS {
                views.clear();
            }
            views.insert(view.into(), segment);
        }
        Ok(())
    }

    /// Writes the intent of a call. Without it, nothing is forwarded.
    pub(crate) async fn intend(
        self: &Arc<Self>,
        id: String,
        facts: &Facts,
    ) -> Result<Intent, NotRecorded> {
        if let Some(error) = self.behind() {
            return Err(error.into());
        }
        // If the caller gives up while the intent is written, the outcome is recorded too.
        traces::decided(&id);
        let (begun, slot) = (Instant::now(), slot());
        let mut intent = Intent { audit: self.clone(), id, begun, slot, ended: false };
        if let Some(count) = self.under_way.get(slot) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let written = self.written(&intent.id, "intent", facts).await;
        // An intent that was not recorded gets no outcome.
        intent.ended = written.is_err();
        match written {
            Err(error) if self.required => Err(error),
            _ => Ok(intent),
        }
    }

    /// Counts a request that was rejected before authentication.
    pub fn turned_away(self: &Arc<Self>, source: &str, why: &'static str) {
        self.turn_away(Source::Place(source.into()), why);
    }

    /// Counts a rejected request that has no record of its own.
    pub(crate) fn turn_away(self: &Arc<Self>, source: Source, why: &'static str) {
        if self.rejected.count(source, why) {
            let audit = self.clone();
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                tokio::time::sleep(rejected_counter::SPAN).await;
                audit.push_rejected();
            });
        }
    }

    fn push_rejected(self: &Arc<Self>) {
        for facts in self.rejected.take() {
            drop(self.push(&self.id(), "turned-away", &facts, When::Whenever));
        }
    }

    /// Writes everything that is pending, and the `stop` record.
    pub fn close(self: &Arc<Self>) {
        self.push_rejected();
        self.push_refusals();
        (0..SLOTS).for_each(|slot| self.flush(slot, Head::Written));
        // The `stop` record is the last one, and the head must include it.
        lock(&self.writer).look();
        let Wait(stop) = self.push(&self.id(), "stop", &Facts::default(), When::Whenever);
        self.flush(slot(), Head::Written);
        // With sync, another thread writes: wait for it.
        let begun = Instant::now();
        while !stop.is_known() && begun.elapsed() < CLOSE_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after: Vec<_> = std::mem::take(&mut *lock(&self.at_close));
        after.into_iter().for_each(|call| call());
    }

    /// Calls a function after the last record was written.
    pub fn at_close(&self, call: impl FnOnce() + Send + 'static) {
        lock(&self.at_close).push(Box::new(call));
    }
}

/// A scheduled write of a thread's records. It is done on drop, even if the thread's runtime ends
/// first.
struct Settling {
    audit: Arc<Audit>,
    slot: usize,
}

impl Drop for Settling {
    fn drop(&mut self) {
        if let Some(settling) = self.audit.settling.get(self.slot) {
            settling.store(false, Ordering::Relaxed);
        }
        self.audit.flush(self.slot, Head::Written);
        self.audit.look_at_space();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.locked()
}

fn make_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| {
        let at = directory.display();
        let there = directory.symlink_metadata().is_ok_and(|_| !directory.is_dir());
        Error::other(match there {
            true => format!("{at} is not a directory: move it away or use another path"),
            false => format!("the directory {at} cannot be created: {error}"),
        })
    })
}
