//! Response bodies: results, refusals and errors as clients read them.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use toolward_policy::refusal::{Refusal, cut};
use toolward_wire::exchange::Failure;
use toolward_wire::jsonrpc::{error_body, result_body};
use toolward_wire::jsonrpc_error::{StatusCase, code, status};
use toolward_wire::{Era, Id, Message, MessageError};

use crate::budget::Reservation;

/// Where a refusal stands in a result's `_meta`.
const REFUSAL: &str = "io.toolward/refusal";
/// So many characters say why a request is wrong, the caller's own words included.
const MOST_WHY: usize = 500;

/// What a client gets to read, and the HTTP status that goes with it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Body,
    /// When to try again; also told as a header.
    pub retry_after: Option<Duration>,
    /// Why the request was refused, where no record of its own says so: such are counted.
    pub unrecorded: Option<&'static str>,
    /// The memory of the body, reserved until it is sent.
    pub room: Option<Arc<Reservation>>,
}

impl Answer {
    fn with(case: StatusCase, era: Era, why: &'static str, body: Bytes) -> Answer {
        let status = status(case, era).map_or(200, |status| status.http);
        Answer { status, unrecorded: Some(why), ..body.into() }
    }
}

impl From<Bytes> for Answer {
    fn from(body: Bytes) -> Answer {
        Body::from(body).into()
    }
}

impl From<Body> for Answer {
    fn from(body: Body) -> Answer {
        Answer { status: 200, body, retry_after: None, unrecorded: None, room: None }
    }
}

/// A message on its way to a client, and the memory that is reserved until it is written.
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

/// The response to a refused call: a result, which a model reads, if the tool is listed; otherwise the
/// same JSON-RPC error for hidden and nonexistent names.
pub fn refused(id: &Id, era: Era, refusal: &Refusal) -> Answer {
    if refusal.listed {
        return told_in_result(id, era, &refusal.text(), &refusal.data);
    }
    let data = refusal.data.to_string();
    error_body(Some(id), code::INVALID_PARAMS, &refusal.message, Some(data.as_bytes())).into()
}

/// The answer to a call that was allowed and could not be carried out.
pub fn failed(id: &Id, server: &str, failure: Failure) -> Option<Answer> {
    let (error, message) = match failure {
        // Whoever cancels hears nothing more.
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
    // The server has the request: a client that repeats the call may repeat its effects.
    let message = format!("{server}: {message}; the call may have been carried out");
    let data = json!({
        "error": error, "message": message, "retryable": false, "may_have_effects": true,
    });
    Some(
        error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.to_string().as_bytes()))
            .into(),
    )
}

/// The answer to a call that was carried out and whose result the gateway has no memory for.
fn undeliverable(id: &Id, server: &str) -> Answer {
    let message = format!(
        "{server}: the call was carried out, but its result cannot be delivered: the gateway holds too \
         much for this agent"
    );
    let data = json!({
        "error": "result_undeliverable", "message": message, "retryable": false, "carried_out": true,
        "may_have_effects": true,
    });
    error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.to_string().as_bytes())).into()
}

/// The answer to a call that was not forwarded because too much is held for its agent already.
pub fn overloaded(id: &Id) -> Answer {
    let message = "too many calls are in flight for this agent; this call was not carried out";
    Answer {
        retry_after: Some(Duration::from_secs(1)),
        unrecorded: Some("too much is held for the agent"),
        ..internal(id, "overloaded", message, true)
    }
}

/// The answer to a request that was not read because there is no room for it.
pub fn no_room(id: Option<&Id>) -> Answer {
    let message = "there is no room for this request at the moment; it was not carried out";
    let data = json!({"error": "overloaded", "message": message, "retryable": true}).to_string();
    let body = error_body(id, code::INTERNAL_ERROR, message, Some(data.as_bytes()));
    Answer { unrecorded: Some("too much is held for the agent"), ..body.into() }
}

/// The answer to a call whose result has more bytes than may pass. A model reads it as a result; nothing
/// of what the server said is in it.
pub fn too_large(id: &Id, era: Era, name: &str, most: usize, size: Option<u64>) -> Answer {
    let had = size.map_or_else(|| format!("more than {most}"), |size| size.to_string());
    let message = format!("the result of {name} has {had} bytes, and at most {most} may pass");
    let text =
        format!("{message}\nNothing of it is shown. Ask for less: a part, a page, a filter.");
    let mut data = json!({"error": "result_too_large", "message": message, "tool": name});
    data["limit_bytes"] = json!(most);
    if let Some(size) = size {
        data["result_bytes"] = json!(size);
    }
    data["retryable"] = json!(false);
    told_in_result(id, era, &text, &data)
}

