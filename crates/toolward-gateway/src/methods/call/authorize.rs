//! Stage 2, authorize: the policy decides, and issues the permit.

use super::End;
use super::resolve::Resolved;
use crate::context::Context;
use crate::methods::refusals;
use crate::methods::request::Envelope;
use crate::view::Authorization;

pub(super) async fn authorize(
    context: &Context,
    envelope: &Envelope,
    resolved: Resolved,
) -> Result<Authorization, End> {
    let (active, client) = (&*envelope.active, &envelope.client);
    let Resolved { view, name, message } = resolved;
    let mut denied = match view.decide(active.rules(), &client.caller, &name, message) {
        Ok(authorization) => {
            active.hits.count(authorization.permit.decision().explanation.hit);
            return if envelope.cancel.is_cancelled() { Err(None) } else { Ok(authorization) };
        }
        Err(denied) => denied,
    };
    match &denied.decision {
        Some(decision) => active.hits.count(decision.explanation.hit),
        None => {
            let decision = active.explain_unlisted(client, &name, &denied);
            active.hits.count_unseen(decision.explanation.hit);
            active.unlisted.count(envelope.agent(), client.scope, &name);
            denied.decision = Some(decision);
        }
    }
    Err(refusals::deny(context, envelope, &view, &name, &denied).await)
}
