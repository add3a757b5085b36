//! Traces: a SERVER span towards the client, and a CLIENT span towards the server, by the conventions
//! of OpenTelemetry for MCP.
//!
//! A request is traced if its client traces it (`traceparent` with the sampled flag, in `_meta` or as
//! a header), or by chance (`telemetry.sample`). A request that is not traced costs a branch or two.
//! A finished span is a few words in a bounded queue; `export` builds and sends the messages on a
//! thread of its own. If the queue is full, spans are dropped and counted: no call waits for it.

#[cfg(feature = "otlp")]
pub mod export;
mod parent;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use toolward_wire::{Message, meta};

pub(crate) use self::parent::Parent;
use crate::clock::micros;
use crate::lock::LockUnpoisoned;

/// The maximum number of finished spans that wait to be sent.
const MAX_QUEUE: usize = 4096;

/// The tracer of a process, if there is one.
#[derive(Debug, Default)]
pub struct Traces(OnceLock<Tracer>);

#[derive(Debug)]
struct Tracer {
    /// A random number below this traces a request.
    threshold: u64,
    finished: SyncSender<Span>,
    counts: Arc<Counts>,
}

/// The number of spans by what became of them.
#[derive(Debug, Default)]
pub struct Counts {
    pub exported: AtomicU64,
    /// The queue was full, or the receiver rejected them.
    pub dropped: AtomicU64,
}

/// A finished span.
#[derive(Debug)]
pub struct Span {
    pub(crate) is_server: bool,
    pub(crate) trace: u128,
    pub(crate) id: u64,
    /// 0 if it is the first span of its trace.
    pub(crate) parent: u64,
    /// The context of the HTTP request, if the message has another one.
    pub(crate) link: Option<(u128, u64)>,
    /// When it began, in microseconds since 1970.
    pub(crate) begun_micros: u64,
    pub(crate) took: Duration,
    pub(crate) method: &'static str,
    pub(crate) error_type: &'static str,
    pub(crate) facts: Facts,
}

/// Attributes of a request, added by the stages it passes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Facts {
    pub(crate) agent: Option<Arc<str>>,
    pub(crate) version: &'static str,
    pub(crate) request_id: Box<str>,
    /// The server's own name of a listed tool or prompt. URIs are not recorded.
    pub(crate) name: Option<Box<str>>,
    pub(crate) is_tool: bool,
    pub(crate) server: Option<Box<str>>,
    pub(crate) decision: Option<Box<str>>,
}