/// A refusal of a tool that the agent sees: a result, so that a model reads it.
fn told_in_result(id: &Id, era: Era, text: &str, data: &Value) -> Answer {
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

/// An error of the gateway's own.
pub fn internal(id: &Id, error: &str, message: &str, retryable: bool) -> Answer {
    let data = json!({"error": error, "message": message, "retryable": retryable}).to_string();
    error_body(Some(id), code::INTERNAL_ERROR, message, Some(data.as_bytes())).into()
}

/// The answer to a message that is not read.
pub fn malformed(malformed: &MessageError, era: Era) -> Answer {
    let body = error_body(malformed.id.as_ref(), malformed.code(), &malformed.to_string(), None);
    let case = match malformed.problem.case() {
        // Without an id nobody could be told with a status of 200.
        StatusCase::BadParams if malformed.id.is_none() => StatusCase::MalformedEnvelope,
        case => case,
    };
    Answer::with(case, era, malformed.problem.summary(), body)
}

/// The answer to a request that is wrong in one of the ways of the status table.
pub fn wrong(
    case: StatusCase,
    era: Era,
    id: &Id,
    code: i32,
    why: &str,
    data: Option<Value>,
) -> Answer {
    let data = data.map(|data| data.to_string());
    let body = error_body(Some(id), code, &cut(why, MOST_WHY), data.as_deref().map(str::as_bytes));
    let why = match case {
        StatusCase::HeaderMismatch => "the headers say something else than the message",
        StatusCase::UnsupportedVersion => "the protocol's version is not supported",
        StatusCase::UnknownMethod => "the method does not pass",
        StatusCase::BadParams => "missing or invalid parameters",
        _ => "the request does not fit here",
    };
    Answer::with(case, era, why, body)
}

/// The answer to a request with wrong parameters.
pub fn bad_params(id: &Id, era: Era, why: &str) -> Answer {
    wrong(StatusCase::BadParams, era, id, code::INVALID_PARAMS, why, None)
}

/// The answer to a request that does not fit here.
pub fn bad_request(id: &Id, era: Era, why: &str) -> Answer {
    wrong(StatusCase::MalformedEnvelope, era, id, code::INVALID_REQUEST, why, None)
}

/// The answer to a method that exists and does not pass yet.
pub fn not_available(id: &Id, era: Era, method: &str) -> Answer {
    let why = format!("`{method}` is not available through this gateway");
    wrong(StatusCase::UnknownMethod, era, id, code::METHOD_NOT_FOUND, &why, None)
}

/// The answer to a request that is too large to be read. Its id is known if that was clear.
pub fn too_long(id: Option<&Id>, limit: usize) -> Answer {
    let message = format!("the request is larger than {limit} bytes, and was not read");
    let data = json!({
        "error": "request_too_large", "message": message, "limit_bytes": limit, "retryable": false,
    });
    let data = data.to_string();
    let body = error_body(id, code::INVALID_PARAMS, &message, Some(data.as_bytes()));
    Answer { unrecorded: Some("the message is too large"), ..body.into() }
}

/// The HTTP status of a server's answer: a modern client reads from it that it lacks a capability.
pub fn status_of(era: Era, message: &Message) -> u16 {
    let lacks = Some(i64::from(code::MISSING_CLIENT_CAPABILITY));
    match era {
        Era::Modern if message.error_code() == lacks => 400,
        _ => 200,
    }
}

/// A result made of these members.
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

/// What an answer holds that concerns the gateway, found in one pass over its members.
#[derive(Debug, Default, Clone, Copy)]
pub struct Marks {
    /// A question, a task or a link that the client is to follow: none of these passes yet.
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

/// A server's answer without what only the gateway may say, and in the client's era where it was
/// `spoken` in the other; `None` where it can be passed on as it is.
pub fn answer(id: &Id, era: Era, spoken: Era, message: &Message, marks: Marks) -> Option<Body> {
    message.result()?;
    let translated = era != spoken;
    let drop_type = marks.result_type && translated && era == Era::Legacy;
    let add_type = !marks.result_type && translated && era == Era::Modern;
    // What a call gives is never cached.
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
