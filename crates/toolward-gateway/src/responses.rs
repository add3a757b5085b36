//! Response bodies for clients: results, refusals and errors.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use toolward_policy::refusal::{Refusal, brief, cut};
use toolward_wire::exchange::Failure;
use toolward_wire::jsonrpc::{error_body, result_body};
use toolward_wire::jsonrpc_error::{StatusCase, code, status};
use toolward_wire::method::PolicySubject;
use toolward_wire::{Era, Id, Message, MessageError, MethodRow, Raw, TASKS_EXTENSION};

use crate::budget::Reservation;

/// Maximum time that clients may cache a resource, in milliseconds.
const MAX_TTL_MS: i64 = 5_000;
/// The `_meta` key of a refusal in a result.
const REFUSAL: &str = "io.toolward/refusal";
/// Maximum length of an error message, including text from the caller.
const MAX_REASON_CHARS: usize = 500;

/// A response to a client, with its HTTP status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Body,
    /// When to retry; also sent as `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Scopes that the caller's token lacks; also sent as a challenge.
    pub scope: Option<Box<str>>,
    /// Why the request was rejected, if it has no audit record of its own; such requests are counted.
    pub unrecorded: Option<&'static str>,
    /// The memory of the body, reserved until it is sent.
    pub room: Option<Arc<Reservation>>,
    /// The kind of error, for metrics.
    pub error_type: Option<&'static str>,
    /// The call that waits for the client's response to this one.
    pub(crate) held: Option<Hold>,
    /// The server answered with a stream; so does the gateway, if the client can read it.
    pub(crate) streamed: bool,
}

/// A held call, by its number.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) slot: u128,
    /// Resolves when the call is no longer held: it was continued or canceled, or it has expired.
    pub(crate) released: oneshot::Receiver<()>,
}

impl Answer {
    /// The same response, counted as an error.
    pub(crate) fn error(self, error_type: &'static str) -> Answer {
        Answer { error_type: Some(error_type), ..self }
    }

    fn with(case: StatusCase, era: Era, why: &'static str, body: Bytes) -> Answer {
        let status = status(case, era).map_or(200, |status| status.http);
        Answer { status, unrecorded: Some(why), error_type: Some("rejected"), ..body.into() }
    }
}

impl From<Bytes> for Answer {
    fn from(body: Bytes) -> Answer {
        Body::from(body).into()
    }
}

impl From<Body> for Answer {
    fn from(body: Body) -> Answer {
        Answer {
            status: 200,
            body,
            retry_after: None,
            scope: None,
            unrecorded: None,
            room: None,
            error_type: None,
            held: None,
            streamed: false,
        }
    }
}

/// An outgoing message, with the memory that is reserved until it is written.
#[derive(Debug)]
pub struct Outbound {
    pub body: Body,
    pub room: Option<Arc<Reservation>>,
}

impl<T: Into<Body>> From<T> for Outbound {
    fn from(body: T) -> Outbound {
        Outbound { body: body.into(), room: None }
    }
}

/// A message in up to three pieces, so that a long list is not copied for every client.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pub pieces: [Bytes; 3],
}