impl Traces {
    /// Starts to trace. Returns the finished spans; `None` if there is a tracer already.
    pub fn enable(&self, ratio: f64) -> Option<(Receiver<Span>, Arc<Counts>)> {
        let (finished, spans) = sync_channel(MAX_QUEUE);
        let counts = Arc::<Counts>::default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let threshold = (ratio.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        let tracer = Tracer { threshold, finished, counts: counts.clone() };
        self.0.set(tracer).ok()?;
        Some((spans, counts))
    }

    /// The number of spans so far.
    pub fn counts(&self) -> Option<&Counts> {
        self.0.get().map(|tracer| &*tracer.counts)
    }

    /// Begins a request. `None` if it is not traced.
    pub(crate) fn begin(&self, message: &Message) -> Option<Arc<Traced>> {
        let tracer = self.0.get()?;
        let stated = message.meta(meta::TRACE_PARENT).and_then(|parent| parent.as_str());
        let stated = stated.as_deref().and_then(Parent::parse);
        let header = HEADER.try_with(Clone::clone).ok().flatten();
        let parent = stated.or(header);
        let sampled = match parent {
            Some(parent) => parent.sampled,
            None => random() < tracer.threshold || tracer.threshold == u64::MAX,
        };
        if !sampled {
            return None;
        }
        let link = header.filter(|header| parent.is_some_and(|parent| parent != *header));
        Some(Arc::new(Traced {
            trace: parent.map_or_else(new_trace, |parent| parent.trace),
            id: new_id(),
            parent: parent.map_or(0, |parent| parent.span),
            link: link.map(|link| (link.trace, link.span)),
            begun: Instant::now(),
            begun_micros: micros(),
            facts: Mutex::default(),
        }))
    }

    /// Ends a request.
    pub(crate) fn end(&self, traced: &Traced, method: &'static str, error_type: &'static str) {
        self.finish(Span {
            is_server: true,
            trace: traced.trace,
            id: traced.id,
            parent: traced.parent,
            link: traced.link,
            begun_micros: traced.begun_micros,
            took: traced.begun.elapsed(),
            method,
            error_type,
            facts: traced.facts.locked().clone(),
        });
    }

    /// Ends a call to a server.
    pub(crate) fn end_call(
        &self,
        call: &TracedCall,
        method: &'static str,
        error_type: &'static str,
        took: Duration,
    ) {
        self.finish(Span {
            is_server: false,
            trace: call.of.trace,
            id: call.id,
            parent: call.of.id,
            link: None,
            begun_micros: call.begun_micros,
            took,
            method,
            error_type,
            facts: call.of.facts.locked().clone(),
        });
    }

    fn finish(&self, span: Span) {
        let Some(tracer) = self.0.get() else { return };
        if tracer.finished.try_send(span).is_err() {
            tracer.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A request that is traced.
#[derive(Debug)]
pub(crate) struct Traced {
    trace: u128,
    id: u64,
    parent: u64,
    link: Option<(u128, u64)>,
    begun: Instant,
    begun_micros: u64,
    facts: Mutex<Facts>,
}

impl Traced {
    /// Adds to what is known about the request.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.locked());
    }
}

/// A call to a server that is traced.
#[derive(Debug)]
pub(crate) struct TracedCall {
    of: Arc<Traced>,
    id: u64,
    begun_micros: u64,
}

impl TracedCall {
    /// The call of the current request, if that is traced.
    pub(crate) fn begin() -> Option<TracedCall> {
        let of = current()?;
        Some(TracedCall { of, id: new_id(), begun_micros: micros() })
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut Facts)) {
        self.of.note(change);
    }

    /// The `traceparent` for the server.
    pub(crate) fn parent(&self) -> String {
        Parent { trace: self.of.trace, span: self.id, sampled: true }.to_string()
    }
}

tokio::task_local! {
    /// The context of the current request, from its header.
    static HEADER: Option<Parent>;
    /// The current request, if it is traced.
    static CURRENT: Arc<Traced>;
}

/// Processes a request with a `traceparent` header. The message itself may have another context.
pub(crate) fn with_header<F: Future>(
    parent: Option<&str>,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    HEADER.scope(parent.and_then(Parent::parse), work)
}

/// Processes a traced request.
pub(crate) fn within<F: Future>(
    traced: Arc<Traced>,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(traced, work)
}

fn current() -> Option<Arc<Traced>> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Notes the id of the decision about the current request.
pub(crate) fn decided(id: &str) {
    let _ = CURRENT.try_with(|traced| traced.note(|facts| facts.decision = Some(id.into())));
}

/// The trace id of a request for its records, in hexadecimal digits: the one that its message states, or that of its
/// header, or that of the trace that began with it.
pub(crate) fn trace_id(message: &Message) -> Option<String> {
    let hex = |trace: u128| format!("{trace:032x}");
    match message.meta(meta::TRACE_PARENT) {
        Some(stated) => Parent::parse(&stated.as_str()?).map(|parent| hex(parent.trace)),
        None => {
            let header = HEADER.try_with(Clone::clone).ok().flatten();
            let own = || CURRENT.try_with(|traced| traced.trace).ok();
            header.map(|header| header.trace).or_else(own).map(hex)
        }
    }
}

/// Trace id and decision id of the current request, for the lines that it logs.
pub fn ids() -> (Option<String>, Option<String>) {
    let own = CURRENT.try_with(|traced| {
        let decision = traced.facts.locked().decision.as_deref().map(String::from);
        (Some(format!("{:032x}", traced.trace)), decision)
    });
    own.unwrap_or_else(|_| {
        let header = HEADER.try_with(Clone::clone).ok().flatten();
        (header.map(|header| format!("{:032x}", header.trace)), None)
    })
}

/// A number that decides whether a request is traced. It need not be hard to guess.
fn random() -> u64 {
    thread_local!(static STATE: Cell<u64> = Cell::new(new_id()));
    // SplitMix64.
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// A random id, never zero.
fn new_id() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness, ids are those of the clock: spans may be wrong, calls are not affected.
    let random = getrandom::fill(&mut bytes).map(|()| u64::from_le_bytes(bytes));
    random.unwrap_or_else(|_| micros()).max(1)
}

fn new_trace() -> u128 {
    u128::from(new_id()) << 64 | u128::from(new_id())
}

#[cfg(test)]
mod tests;
