//! `tools/call` in six stages: resolve, authorize, guard, record, forward, finish.
//!
//! | stage | from → to | afterwards |
//! |---|---|---|
//! | `resolve` | `Request` → `Resolved` | the client's view, and the name of the tool in it |
//! | `authorize` | `Resolved` → `Permit` | the policy allows the call |
//! | `guard` | `Permit` → `Passed` | no rate limit and no hook refuses it |
//! | `record` | `Passed` → `Forwarded` | its intent is in the audit log |
//! | `forward` | `Forwarded` → `Done` | the server, or a meta tool, has answered |
//! | `finish` | `Done` → `Answer` | its outcome is in the audit log |
//!
//! Each stage takes what only the stage before can make, so that no call reaches a server without a permit, without
//! passing its guards, or without a record. Authentication and validation come before, in both listeners.
//!
//! A stage that ends the call gives the response as an error: `None` if the client canceled, and gets none.

mod authorize;
mod finish;
mod forward;
mod guard;
mod record;
mod resolve;

use std::pin::Pin;
use std::time::Duration;

use self::authorize::authorize;
use self::finish::finish;
use self::forward::forward;
use self::guard::guard;
use self::record::record;
use self::resolve::resolve;
use super::meta_tools::execute::{self, Inner};
use super::request::{Envelope, Request};
use crate::context::Context;
use crate::guard::GuardedCall;
use crate::notifications::Notes;
use crate::responses::Answer;
use crate::view::Authorization;

/// How a stage ends the call: its response, or `None` if the client canceled it.
type End = Option<Answer>;

/// The call of `execute_tool` through which another call is made.
#[derive(Clone, Copy)]
struct OuterCall<'a> {
    authorization: &'a Authorization,
    /// How long it may take, if the client limits it.
    timeout: Option<Duration>,
}

/// Answers a call.
pub(crate) async fn call(context: &Context, request: Request, notes: &Notes) -> Option<Answer> {
    stages(context, request, None, notes).await.unwrap_or_else(|end| end)
}

async fn stages(
    context: &Context,
    request: Request,
    outer: Option<OuterCall<'_>>,
    notes: &Notes,
) -> Result<End, End> {
    let Request { envelope, message, room } = request;
    let resolved = resolve(context, &envelope, message).await?;
    let view = resolved.view.clone();
    let authorization = authorize(context, &envelope, resolved).await?;
    if let Some(Inner { message, timeout }) = execute::inner(&authorization) {
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
    Ok(finish(&envelope, done))
}

/// The stages of a call inside a call. There is none inside it: meta tools are not called through `execute_tool`.
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