impl From<[Bytes; 3]> for Body {
    fn from(pieces: [Bytes; 3]) -> Body {
        Body { pieces }
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Body {
        Body { pieces: [whole, Bytes::new(), Bytes::new()] }
    }
}

impl Body {
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message as one piece.
    pub fn whole(self) -> Bytes {
        let [head, middle, tail] = self.pieces;
        if middle.is_empty() && tail.is_empty() {
            head
        } else {
            [head, middle, tail].concat().into()
        }
    }
}

/// The response to a refused request. For a tool: a result, which a model reads, if the tool is listed; otherwise the
/// same JSON-RPC error for hidden and nonexistent names. Prompts have only the error.
pub fn refused(id: &Id, era: Era, subject: PolicySubject, refusal: &Refusal) -> Answer {
    if refusal.listed && subject == PolicySubject::Tool {
        return error_result(id, era, &refusal.text(), &refusal.data).error("refused");
    }
    let data = refusal.data.to_string();
    let body = error_body(Some(id), code::INVALID_PARAMS, &refusal.message, Some(data.as_bytes()));
    Answer::from(body).error("refused")
}

/// The response to a call that only lacks scopes, for a caller that can ask for a token with more of them: an
/// HTTP error, by which OAuth clients recognize that (RFC 6750).
pub fn insufficient_scope(id: &Id, refusal: &Refusal, scope: &str) -> Answer {
    let data = refusal.data.to_string();
    let body = error_body(Some(id), code::INVALID_PARAMS, &refusal.message, Some(data.as_bytes()));
    let answer = Answer { status: 403, scope: Some(scope.into()), ..body.into() };
    answer.error("insufficient_scope")
}

/// The response to a request for a resource that does not exist, or that the agent may not read.
pub fn resource_not_found(id: &Id, era: Era, uri: &str, decision: &str) -> Answer {
    let code = match era {
        Era::Legacy => code::RESOURCE_NOT_FOUND,
        Era::Modern => code::INVALID_PARAMS,
    };
    let data = json!({
        "error": "resource_not_found", "uri": brief(uri), "retryable": false,
        "decision_id": decision,
    });
    let data = data.to_string();
    let body = error_body(Some(id), code, "Resource not found", Some(data.as_bytes()));
    Answer::from(body).error("resource_not_found")
}

/// The response to a completion whose prompt or resource needs the approval of a person: no values.
pub(crate) fn no_completion(id: &Id, era: Era) -> Answer {
    let mut result = json!({"completion": {"values": [], "total": 0, "hasMore": false}});
    if era == Era::Modern {
        result["resultType"] = json!("complete");
    }
    result_body(id, result.to_string().as_bytes()).into()
}

/// The response to an allowed call that failed.
pub fn failed(id: &Id, server: &str, failure: Failure) -> Option<Answer> {
    let (error, message) = match failure {
        // A canceled request gets no response.
        Failure::Cancelled => return None,
        Failure::Unsent => {
            let message = format!("{server}: the server cannot be reached; nothing was sent");
            return Some(internal(id, "server_unavailable", &message, true));
        }
        Failure::Unstartable => {
            let message = format!("{server}: the server cannot be started; nothing was sent");
            return Some(internal(id, "server_unavailable", &message, false));
        }
        Failure::Undeliverable => return Some(undeliverable(id, server)),
        Failure::Gone => ("server_disconnected", "the server disconnected before it answered"),
        Failure::TimedOut => ("server_timeout", "the server did not answer in time"),
        Failure::BadAnswer => ("bad_answer", "the server's answer is not valid"),
        Failure::Asked => ("question_refused", "the server asked what it may not ask"),
        Failure::TooLarge { .. } => ("result_too_large", "the result is too large"),
    };
    // The server has received the request: a retry may repeat its effects.
    let message = format!("{server}: {message}; the call may have been carried out");
    let data = json!({
        "error": error, "message": message, "retryable": false, "may_have_effects": true,
    });
    let data = data.to_string();
    let body = error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.as_bytes()));
    Some(Answer::from(body).error(error))
}

/// The response to a call that was carried out and whose result does not fit into the memory limit.
fn undeliverable(id: &Id, server: &str) -> Answer {
    let message = format!(
        "{server}: the call was carried out, but its result cannot be delivered: the agent's \
         memory limit is reached"
    );
    let data = json!({
        "error": "result_undeliverable", "message": message, "retryable": false, "carried_out": true,
        "may_have_effects": true,
    });
    let data = data.to_string();
    let body = error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.as_bytes()));
    Answer::from(body).error("result_undeliverable")
}

/// The response to a call that was not forwarded because its agent's memory limit is reached.
pub fn overloaded(id: &Id) -> Answer {
    let message = "too many calls are in flight for this agent; this call was not carried out";
    Answer {
        retry_after: Some(Duration::from_secs(1)),
        unrecorded: Some("the agent's memory limit is reached"),
        ..internal(id, "overloaded", message, true)
    }
}

/// The response to a request that was not read because its agent's memory limit is reached.
pub fn no_room(id: Option<&Id>) -> Answer {
    let message = "this agent's memory limit is reached; the request was not carried out";
    let data = json!({"error": "overloaded", "message": message, "retryable": true}).to_string();
    let body = error_body(id, code::INTERNAL_ERROR, message, Some(data.as_bytes()));
    Answer { unrecorded: Some("the agent's memory limit is reached"), ..body.into() }
}

/// The response to a call during which the server asked the client something that was declined.
pub fn question_declined(
    id: &Id,
    era: Era,
    (subject, name): (PolicySubject, &str),
    why: &str,
) -> Answer {
    let message = format!(
        "{name} was stopped: its server asked for something that cannot be passed on ({why}). The call was \
         canceled, and may have had effects."
    );
    let data = json!({
        "error": "question_refused", "message": message, "tool": name, "retryable": false,
        "may_have_effects": true,
    });
    error_text(id, era, subject, &message, &data).error("question_refused")
}

