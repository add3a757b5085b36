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
//! | `writer` | the file: whole lines, rotation, retention, repair |
//! | [`segment`] | where records lie |
//! | `crowd` | requests that are counted, because anyone can send them |
//! | [`redact`] | what of a call's arguments is recorded |
//! | [`read`] | records read back: whether they are whole, and one by one |

mod batch;
mod crowd;
pub mod line;
pub mod read;
pub mod redact;
pub mod segment;
mod writer;

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use hashbrown::HashSet;

use self::batch::{Batch, SLOTS, Wait, slot};
use self::crowd::Crowd;
use self::line::{Lines, hex, micros};
use self::redact::Arguments;
use self::writer::Writer;
use crate::decide::View;
use crate::record::{Facts, names};
use crate::upstream::Log;

pub(crate) use self::crowd::source;
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
    pub arguments: Arguments,
}

impl Setup {
    /// The record of a folder, as it is kept unless something else is said.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Setup {
        let keep =
            Keep { rotate_size: 256 << 20, rotate_age: Duration::from_secs(86_400), retain: None };
        let (on_disk, required, arguments) = (false, true, Arguments::default());
        Setup { folder: folder.into(), on_disk, required, keep, arguments }
    }
}

/// Where records go.
pub struct Audit {
    slots: [Mutex<Batch>; SLOTS],
    /// Calls under way, by the thread on which they began.
    under_way: [AtomicUsize; SLOTS],
    writer: Mutex<Writer>,
    /// Who writes where the disk is waited for.
    synced: Option<mpsc::Sender<Batch>>,
    required: bool,
    ids: Ids,
    /// How long the latest write was, where it failed.
    failed: AtomicUsize,
    pub(crate) arguments: Arguments,
    /// Views whose names the record has.
    views: Mutex<HashSet<String>>,
    crowd: Crowd,
    log: Log,
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

/// So many views are remembered.
const MOST_VIEWS: usize = 10_000;

/// Ids that sort by time and differ between processes.
#[derive(Debug)]
struct Ids {
    process: u32,
    counter: AtomicU64,
}

impl Ids {
    fn next(&self) -> String {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut id = Vec::with_capacity(40);
        line::write_hex_number(micros(), 12, &mut id);
        id.push(b'-');
        line::write_hex_number(self.process.into(), 8, &mut id);
        id.push(b'-');
        line::write_hex_number(counter, 1, &mut id);
        String::from_utf8(id).unwrap_or_default()
    }
}

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
    pub fn open(setup: Setup, log: Log) -> Result<Arc<Audit>, NotRecorded> {
        make_folder(&setup.folder)?;
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(|error| Error::other(error.to_string()))?;
        let ids = Ids { process: u32::from_le_bytes(bytes), counter: AtomicU64::new(0) };
        let writer = Writer::open(&setup.folder, setup.keep, &ids, log.clone())?;
        let (synced, batches) = mpsc::channel();
        let audit = Arc::new(Audit {
            slots: std::array::from_fn(|_| Mutex::default()),
            under_way: std::array::from_fn(|_| AtomicUsize::new(0)),
            writer: Mutex::new(writer),
            synced: setup.on_disk.then_some(synced),
            required: setup.required,
            ids,
            failed: AtomicUsize::new(0),
            arguments: setup.arguments,
            views: Mutex::default(),
            crowd: Crowd::default(),
            log,
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
        if UNRECORDED {
            return Ok(());
        }
        // Where nobody else on this thread is at work, there is nothing to wait for.
        let under_way = self.under_way.get(slot()).map(|count| count.load(Ordering::Relaxed));
        let when = if under_way.is_some_and(|count| count <= 1) { When::Now } else { When::Soon };
        let written = self.push(id, kind, facts, when).await;
        if self.required { written } else { Ok(()) }
    }

    /// Puts a record with those that are written next.
    fn push(self: &Arc<Self>, id: &str, kind: &str, facts: &Facts, when: When) -> Wait {
        let slot = slot();
        let Some(batch) = self.slots.get(slot) else { return Wait(Arc::default()) };
        let (first, written) = {
            let mut batch = lock(batch);
            let first = batch.lines.is_empty();
            batch.lines.push(id, kind, facts);
            batch.awaited |= when != When::Whenever;
            (first, batch.written.clone())
        };
        if when == When::Now {
            self.flush(slot);
        } else if first {
            match tokio::runtime::Handle::try_current() {
                // It is polled after everything that is ready now, which may add to the batch.
                Ok(runtime) => {
                    let audit = self.clone();
                    runtime.spawn(async move { audit.flush(slot) });
                }
                Err(_) => self.flush(slot),
            }
        }
        Wait(written)
    }

    /// Writes what a thread has collected.
    fn flush(self: &Arc<Self>, slot: usize) {
        let Some(batch) = self.slots.get(slot).map(|batch| std::mem::take(&mut *lock(batch)))
        else {
            return;
        };
        if batch.lines.is_empty() {
            return;
        }
        match &self.synced {
            None => {
                batch.written.tell(self.write(&batch.lines, batch.awaited));
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

    fn write(&self, lines: &Lines, awaited: bool) -> Result<(), NotRecorded> {
        let written = lock(&self.writer).write(lines, awaited, &self.ids);
        self.noted(written, lines)
    }

    /// Writes batches together with all that wait, and waits for the disk once.
    fn sync(&self, first: Batch, others: &mpsc::Receiver<Batch>) {
        let mut told = vec![first.written];
        let mut lines = first.lines;
        for batch in others.try_iter() {
            lines.append(&batch.lines);
            told.push(batch.written);
        }
        let written = {
            let mut writer = lock(&self.writer);
            writer.write(&lines, true, &self.ids).and_then(|()| writer.sync())
        };
        let written = self.noted(written, &lines);
        told.into_iter().for_each(|batch| batch.tell(written.clone()));
    }

    /// Tells the operator when the record fails, and when it works again.
    fn noted(&self, written: std::io::Result<()>, lines: &Lines) -> Result<(), NotRecorded> {
        let written = written.map_err(NotRecorded::from);
        let failed = if written.is_err() { lines.bytes().max(1) } else { 0 };
        if (self.failed.swap(failed, Ordering::AcqRel) > 0) != written.is_err() {
            (self.log)(&match (&written, self.required) {
                (Err(error), true) => format!("{error}: calls are refused until it can"),
                (Err(error), false) => format!("{error}: calls go on without a record"),
                (Ok(()), _) => "the audit record is written again".into(),
            });
        }
        written
    }

    /// Whether records are accepted. Where one was not, it is tried again with one as long.
    pub async fn accepts(self: &Arc<Self>) -> bool {
        let failed = self.failed.load(Ordering::Acquire);
        if !self.required || failed == 0 {
            return true;
        }
        let mut facts = Facts::default();
        facts.text("room", &"-".repeat(failed.min(64 << 10)));
        self.push(&self.id(), "recovery", &facts, When::Now).await.is_ok()
    }

    /// Writes that a view was listed; its names only where the record has not had them yet.
    pub async fn listing(
        self: &Arc<Self>,
        view: &View,
        mut facts: Facts,
    ) -> Result<(), NotRecorded> {
        let new = !lock(&self.views).contains(view.id());
        if new {
            facts.json("names", &names(view));
        }
        self.record(&self.id(), "list", &facts).await?;
        if new {
            let mut views = lock(&self.views);
            // Names that are written twice do no harm.
            if views.len() >= MOST_VIEWS {
                views.clear();
            }
            views.insert(view.id().into());
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
        let intent = Intent { audit: self.clone(), id, begun, slot, ended: false };
        if let Some(count) = self.under_way.get(slot) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        match self.record(&intent.id, "intent", facts).await {
            Ok(()) => Ok(intent),
            Err(error) => {
                let mut intent = intent;
                intent.ended = true;
                Err(error)
            }
        }
    }

    /// Counts a request that was turned away before anyone knew who sent it.
    pub fn turned_away(self: &Arc<Self>, source: &str, why: &'static str) {
        if self.crowd.count(source, why) {
            let audit = self.clone();
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                tokio::time::sleep(crowd::SPAN).await;
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
        drop(self.push(&self.id(), "stop", &Facts::default(), When::Whenever));
        for slot in 0..SLOTS {
            let Some(batch) = self.slots.get(slot).map(|batch| std::mem::take(&mut *lock(batch)))
            else {
                continue;
            };
            if !batch.lines.is_empty() {
                batch.written.tell(self.write(&batch.lines, true));
            }
        }
        if self.synced.is_some() {
            let _ = lock(&self.writer).sync();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// A call that is about to be forwarded, or has been.
#[derive(Debug)]
#[must_use]
pub struct Intent {
    audit: Arc<Audit>,
    id: String,
    begun: Instant,
    /// The thread on which it began.
    slot: usize,
    ended: bool,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub name: &'static str,
    pub error_code: Option<i64>,
    pub bytes_out: usize,
}

impl Intent {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Ends the intent. The call has happened: a record that fails now is told by the next intent.
    pub fn end(mut self, outcome: Outcome) {
        self.write(outcome);
    }

    fn write(&mut self, outcome: Outcome) {
        self.ended = true;
        if UNRECORDED {
            return;
        }
        let duration = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut facts = Facts::default();
        facts.text("intent", &self.id);
        facts.text("outcome", outcome.name);
        facts.maybe_number("error_code", outcome.error_code);
        facts.number("duration_us", duration);
        facts.number("bytes_out", outcome.bytes_out as u64);
        // Nobody waits for an outcome: it goes out with the records of the moment.
        drop(self.audit.push(&self.audit.id(), "outcome", &facts, When::Whenever));
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if let Some(count) = self.audit.under_way.get(self.slot) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.ended {
            self.write(Outcome { name: "aborted", error_code: None, bytes_out: 0 });
        }
    }
}

/// The hash under which arguments are recorded.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&line::hash(bytes)))
}
