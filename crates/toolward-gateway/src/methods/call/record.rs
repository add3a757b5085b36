//! Stage 4, record: no call is forwarded without an audit record. Memory for the result is reserved
//! first.

use std::sync::Arc;
use std::time::Duration;

use toolward_wire::MethodRow;
use toolward_wire::method::PolicySubject;

use super::End;
use crate::audit::{Intent, Outcome};
use crate::budget::{RESULT_ROOM, Reservation};
use crate::context::Context;
use crate::guard::Passed;
use crate::methods::events;
use crate::methods::request::Envelope;
use crate::metrics::calls::InFlightCall;
use crate::metrics::series::{Labels, Series};
use crate::permit::Permit;
use crate::responses;
use crate::traces::TracedCall;
use crate::upstream::Server;

/// A recorded call that may be forwarded to its server.
pub(super) struct Forwarded<'s> {
    intent: Intent,
    under_way: InFlightCall<'s>,
    pub(super) server: &'s Arc<Server>,
    counted: CountedCall<'s>,
    /// The memory reserved for the result.
    pub(super) room: Arc<Reservation>,
}

pub(super) async fn record<'s>(
    context: &'s Context,
    envelope: &Envelope,
    (permit, server): (&Permit, &'s Arc<Server>),
    passed: Passed<'_>,
    room: &Reservation,
) -> Result<Forwarded<'s>, End> {
    let (audit, id) = (&context.audit, &envelope.id);
    let Some(room) = room.account().try_reserve(RESULT_ROOM).map(Arc::new) else {
        return Err(Some(responses::overloaded(id)));
    };
    let mut facts = events::intent(envelope, permit, &audit.arguments);
    passed.facts(&mut facts);
    let intent = match audit.intend(audit.id(), &facts).await {
        Ok(intent) => intent,
        Err(error) => return Err(Some(responses::not_recorded(id, &error))),
    };
    passed.commit();
    let counted = CountedCall::new(&context.series, envelope.row, permit);
    Ok(Forwarded { intent, under_way: server.calls.begin(), server, counted, room })
}

/// A call as `/metrics` counts it.
struct CountedCall<'s> {
    series: &'s Series,
    method: &'static str,
    /// The server's own name of a tool or prompt. URIs of resources are not counted individually.
    name: Box<str>,
    traced: Option<TracedCall>,
}

impl<'s> CountedCall<'s> {
    fn new(series: &'s Series, row: &MethodRow, permit: &Permit) -> CountedCall<'s> {
        let listed = matches!(row.subject, PolicySubject::Tool | PolicySubject::Prompt);
        let name = if listed { permit.decision().original.clone() } else { Box::default() };
        let traced = TracedCall::begin();
        if let Some(traced) = &traced {
            traced.note(|facts| {
                facts.name = Some(name.clone()).filter(|name| !name.is_empty());
                facts.is_tool = row.subject == PolicySubject::Tool;
                facts.server = Some((*permit.decision().server).into());
            });
        }
        CountedCall { series, method: row.name, name, traced }
    }

    fn end(self, server: &str, outcome: &'static str, took: Duration) {
        let error_type = if outcome == "ok" { "" } else { outcome };
        let labels = Labels::new([self.method, error_type, ""], [server, &self.name]);
        self.series.calls.observe(labels, took);
        if let Some(traced) = &self.traced {
            self.series.traces.end_call(traced, self.method, error_type, took);
        }
    }
}

impl Forwarded<'_> {
    /// The id of the call's audit record.
    pub(super) fn id(&self) -> &str {
        self.intent.id()
    }

    /// The `traceparent` for the server, if the call is traced.
    pub(super) fn trace_parent(&self) -> Option<String> {
        self.counted.traced.as_ref().map(TracedCall::parent)
    }

    /// Ends the call in the audit log and in the metrics.
    pub(super) fn end(self, outcome: Outcome) {
        let (at, took) = self.intent.end(outcome);
        // A cancelled call is not a failure of the server.
        let failed = !matches!(outcome.name, "ok" | "cancelled" | "input-required" | "task");
        self.counted.end(self.server.name(), outcome.name, took);
        self.under_way.end(at, took, failed);
        if matches!(
            outcome.name,
            "server-unavailable" | "server-gone" | "timed-out" | "bad-answer" | "too-large"
        ) {
            self.server.life.failed(&format!("a call ended with `{}`", outcome.name));
        }
    }
}