/// The response to a call whose result exceeds the size limit: a result, so that a model reads it,
/// without anything from the server.
pub fn too_large(
    id: &Id,
    era: Era,
    (subject, name): (PolicySubject, &str),
    most: usize,
    size: Option<u64>,
) -> Answer {
    let had = size.map_or_else(|| format!("more than {most}"), |size| size.to_string());
    let message = format!("the result of {name} has {had} bytes, and the limit is {most}");
    let text =
        format!("{message}\nNone of it is included. Request less: a part, a page, a filter.");
    let mut data = json!({"error": "result_too_large", "message": message, "tool": name});
    data["limit_bytes"] = json!(most);
    if let Some(size) = size {
        data["result_bytes"] = json!(size);
    }
    data["retryable"] = json!(false);
    error_text(id, era, subject, &text, &data).error("result_too_large")
}

/// An error that a model should read: a result for tools, a JSON-RPC error for everything else.
pub(crate) fn error_text(
    id: &Id,
    era: Era,
    subject: PolicySubject,
    text: &str,
    data: &Value,
) -> Answer {
    match subject {
        PolicySubject::Tool => error_result(id, era, text, data),
        _ => {
            let data = data.to_string();
            error_body(Some(id), code::INTERNAL_ERROR, text, Some(data.as_bytes())).into()
        }
    }
}

/// An error as a tool result, so that a model reads it.
fn error_result(id: &Id, era: Era, text: &str, data: &Value) -> Answer {
    let mut result = json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "_meta": {REFUSAL: data},
    });
    if era == Era::Modern {
        result["resultType"] = json!("complete");
    }
    result_body(id, result.to_string().as_bytes()).into()
}

/// The response if the audit record of a request cannot be written.
pub fn not_recorded(id: &Id, error: &impl Display) -> Answer {
    internal(id, "not_recorded", &error.to_string(), true)
}

/// An error of the gateway itself.
pub fn internal(id: &Id, error: &'static str, message: &str, retryable: bool) -> Answer {
    let data = json!({"error": error, "message": message, "retryable": retryable}).to_string();
    let body = error_body(Some(id), code::INTERNAL_ERROR, message, Some(data.as_bytes()));
    Answer::from(body).error(error)
}

/// The response to a malformed message.
pub fn malformed(malformed: &MessageError, era: Era) -> Answer {
    let body = error_body(malformed.id.as_ref(), malformed.code(), &malformed.to_string(), None);
    let case = match malformed.problem.case() {
        // Without an id, a response with status 200 could not be matched to the request.
        StatusCase::BadParams if malformed.id.is_none() => StatusCase::MalformedEnvelope,
        case => case,
    };
    Answer::with(case, era, malformed.problem.summary(), body)
}

/// The response to an invalid request, with the HTTP status of its case.
pub fn wrong(
    case: StatusCase,
    era: Era,
    id: &Id,
    code: i32,
    why: &str,
    data: Option<Value>,
) -> Answer {
    let data = data.map(|data| data.to_string());
    let body =
        error_body(Some(id), code, &cut(why, MAX_REASON_CHARS), data.as_deref().map(str::as_bytes));
    let why = match case {
        StatusCase::HeaderMismatch => "the headers do not match the message",
        StatusCase::UnsupportedVersion => "unsupported protocol version",
        StatusCase::UnknownMethod => "the method is not supported",
        StatusCase::BadParams => "missing or invalid parameters",
        StatusCase::MissingCapability => "the client did not declare a capability",
        _ => "the request is not valid here",
    };
    Answer::with(case, era, why, body)
}

/// The response to a request with invalid parameters.
pub fn bad_params(id: &Id, era: Era, why: &str) -> Answer {
    wrong(StatusCase::BadParams, era, id, code::INVALID_PARAMS, why, None)
}

/// The response to a request that is not valid in the current state.
pub fn bad_request(id: &Id, era: Era, why: &str) -> Answer {
    wrong(StatusCase::MalformedEnvelope, era, id, code::INVALID_REQUEST, why, None)
}

/// The response to an MCP method that the gateway does not support.
pub fn not_available(id: &Id, era: Era, method: &str) -> Answer {
    let why = format!("`{method}` is not available through this gateway");
    wrong(StatusCase::UnknownMethod, era, id, code::METHOD_NOT_FOUND, &why, None)
}

