//! Audit sinks: copies of the log for other systems.
//!
//! The files stay the truth. Each sink has a thread of its own that reads them behind the writer and
//! keeps its position in `sinks/` below the log, so a sink that is slow or down costs no call and
//! misses no record. A record may be delivered twice, after a crash or a lost connection: its `id`
//! is the idempotency key.
//!
//! | module | contains |
//! |---|---|
//! | [`position`] | the claimed position of a sink in a stream |
//! | [`feed`] | the next records of a stream |
//! | [`records`] | records as sinks need them |
//! | [`syslog`] | RFC 5424 over TCP, TLS and Unix sockets |
//! | `otlp` | OTLP logs over HTTP |
//! | `postgres` | a table in PostgreSQL |
//!
//! Nothing here runs on the request path. A sink must not decide what is recorded.

mod feed;
#[cfg(feature = "otlp")]
pub mod otlp;
mod position;
#[cfg(feature = "postgres")]
pub mod postgres;
mod records;
mod stdout;
pub mod syslog;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use self::feed::Feed;
use self::records::Records;
use crate::audit::read;
use crate::audit::sink_state::SinkState;

/// How long a delivery may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failure, which doubles up to the maximum.
const RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The pause between looks at a log without new records.
const IDLE_DELAY: Duration = Duration::from_millis(100);
/// The interval at which the directory is searched for streams without a reader.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// How long a quiet connection must last before what was sent over it counts as received.
const QUIET: Duration = Duration::from_secs(10);

/// Where records go.
pub enum Target {
    Stdout,
    Syslog(Box<syslog::Syslog>),
    #[cfg(feature = "otlp")]
    Otlp(Box<otlp::Otlp>),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Postgres>),
}

impl Target {
    async fn deliver(&mut self, records: &Records) -> Result<(), String> {
        match self {
            Target::Stdout => stdout::deliver(records),
            Target::Syslog(syslog) => syslog.deliver(records).await,
            #[cfg(feature = "otlp")]
            Target::Otlp(otlp) => otlp.deliver(records).await,
            #[cfg(feature = "postgres")]
            Target::Postgres(postgres) => postgres.deliver(records).await,
        }
    }

    /// Drops the connection: after a failure its state is unknown.
    async fn reset(&mut self) {
        match self {
            Target::Syslog(syslog) => syslog.disconnect(),
            #[cfg(feature = "postgres")]
            Target::Postgres(postgres) => postgres.disconnect().await,
            _ => {}
        }
    }

    /// The number of bytes that may be lost with a connection, although they were sent. Syslog has
    /// no acknowledgements.
    fn unacknowledged_bytes(&self) -> u64 {
        match self {
            Target::Syslog(_) => syslog::UNACKNOWLEDGED_BYTES,
            _ => 0,
        }
    }
}

/// A configured sink.
pub struct Sink {
    pub state: Arc<SinkState>,
    pub target: Target,
}

/// The running sinks of a log.
#[derive(Debug)]
pub struct Sinks {
    stop: Arc<AtomicBool>,
    ended: mpsc::Receiver<()>,
    running: usize,
}

impl Sinks {
    /// Starts a thread for each sink.
    pub fn start(folder: &Path, sinks: Vec<Sink>) -> std::io::Result<Sinks> {
        let stop = Arc::new(AtomicBool::new(false));
        let (end, ended) = mpsc::channel();
        let running = sinks.len();
        for sink in sinks {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut worker = Worker::new(folder.into(), sink, stop.clone());
            let end = end.clone();
            std::thread::Builder::new().name("sink".into()).spawn(move || {
                runtime.block_on(worker.run());
                let _ = end.send(());
            })?;
        }
        Ok(Sinks { stop, ended, running })
    }

    /// Waits until the sinks have delivered everything, at most for a time. The rest is
    /// delivered by the next process.
    pub fn finish(&self, at_most: Duration) {
        self.stop.store(true, Ordering::Release);
        let until = Instant::now() + at_most;
        for _ in 0..self.running {
            let left = until.saturating_duration_since(Instant::now());
            if self.ended.recv_timeout(left).is_err() {
                return;
            }
        }
    }
}

/// The thread of one sink.
struct Worker {
    folder: PathBuf,
    sink: Sink,
    stop: Arc<AtomicBool>,
    feeds: Vec<Feed>,
    scanned: Option<Instant>,
    delay: Duration,
    /// When records were last sent.
    sent: Instant,
}

impl Worker {
    fn new(folder: PathBuf, sink: Sink, stop: Arc<AtomicBool>) -> Worker {
        let (feeds, scanned, sent) = (Vec::new(), None, Instant::now());
        Worker { folder, sink, stop, feeds, scanned, delay: RETRY_DELAY, sent }
    }

    async fn run(&mut self) {
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            match self.round().await {
                Ok(true) => self.delay = RETRY_DELAY,
                Ok(false) if stopping => {
                    self.feeds.iter_mut().for_each(Feed::acknowledge_all);
                    return;
                }
                Ok(false) => tokio::time::sleep(IDLE_DELAY).await,
                Err(why) => {
                    self.fail(&why).await;
                    if stopping {
                        return;
                    }
                    tokio::time::sleep(self.delay).await;
                    self.delay = (self.delay * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    async fn fail(&mut self, why: &str) {
        let Sink { state, target } = &mut self.sink;
        if state.failed(why) {
            let name = &state.name;
            tracing::warn!(
                target: "audit",
                "the sink `{name}` cannot deliver records: {why}; they are delivered when it can"
            );
        }
        target.reset().await;
        self.feeds.iter_mut().for_each(Feed::rewind);
    }

    /// Delivers the next records of each stream. Returns whether there were any.
    async fn round(&mut self) -> Result<bool, String> {
        let problem = |error: std::io::Error| format!("the audit log cannot be read: {error}");
        self.claim_streams().map_err(problem)?;
        let mut delivered = false;
        for feed in &mut self.feeds {
            let Some(records) = feed.next().map_err(problem)? else { continue };
            let Sink { state, target } = &mut self.sink;
            state.pending(records.written_micros());
            let delivery = tokio::time::timeout(DELIVERY_TIMEOUT, target.deliver(&records)).await;
            delivery.unwrap_or_else(|_| {
                Err(format!("no progress for {} s", DELIVERY_TIMEOUT.as_secs()))
            })?;
            if state.succeeded(records.len()) {
                tracing::info!(target: "audit", "the sink `{}` delivers records again", state.name);
            }
            feed.sent(&records, target.unacknowledged_bytes()).map_err(problem)?;
            (delivered, self.sent) = (true, Instant::now());
        }
        if !delivered {
            self.sink.state.caught_up();
            if self.sent.elapsed() >= QUIET {
                self.feeds.iter_mut().for_each(Feed::acknowledge_all);
            }
        }
        Ok(delivered)
    }

    /// Takes over the streams of the directory that no other process reads for this sink.
    fn claim_streams(&mut self) -> std::io::Result<()> {
        if self.scanned.is_some_and(|at| at.elapsed() < SCAN_INTERVAL) {
            return Ok(());
        }
        self.scanned = Some(Instant::now());
        for stream in read::streams(&self.folder)? {
            if self.feeds.iter().all(|feed| *feed.stream() != stream) {
                self.feeds.extend(Feed::claim(&self.folder, &self.sink.state.name, stream)?);
            }
        }
        Ok(())
    }
}
