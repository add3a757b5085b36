//! `tools/call` in six stages: resolve, authorize, guard, record, forward, finish. `prompts/get`, `resources/read` and
//! `completion/complete` go through the same stages.
//!
//! | stage | from → to | afterwards |
//! |---|---|---|
//! | `resolve` | `Request` → `Resolved` | the client's view, and the name of the tool, prompt or resource in it |
//! | `authorize` | `Resolved` → `Permit` | the policy allows the call |
//! | `guard` | `Permit` → `Passed` | no rate limit and no hook refuses it, and a person approved it if a rule asks |
//! | `record` | `Passed` → `Forwarded` | its intent is in the audit log |
//! | `forward` | `Forwarded` → `Done` | the server, or a meta tool, has answered |
//! | `finish` | `Done` → `Answer` | its outcome is in the audit log |
//!
//! Each stage takes a value that only the previous stage can create, so no call reaches a server without
//! a permit, without passing its guards, or without an audit record. Authentication and validation happen
//! earlier, in the listeners.
//!
//! A stage that ends the call returns the response as an error: `None` if the client cancelled, which
//! gets no response.

mod approval;
mod authorize;
mod contents;
mod finish;
mod forward;
mod guard;
pub(crate) mod hold;
mod input_state;
mod questions;
mod record;
mod resolve;
mod task_requests;
pub(in crate::methods) mod tasks;
mod visits;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use toolward_wire::method::PolicySubject;
use toolward_wire::{Message, MethodRow};

use self::authorize::authorize;
use self::finish::finish;
use self::forward::forward;
use self::guard::guard;
use self::record::record;
use self::resolve::resolve;
use super::meta_tools::execute::{self, InnerCall};
use super::refusals;
use super::request::{Envelope, Request};
use crate::context::Context;
use crate::guard::GuardedCall;
use crate::notifications::Notes;
use crate::responses::{self, Answer};
use crate::upstream::Server;
use crate::view::Authorization;

/// The early end of a call: its response, or `None` if the client cancelled it.
type End = Option<Answer>;

/// A call of `execute_tool` that contains another call.
#[derive(Clone, Copy)]
struct OuterCall<'a> {
    authorization: &'a Authorization,
    /// The timeout that the client set, if any.
    timeout: Option<Duration>,
}

/// Handles a request for a tool, prompt or resource, or for a completion.
pub(crate) async fn call(context: &Context, request: Request, notes: &Notes) -> Option<Answer> {
    if request.envelope.active.policy.asks() {
        return Box::pin(approval::call(context, request, notes)).await;
    }
    stages(context, request, None, notes).await.unwrap_or_else(|end| end)
}

async fn stages(
    context: &Context,
    request: Request,
    outer: Option<OuterCall<'_>>,
    notes: &Notes,
) -> Result<End, End> {
    if counts_as_listing(request.envelope.row) {
        limit_listing(context, &request).await?;
    }
    let Request { envelope, message, room } = request;
    let resolved = resolve(context, &envelope, message).await?;
    let view = resolved.view.clone();
    let authorization = authorize(context, &envelope, resolved).await?;
    if let Some(InnerCall { message, timeout }) = execute::inner(&authorization) {
        let client = envelope.client.discovery();
        let envelope = Envelope { client, headers: None, ..envelope };
        let outer = OuterCall { authorization: &authorization, timeout };
        return inner_stages(context, Request { envelope, message, room }, outer, notes).await;
    }
    let outer_call = outer.map(|outer| guarded(&envelope, outer.authorization, None));
    let call = guarded(&envelope, &authorization, outer_call.as_ref());
    let passed = guard(context, &envelope, &view, &call).await?;
    let Authorization { permit, server, .. } = authorization;
    let forwarded = record(context, &envelope, (&permit, &server), passed, &room).await?;
    let timeout = outer.and_then(|outer| outer.timeout);
    let done = forward(context, &envelope, (permit, &view), forwarded, timeout, notes).await;
    Ok(finish(context, &envelope, done))
}

/// Completions are as frequent as keystrokes, and tasks are polled: the limit on listings counts both, the limits on
/// calls do not.
fn counts_as_listing(row: &MethodRow) -> bool {
    row.subject == PolicySubject::Completion || row.name == "tasks/get"
}

async fn limit_listing(context: &Context, request: &Request) -> Result<(), End> {
    let envelope = &request.envelope;
    match envelope.active.guards.list(envelope.agent().map(|agent| &**agent)).await {
        Ok(()) => Ok(()),
        Err(stopped) => {
            let method = envelope.row.name;
            Err(Some(refusals::refuse_listing(context, request, method, &stopped).await))
        }
    }
}

/// The first two stages, for a subscription to a resource.
pub(super) async fn resolve_and_authorize(
    context: &Context,
    envelope: &Envelope,
    message: Message,
) -> Result<Authorization, End> {
    let resolved = resolve(context, envelope, message).await?;
    let authorization = authorize(context, envelope, resolved).await?;
    if !authorization.permit.asks().rules.is_empty() {
        // A subscription would outlive any approval.
        let why =
            "a person has to approve each read of this resource, so it cannot be subscribed to";
        return Err(Some(responses::bad_params(&envelope.id, envelope.client.era(), why)));
    }
    Ok(authorization)
}

/// The server of a resource that the agent may read, without a refusal if it may not.
pub(super) async fn look_up_resource(
    context: &Context,
    envelope: &Envelope,
    uri: &str,
) -> Option<Arc<Server>> {
    let (_, found) = resolve::look_up_resource(context, envelope, uri).await.ok()?;
    let resolve::Found::Resource(views, owner) = found else { return None };
    views.readable(envelope.active.rules(), &envelope.client.caller, (uri, owner?))
}

/// The stages of a call inside a call. They nest only once, because `execute_tool` cannot call meta
/// tools.
fn inner_stages<'a>(
    context: &'a Context,
    request: Request,
    outer: OuterCall<'a>,
    notes: &'a Notes,
) -> Pin<Box<dyn Future<Output = Result<End, End>> + Send + 'a>> {
    Box::pin(stages(context, request, Some(outer), notes))
}

/// An authorized call as guards see it.
fn guarded<'a>(
    envelope: &'a Envelope,
    authorization: &'a Authorization,
    through: Option<&'a GuardedCall<'a>>,
) -> GuardedCall<'a> {
    GuardedCall {
        client: &envelope.client,
        id: &envelope.id,
        permit: &authorization.permit,
        server: &authorization.server,
        plan: authorization.plan.as_deref(),
        through,
    }
}
