//! Stage 2, authorize: the policy decides, and issues the permit.

use toolward_wire::list::ListKind;
use toolward_wire::method::PolicySubject;

use super::End;
use super::resolve::{Found, Resolved};
use crate::context::Context;
use crate::methods::refusals;
use crate::methods::request::Envelope;
use crate::metrics::series::Labels;
use crate::permit::CallDecision;
use crate::responses;
use crate::view::Authorization;

pub(super) async fn authorize(
    context: &Context,
    envelope: &Envelope,
    resolved: Resolved,
) -> Result<Authorization, End> {
    let (active, client) = (&*envelope.active, &envelope.client);
    let Resolved { view, found, name, message, asked_by } = resolved;
    let (rules, caller) = (active.rules(), &client.caller);
    let decided = match &found {
        Found::Name if envelope.row.subject != PolicySubject::Task => {
            view.decide(rules, caller, &name, message)
        }
        Found::Reference => view.decide_reference(rules, caller, &name, message),
        Found::Resource(views, owner) => views.decide(rules, caller, (&name, *owner), message),
        Found::Interface(interface) => interface.decide(rules, caller, &name, message),
        Found::Task { tool, id } => {
            view.decide_following(rules, caller, (tool, Some((&name, id))), message)
        }
        Found::Name => {
            let why = "unknown task";
            return Err(Some(responses::bad_params(&envelope.id, client.era(), why)));
        }
    };
    let is_completion = envelope.row.subject == PolicySubject::Completion;
    let mut denied = match decided {
        // A person approves uses, not keystrokes.
        Ok(authorization) if is_completion && !authorization.permit.asks().rules.is_empty() => {
            authorization.permit.withdraw()
        }
        Ok(authorization)
            if asked_by.as_deref().is_some_and(|asked| asked != authorization.server.name()) =>
        {
            let why = "the `requestState` belongs to another call";
            return Err(Some(responses::bad_params(&envelope.id, client.era(), why)));
        }
        Ok(authorization) => {
            count(context, envelope, authorization.permit.decision());
            active.hits.count(authorization.permit.decision().explanation.hit);
            return if envelope.cancel.is_cancelled() { Err(None) } else { Ok(authorization) };
        }
        Err(denied) => denied,
    };
    match &denied.decision {
        Some(decision) => active.hits.count(decision.explanation.hit),
        None => {
            let decision = match &found {
                Found::Interface(_) => active.explain_resource(client, None, &name),
                Found::Resource(_, owner) => {
                    let server = owner.and_then(|at| view.servers().get(at)).map(|of| &*of.name);
                    active.explain_resource(client, server, &name)
                }
                _ if view.kind() == ListKind::Prompts => active.explain_prompt(client, &name),
                _ => active.explain_unlisted(client, &name, &denied),
            };
            active.hits.count_unlisted(decision.explanation.hit);
            if view.kind() == ListKind::Tools {
                active.unlisted.count(envelope.agent(), client.scope, &name);
            }
            denied.decision = Some(decision);
        }
    }
    if let Some(decision) = &denied.decision {
        count(context, envelope, decision);
    }
    Err(refusals::deny(context, envelope, &view, &name, &denied).await)
}

/// Counts a decision by its labels.
fn count(context: &Context, envelope: &Envelope, decided: &CallDecision) {
    let CallDecision { server, decision, .. } = decided;
    let words = [decision.verdict.as_str(), decision.step.as_str(), ""];
    let agent = envelope.active.agent_label(envelope.agent());
    let labels = Labels { words, names: [&*agent, server], number: decision.layer };
    context.series.decisions.count(labels);
}
