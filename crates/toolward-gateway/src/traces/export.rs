//! Sends finished spans to an OTLP receiver, in batches, on a thread of its own.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Message, Status};
use prost::Message as _;

use super::{Counts, Span};
use crate::otlp::{Exporter, resource, scope, text};

/// Spans per request.
const MAX_BATCH: usize = 512;
/// How long a span waits for others.
const BATCH_DELAY: Duration = Duration::from_millis(500);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The thread that sends spans.
#[derive(Debug)]
pub struct Sending {
    stop: mpsc::Sender<()>,
    ended: Receiver<()>,
}

impl Sending {
    pub fn start(
        exporter: Exporter,
        (spans, counts): (Receiver<Span>, Arc<Counts>),
    ) -> std::io::Result<Sending> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ((stop, stopped), (end, ended)) = (mpsc::channel(), mpsc::channel());
        std::thread::Builder::new().name("traces".into()).spawn(move || {
            let mut sender = Sender { exporter, counts, resource: resource(), failing: false };
            while let Some(batch) = next(&spans, &stopped) {
                runtime.block_on(sender.send(batch));
            }
            let _ = end.send(());
        })?;
        Ok(Sending { stop, ended })
    }

    /// Sends what is left, at most for a time.
    pub fn finish(&self, at_most: Duration) {
        let _ = self.stop.send(());
        let _ = self.ended.recv_timeout(at_most);
    }
}

/// The next spans to send; `None` at the end.
fn next(spans: &Receiver<Span>, stopped: &Receiver<()>) -> Option<Vec<Span>> {
    let mut batch = Vec::new();
    let mut until = None;
    loop {
        let stopping = stopped.try_recv().is_ok();
        if stopping {
            batch.extend(spans.try_iter().take(MAX_BATCH));
            return (!batch.is_empty()).then_some(batch);
        }
        let left = until
            .map_or(BATCH_DELAY, |until: Instant| until.saturating_duration_since(Instant::now()));
        match spans.recv_timeout(left) {
            Ok(span) => {
                batch.push(span);
                until.get_or_insert_with(|| Instant::now() + BATCH_DELAY);
                if batch.len() >= MAX_BATCH {
                    return Some(batch);
                }
            }
            Err(RecvTimeoutError::Timeout) if batch.is_empty() => {}
            Err(RecvTimeoutError::Timeout) => return Some(batch),
            Err(RecvTimeoutError::Disconnected) => return (!batch.is_empty()).then_some(batch),
        }
    }
}

struct Sender {
    exporter: Exporter,
    counts: Arc<Counts>,
    resource: Resource,
    failing: bool,
}

impl Sender {
    async fn send(&mut self, batch: Vec<Span>) {
        let count = batch.len() as u64;
        let spans: Vec<Message> = batch.into_iter().map(message).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let spans = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
        let request = ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec();
        let sent = tokio::time::timeout(SEND_TIMEOUT, self.exporter.post(&request)).await;
        let sent = sent.unwrap_or_else(|_| Err("the receiver does not respond".into()));
        let (counter, failing) = match &sent {
            Ok(_) => (&self.counts.exported, false),
            // Traces are samples: those that cannot be sent are dropped.
            Err(_) => (&self.counts.dropped, true),
        };
        counter.fetch_add(count, Ordering::Relaxed);
        if failing != std::mem::replace(&mut self.failing, failing) {
            match sent {
                Ok(_) => tracing::info!(target: "traces", "traces can be sent again"),
                Err(why) => tracing::warn!(target: "traces", "traces cannot be sent: {why}"),
            }
        }
    }
}

/// A span as OTLP has it, with the attributes of the conventions for MCP.
fn message(span: Span) -> Message {
    let Span { is_server, facts, method, error_type, .. } = span;
    let name = match &facts.name {
        Some(name) => format!("{method} {name}"),
        None => method.to_owned(),
    };
    let mut attributes: Vec<KeyValue> = vec![text("mcp.method.name", method)];
    let mut add = |key: &str, value: Option<&str>| {
        attributes.extend(value.filter(|value| !value.is_empty()).map(|value| text(key, value)));
    };
    add("mcp.protocol.version", Some(facts.version));
    add("jsonrpc.request.id", Some(&facts.request_id).filter(|_| is_server).map(|id| &**id));
    match facts.is_tool {
        true => {
            add("gen_ai.tool.name", facts.name.as_deref());
            add("gen_ai.operation.name", Some("execute_tool"));
        }
        false => add("gen_ai.prompt.name", facts.name.as_deref()),
    }
    add("error.type", Some(error_type));
    add("toolward.agent", facts.agent.as_deref());
    add("toolward.server", facts.server.as_deref());
    add("toolward.decision_id", facts.decision.as_deref());
    let begun = span.begun_micros * 1000;
    let took = u64::try_from(span.took.as_nanos()).unwrap_or(u64::MAX);
    let kind = if is_server { SpanKind::Server } else { SpanKind::Client };
    let code = if error_type.is_empty() { StatusCode::Unset } else { StatusCode::Error };
    let links = span.link.iter().map(|(trace, id)| Link {
        trace_id: trace.to_be_bytes().into(),
        span_id: id.to_be_bytes().into(),
        ..Link::default()
    });
    Message {
        trace_id: span.trace.to_be_bytes().into(),
        span_id: span.id.to_be_bytes().into(),
        parent_span_id: if span.parent == 0 { vec![] } else { span.parent.to_be_bytes().into() },
        // Sampled.
        flags: 1,
        name,
        kind: kind.into(),
        start_time_unix_nano: begun,
        end_time_unix_nano: begun.saturating_add(took),
        attributes,
        links: links.collect(),
        status: Some(Status { message: String::new(), code: code.into() }),
        ..Message::default()
    }
}