/// The response to a request about tasks of a modern client that did not declare the extension.
pub fn tasks_undeclared(id: &Id) -> Answer {
    let data = json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}});
    let why = "the client did not declare that it supports tasks";
    let (case, code) = (StatusCase::MissingCapability, code::MISSING_CLIENT_CAPABILITY);
    wrong(case, Era::Modern, id, code, why, Some(data))
}

/// The response to a request that is too large to be read. `id` is set if it is unambiguous.
pub fn too_long(id: Option<&Id>, limit: usize) -> Answer {
    let message = format!("the request is larger than {limit} bytes, and was not read");
    let data = json!({
        "error": "request_too_large", "message": message, "limit_bytes": limit, "retryable": false,
    });
    let data = data.to_string();
    let body = error_body(id, code::INVALID_PARAMS, &message, Some(data.as_bytes()));
    Answer { unrecorded: Some("the message is too large"), ..body.into() }
}

/// The HTTP status of a server's response: 400 tells a modern client that it lacks a capability.
pub fn status_of(era: Era, message: &Message) -> u16 {
    let lacks = Some(i64::from(code::MISSING_CLIENT_CAPABILITY));
    match era {
        Era::Modern if message.error_code() == lacks => 400,
        _ => 200,
    }
}

/// A result with these members.
pub fn object(id: &Id, members: &[(&str, Option<&[u8]>)]) -> Answer {
    let mut result = Vec::new();
    for (name, value) in members.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        result.push(if result.is_empty() { b'{' } else { b',' });
        result.extend_from_slice(format!("\"{name}\":").as_bytes());
        result.extend_from_slice(value);
    }
    if result.is_empty() {
        result.push(b'{');
    }
    result.push(b'}');
    result_body(id, &result).into()
}

/// The members of a response that the gateway handles, found in one pass.
#[derive(Debug, Default, Clone, Copy)]
pub struct Marks {
    /// A question, a task or a URL to visit. Those that may pass were handled before.
    pub question: bool,
    pub is_error: bool,
    result_type: bool,
    cached: bool,
}

impl Marks {
    pub fn of(message: &Message) -> Marks {
        let mut marks = Marks {
            question: message.error_code() == Some(code::URL_ELICITATION_REQUIRED.into()),
            ..Marks::default()
        };
        for member in message.result_members() {
            match &*member.name() {
                "task" | "inputRequests" | "requestState" => marks.question = true,
                "resultType" => {
                    marks.result_type = true;
                    marks.question |= member.value.as_str().as_deref() != Some("complete");
                }
                "isError" => marks.is_error = member.value.as_bool() == Some(true),
                "ttlMs" | "cacheScope" => marks.cached = true,
                _ => {}
            }
        }
        marks
    }
}

/// Removes members that only the gateway may set from a server's response, and translates it to the
/// client's [`Era`] if the server used (`spoken`) the other one. `None` if it can be forwarded unchanged.
///
/// Only a resource may be cached, by its reader alone and for a short time: a reload may change what it may read.
pub fn answer(
    id: &Id,
    (era, spoken): (Era, Era),
    row: &MethodRow,
    message: &Message,
    marks: Marks,
) -> Option<Body> {
    message.result()?;
    let translated = era != spoken;
    if row.cacheable && era == Era::Modern {
        let ttl = message.result_member("ttlMs").and_then(Raw::as_i64).unwrap_or(0);
        let edit = message.edit().id(id).remove_own_meta();
        let edit = edit
            .set_result("resultType", &b"\"complete\""[..])
            .set_result("ttlMs", ttl.clamp(0, MAX_TTL_MS).to_string().into_bytes())
            .set_result("cacheScope", &b"\"private\""[..]);
        return Some(edit.finish_shared().into());
    }
    let drop_type = marks.result_type && translated && era == Era::Legacy;
    let add_type = !marks.result_type && translated && era == Era::Modern;
    // Results of calls are never cached, and legacy results say nothing about it.
    let drop_cache = marks.cached && spoken == Era::Modern;
    if !(drop_type || add_type || drop_cache) {
        return None;
    }
    let mut edit = message.edit().id(id).remove_own_meta();
    if drop_cache {
        edit = edit.remove_result("ttlMs").remove_result("cacheScope");
    }
    if drop_type {
        edit = edit.remove_result("resultType");
    }
    if add_type {
        edit = edit.set_result("resultType", &b"\"complete\""[..]);
    }
    Some(edit.finish_shared().into())
}
