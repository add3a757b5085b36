//! The record of what was decided and what came of it: one JSON object a line.
//!
//! An [`Intent`] is written before a call is forwarded. Whoever holds it ends it with an outcome; one
//! that is dropped records `aborted`. Where nothing can be written, nothing is forwarded.
//!
//! Nobody waits for an outcome: while other calls are under way, it is written together with the next
//! record, or after a moment.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hashbrown::HashSet;
use sha2::{Digest, Sha256};

use crate::decide::View;
use crate::record::{Facts, names};

/// Where records go.
#[derive(Debug)]
pub struct Audit {
    sink: Mutex<Sink>,
    /// Makes ids of several processes differ.
    process: u32,
    counter: AtomicU64,
    /// Calls under way.
    open: AtomicUsize,
    /// Views whose names the record has.
    views: Mutex<HashSet<String>>,
}

/// So many views are remembered.
const MOST_VIEWS: usize = 10_000;

#[derive(Debug)]
struct Sink {
    path: PathBuf,
    file: File,
    /// The latest write failed, perhaps in the middle of a line.
    torn: bool,
    /// Outcomes that go out with the next record, or when `scheduled`.
    waiting: Vec<u8>,
    scheduled: bool,
}

/// An outcome waits no longer than this.
const MOMENT: Duration = Duration::from_millis(2);

/// The record could not be written, so that nothing may happen.
#[derive(Debug)]
pub struct NotRecorded(std::io::Error);

impl std::fmt::Display for NotRecorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the audit record cannot be written: {}", self.0)
    }
}

impl std::error::Error for NotRecorded {}

impl Audit {
    /// Opens the record in a folder, which is made if need be. Only this user can read it.
    pub fn open(folder: &Path) -> Result<Arc<Audit>, NotRecorded> {
        use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(NotRecorded)?;
        let path = folder.join("audit.jsonl");
        if std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo()) {
            let why = "it is a pipe, which would wait for a reader";
            return Err(NotRecorded(std::io::Error::other(why)));
        }
        let file = open_file(&path).map_err(NotRecorded)?;
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes)
            .map_err(|error| NotRecorded(std::io::Error::other(error.to_string())))?;
        let process = u32::from_le_bytes(bytes);
        let sink = Sink { path, file, torn: false, waiting: Vec::new(), scheduled: false };
        let sink = Mutex::new(sink);
        let (counter, open, views) = Default::default();
        Ok(Arc::new(Audit { sink, process, counter, open, views }))
    }

    /// An id that sorts by time.
    pub fn id(&self) -> String {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("{:012x}-{:08x}-{counter:x}", micros(), self.process)
    }

    /// Writes one record of its own: a listing, a refusal, a start.
    pub fn record(&self, id: &str, kind: &str, facts: &Facts) -> Result<(), NotRecorded> {
        // One write a record: a line is there whole or, after a crash, torn at the end.
        self.sink().write(&line(id, kind, facts), true).map_err(NotRecorded)
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an outcome, at once where nothing else is under way.
    fn conclude(self: &Arc<Self>, facts: &Facts) {
        let line = line(&self.id(), "outcome", facts);
        let others = self.open.fetch_sub(1, Ordering::AcqRel) > 1;
        let mut sink = self.sink();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if others => {
                sink.waiting.extend_from_slice(&line);
                if !std::mem::replace(&mut sink.scheduled, true) {
                    let audit = self.clone();
                    runtime.spawn(async move {
                        tokio::time::sleep(MOMENT).await;
                        let mut sink = audit.sink();
                        sink.scheduled = false;
                        let _ = sink.write(b"", false);
                    });
                }
            }
            // The call has happened: a record that fails now is told by the next intent.
            _ => drop(sink.write(&line, false)),
        }
    }

    /// Writes that a view was listed; its names only where the record has not had them yet.
    pub fn listing(&self, view: &View, mut facts: Facts) -> Result<(), NotRecorded> {
        let new = !self.views().contains(view.id());
        if new {
            facts.json("names", &names(view));
        }
        self.record(&self.id(), "list", &facts)?;
        if new {
            let mut views = self.views();
            // Names that are written twice do no harm.
            if views.len() >= MOST_VIEWS {
                views.clear();
            }
            views.insert(view.id().into());
        }
        Ok(())
    }

    fn views(&self) -> MutexGuard<'_, HashSet<String>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the intent of a call. Without it nothing is forwarded.
    pub fn intend(self: &Arc<Self>, id: String, facts: &Facts) -> Result<Intent, NotRecorded> {
        self.record(&id, "intent", facts)?;
        self.open.fetch_add(1, Ordering::AcqRel);
        Ok(Intent { audit: self.clone(), id, begun: Instant::now(), ended: false })
    }
}

impl Sink {
    /// Where something waits for the record to be there, a file that was removed is no record.
    fn write(&mut self, line: &[u8], waited_for: bool) -> std::io::Result<()> {
        if waited_for {
            let found = rustix::fs::fstat(&self.file)?;
            let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
            if is_file && found.st_nlink == 0 {
                // This one is refused; the next goes into a new file, where one can be made.
                if let Ok(file) = open_file(&self.path) {
                    self.file = file;
                    self.torn = false;
                }
                return Err(std::io::Error::other("its file was removed"));
            }
        }
        // What was torn stays a line of its own, so that it swallows no other.
        let begin: &[u8] = if self.torn { b"\n" } else { b"" };
        let written = match (self.waiting.is_empty(), self.torn) {
            (true, false) => self.file.write_all(line),
            _ => self.file.write_all(&[begin, &self.waiting, line].concat()),
        };
        self.waiting.clear();
        self.torn = written.is_err();
        written
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// A record as it is written.
fn line(id: &str, kind: &str, facts: &Facts) -> Vec<u8> {
    let mut line = Vec::with_capacity(96 + facts.members().len());
    let _ = write!(line, "{{\"id\":\"{id}\",\"time_us\":{},\"kind\":\"{kind}\"", micros());
    line.extend_from_slice(facts.members());
    line.push(b'}');
    if line.iter().any(|byte| !matches!(byte, b' '..=b'~')) {
        line = harmless(&String::from_utf8_lossy(&line)).into_bytes();
    }
    line.push(b'\n');
    line
}

/// The same JSON, without characters that reorder or hide text on a terminal.
fn harmless(json: &str) -> String {
    let hostile = |c: char| {
        matches!(c, '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    json.chars().fold(String::with_capacity(json.len() + 1), |mut text, c| {
        match hostile(c) {
            // Such characters stand in strings only, where an escape says the same.
            true => text.push_str(&format!("\\u{:04x}", c as u32)),
            false => text.push(c),
        }
        text
    })
}

/// A call that is about to be forwarded, or has been.
#[derive(Debug)]
#[must_use]
pub struct Intent {
    audit: Arc<Audit>,
    id: String,
    begun: Instant,
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
        let duration = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut facts = Facts::default();
        facts.text("intent", &self.id);
        facts.text("outcome", outcome.name);
        facts.json("error_code", &outcome.error_code.map_or("null".into(), |c| c.to_string()));
        facts.number("duration_us", duration);
        facts.number("bytes_out", outcome.bytes_out as u64);
        self.audit.conclude(&facts);
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if !self.ended {
            self.write(Outcome { name: "aborted", error_code: None, bytes_out: 0 });
        }
    }
}

/// The hash under which arguments are recorded.
pub fn digest(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in Sha256::digest(bytes) {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
