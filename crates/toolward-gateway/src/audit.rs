//! The record of what was decided and what came of it: one JSON object a line, each with the hash of
//! the one before it.
//!
//! An [`Intent`] is written before a call is forwarded. Whoever holds it ends it with an outcome; one
//! that is dropped records `aborted`. Where nothing can be written, nothing is forwarded.
//!
//! | part | is |
//! |---|---|
//! | [`line`] | a record as it is written, and the chain of hashes |
//! | `batch` | records that are written together, and who waits for them |
//! | `ids` | ids that sort by time and tell nothing else |
//! | `intent` | a call under way, which ends with an outcome |
//! | `writer` | the file: whole lines, rotation, retention, repair |
//! | `outage` | a time in which nothing could be written |
//! | [`segment`] | where records lie |
//! | `crowd` | requests that are counted, because anyone can send them |
//! | [`arguments`] | the keyed hash of a call's arguments |
//! | [`redact`] | what of a call's arguments is recorded |
//! | [`refusals`] | a limit on the records of an agent's refusals |
//! | [`space`] | the free space on the disk |
//! | [`read`] | records read back: whether they are whole, and one by one |

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
use self::rejected_counter::Crowd;
use self::space::Space;
use self::writer::{Head, How, Writer};
use crate::clock::micros;
use crate::lock::LockUnpoisoned;
use crate::metrics::{SLOTS, slot};

pub use self::intent::{Intent, Outcome};
pub(crate) use self::rejected_counter::{Source, source};
pub use self::writer::Keep;

/// How the record is kept.
#[derive(Debug, Clone)]
pub struct Setup {
    pub folder: PathBuf,
    /// A record counts as written when the disk has it, not already when the kernel has it.
    pub on_disk: bool,
    /// Without a record nothing happens.
    pub required: bool,
    pub keep: Keep,
    pub arguments: RecordedArguments,
    /// How many refusals and listings of an agent are recorded one by one.
    pub refusals: Rate,
    /// Free bytes of the disk below which there is a warning.
    pub reserve: u64,
}

impl Setup {
    /// The record of a folder, as it is kept unless something else is said.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Setup {
        let keep =
            Keep { rotate_size: 256 << 20, rotate_age: Duration::from_secs(86_400), retain: None };
        let (on_disk, required, arguments) = (false, true, RecordedArguments::default());
        let (refusals, reserve) = (refusals::DEFAULT, space::DEFAULT);
        Setup { folder: folder.into(), on_disk, required, keep, arguments, refusals, reserve }
    }
}

/// What becomes of calls, given the state of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// They are recorded.
    Recorded,
    /// The log cannot be written, and calls are refused.
    Refused,
    /// The log cannot be written, and calls are forwarded without a record: `audit.required: false`.
    Unrecorded,
}

/// Where records go.
pub struct Audit {
    slots: [Mutex<Batch>; SLOTS],
    /// Threads that are about to write what nothing waits for.
    settling: [AtomicBool; SLOTS],
    /// Calls under way, by the thread on which they began.
    under_way: [AtomicUsize; SLOTS],
    writer: Mutex<Writer>,
    /// Who writes where the disk is waited for.
    synced: Option<mpsc::Sender<Batch>>,
    required: bool,
    folder: PathBuf,
    ids: Ids,
    /// How long the latest write was, where it failed.
    failed: AtomicUsize,
    pub arguments: RecordedArguments,
    /// The segment that was written to last.
    segment: AtomicU64,
    /// Views whose names the record has, and in which segment.
    views: Mutex<HashMap<String, u64>>,
    crowd: Crowd,
    refusals: Refusals,
    space: Space,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

/// How soon a record is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Something waits for it, and for nothing else.
    Now,
    /// Something waits for it, together with others.
    Soon,
    /// Nothing waits for it.
    Whenever,
}

/// A build that only measures what the record costs, and says so at its start.
pub const UNRECORDED: bool = cfg!(feature = "unrecorded");

