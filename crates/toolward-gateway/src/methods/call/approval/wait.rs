//! Waits for the decision of a person, with progress notifications.

use std::time::Duration;

use tokio::time::{Instant, interval_at};
use toolward_wire::Id;

use super::asking::Asking;
use super::elicitation::{self, Elicited};
use crate::context::Context;
use crate::guard::OnDisconnect;
use crate::guard::approvals::{Outcome, POLL_INTERVAL, Waiting};
use crate::methods::events;
use crate::methods::request::ApprovalAttempt;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Progress reports of the gateway are far below those of a server, because progress must increase.
const PROGRESS_STEP: f64 = 1e-6;

/// How a wait ended.
pub(super) enum Waited {
    /// The ticket is decided, or still pending after the longest wait.
    Outcome(Outcome),
    /// The person at the client closed the request without a decision.
    Dismissed,
}

/// Waits until a ticket is decided, or for as long as the call may be held. `None`: the client cancelled or
/// disconnected.
pub(super) async fn wait(
    context: &Context,
    asking: &Asking<'_>,
    attempt: &ApprovalAttempt,
    waiting: &Waiting,
    mut elicited: Option<Elicited>,
) -> Option<Waited> {
    let Asking { envelope, permit, hold, .. } = *asking;
    let (approvals, audit) = (&context.approvals, &context.audit);
    let disconnect = OnDisconnect::new(|| {
        let reason = "its client disconnected while it waited for approval";
        let about = ("ask", reason, Some(&*waiting.ticket));
        let facts = events::unapproved(envelope, permit, &audit.arguments, about);
        audit.note_ticket(envelope.agent(), "refusal", permit.exposed(), &facts);
    });
    let _waits = approvals.wait(&waiting.ticket);
    let (mut changes, is_polled) = (approvals.changes(), approvals.is_polled());
    let begun = Instant::now();
    let end = begun + hold.min(waiting.left);
    let token = permit.message().progress_token();
    let mut progress = interval_at(begun + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    let mut reports = 0;
    let outcome = loop {
        changes.borrow_and_update();
        match approvals.outcome(&waiting.ticket) {
            Outcome::Pending => {}
            decided => break decided,
        }
        tokio::select! {
            // A response that has arrived counts, even if the wait was over meanwhile.
            biased;
            () = envelope.cancel.cancelled() => return None,
            response = elicitation::response(elicited.as_mut()) => {
                elicited = None;
                if !elicitation::decide(context, &waiting.ticket, response.as_ref()).await {
                    disconnect.answered();
                    return Some(Waited::Dismissed);
                }
            }
            _ = changes.changed() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if attempt.notes.is_abandoned() {
                    return None;
                }
                if is_polled {
                    approvals.look().await;
                }
            }
            () = tokio::time::sleep_until(end) => break Outcome::Pending,
            _ = progress.tick(), if token.is_some() => {
                reports += 1;
                if let Some(token) = &token {
                    attempt.notes.send(report(token, reports).into()).await;
                }
            }
        }
    };
    disconnect.answered();
    Some(Waited::Outcome(outcome))
}

/// A progress notification.
fn report(token: &Id, number: u32) -> Vec<u8> {
    let mut note = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":".to_vec();
    note.extend_from_slice(token.raw());
    let progress = f64::from(number) * PROGRESS_STEP;
    let rest =
        format!(",\"progress\":{progress:.6},\"message\":\"waiting for a person to approve\"}}}}");
    note.extend_from_slice(rest.as_bytes());
    note
}