/// What nothing waits for is written with the next record, or so much later; and the head, where
/// records come fast. A call waits for one write.
const LATER: Duration = Duration::from_millis(5);

/// How long the end of a process waits for the disk.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// So many views are remembered.
const MOST_VIEWS: usize = 10_000;

/// The record could not be written, so that nothing may happen.
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
    /// Opens the record in a folder, which is made if need be. Only this user can read it.
    pub fn open(setup: Setup) -> Result<Arc<Audit>, NotRecorded> {
        make_directory(&setup.folder)?;
        let ids = Ids::new()?;
        let Setup { folder, keep, required, .. } = &setup;
        let writer = Writer::open(folder, *keep, *required, &ids)?;
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
            crowd: Crowd::default(),
            refusals: Refusals::new(setup.refusals),
            space: Space::new(setup.reserve),
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

    /// An id that sorts by time.
    pub fn id(&self) -> String {
        self.ids.next()
    }

    /// Writes one record of its own: a listing, a refusal, a start.
    pub async fn record(
        self: &Arc<Self>,
        id: &str,
        kind: &str,
        facts: &Facts,
    ) -> Result<(), NotRecorded> {
        let written = self.written(id, kind, facts).await;
        if self.required { written } else { Ok(()) }
    }

    /// Writes one record, at once where nobody else on this thread is at work: then there is nothing
    /// to wait for.
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

    /// Puts a record with those that are written next.
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

    /// Sees to it that what a thread leaves is written in a moment, and the head.
    fn settle(self: &Arc<Self>, slot: usize) {
        if self.settling.get(slot).is_none_or(|settling| settling.swap(true, Ordering::Relaxed)) {
            return;
        }
        let settling = Settling { audit: self.clone(), slot };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(LATER).await;
                drop(settling);
            });
        }
    }

    /// Writes what a thread has collected when everything that is ready now has added to it.
    fn flush_soon(self: &Arc<Self>, slot: usize) {
        let audit = self.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { audit.flush(slot, Head::Soon) })),
            Err(_) => self.flush(slot, Head::Soon),
        }
    }

    /// Writes what a thread has collected.
    fn flush(self: &Arc<Self>, slot: usize, head: Head) {
        let Some(batch) = self.slots.get(slot).map(|batch| std::mem::take(&mut *lock(batch)))
        else {
            return;
        };
        if batch.lines.is_empty() {
            // Whoever waits for the disk has written it there and then.
            if head == Head::Written && self.synced.is_none() {
                lock(&self.writer).write_head(micros());
            }
            return;
        }
        match &self.synced {
            None => {
                batch.written.tell(self.write(&batch.lines, batch.awaited, head));
                let room = batch.lines.reuse();
                if let Some(slot) = self.slots.get(slot).map(lock).filter(|s| s.lines.is_empty()) {
                    let mut slot = slot;
                    slot.lines = room;
                }
            }
            Some(synced) => {
                if let Err(mpsc::SendError(batch)) = synced.send(batch) {
                    batch.written.tell(Err(Error::from(ErrorKind::BrokenPipe).into()));
                }
            }
        }
    }

    fn write(&self, lines: &Lines, awaited: bool, head: Head) -> Result<(), NotRecorded> {
        let how = How { awaited, head, room: 0, on_disk: false };
        let written = lock(&self.writer).write(lines, how, &self.ids);
        self.noted(written, lines.bytes())
    }

    /// Writes batches together with all that wait, and waits for the disk once.
    fn sync(&self, first: Batch, others: &mpsc::Receiver<Batch>) {
        let mut told = vec![first.written];
        let mut lines = first.lines;
        for batch in others.try_iter() {
            lines.append(&batch.lines);
            told.push(batch.written);
        }
        let how = How { awaited: true, head: Head::Written, room: 0, on_disk: true };
        let written = lock(&self.writer).write(&lines, how, &self.ids);
        let written = self.noted(written, lines.bytes());
        told.into_iter().for_each(|batch| batch.tell(written.clone()));
    }

    /// Tells the operator when the record fails, and when it works again.
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

    /// Whether calls are carried out: they are recorded, or need not be.
    pub async fn accepts(self: &Arc<Self>) -> bool {
        self.recording().await != Recording::Refused
    }

    /// Whether calls are recorded. After a failed write, this tries to write a record of the same length;
    /// if that works, the log gets a record of the outage.
    pub async fn recording(self: &Arc<Self>) -> Recording {
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

    /// The segment that is written to, as far as is known without waiting for a disk.
    fn segment(&self) -> u64 {
        if let Ok(mut writer) = self.writer.try_lock() {
            self.segment.store(writer.segment(&self.ids), Ordering::Relaxed);
        }
        self.segment.load(Ordering::Relaxed)
    }

    /// Writes the record of a listing. `names` are written once per segment and view id.
    pub async fn listing(
        self: &Arc<Self>,
        agent: Option<&Arc<str>>,
        view: &str,
        names: impl Fn() -> String,
        mut facts: Facts,
    ) -> Result<(), NotRecorded> {
        // Segments are removed when their time is over, and each has the names of its views.
        let segment = self.segment();
        let new = lock(&self.views).get(view) != Some(&segment);
        if new {
            facts.json("names", &names());
        }
        let ticket = self.ticket(agent);
        self.record_ticket(&ticket, "list", "", &facts).await?;
        if new && !ticket.is_counted() {
            let mut views = lock(&self.views);
            // Names that are written twice do no harm.
            if views.len() >= MOST_VIEWS {
                views.clear();
            }
            views.insert(view.into(), segment);
        }
        Ok(())
    }

    /// Writes the intent of a call. Without it nothing is forwarded.
    pub async fn intend(
        self: &Arc<Self>,
        id: String,
        facts: &Facts,
    ) -> Result<Intent, NotRecorded> {
        // Whoever gives up while the intent is written leaves an outcome too.
        let (begun, slot) = (Instant::now(), slot());
        let mut intent = Intent { audit: self.clone(), id, begun, slot, ended: false };
        if let Some(count) = self.under_way.get(slot) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let written = self.written(&intent.id, "intent", facts).await;
        // What is not in the record has no outcome there.
        intent.ended = written.is_err();
        match written {
            Err(error) if self.required => Err(error),
            _ => Ok(intent),
        }
    }

    /// Counts a request that was turned away before anyone knew who sent it.
    pub fn turned_away(self: &Arc<Self>, source: &str, why: &'static str) {
        self.turn_away(Source::Place(source.into()), why);
    }

    /// Counts a request that was turned away, of which there is no record of its own.
    pub(crate) fn turn_away(self: &Arc<Self>, source: Source, why: &'static str) {
        if self.crowd.count(source, why) {
            let audit = self.clone();
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                tokio::time::sleep(rejected_counter::SPAN).await;
                audit.push_crowd();
            });
        }
    }

    fn push_crowd(self: &Arc<Self>) {
        for facts in self.crowd.take() {
            drop(self.push(&self.id(), "turned-away", &facts, When::Whenever));
        }
    }

    /// Writes everything that waits, and that the process ends.
    pub fn close(self: &Arc<Self>) {
        self.push_crowd();
        self.push_refusals();
        (0..SLOTS).for_each(|slot| self.flush(slot, Head::Written));
        // The last one: nothing follows it, and the head is to know it.
        lock(&self.writer).look();
        let Wait(stop) = self.push(&self.id(), "stop", &Facts::default(), When::Whenever);
        self.flush(slot(), Head::Written);
        // Another thread writes where the disk is waited for, and must not be left behind.
        let begun = Instant::now();
        while !stop.is_told() && begun.elapsed() < LONGEST_CLOSE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread whose records are about to be written, also where its runtime ends first.
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
