//! What a client gets to read: lists, refusals, failures. The one place that writes them.

use bytes::Bytes;
use serde_json::{Value, json};
use toolward_policy::refusal::refusal;
use toolward_wire::error::{code, error_body, result_body};
use toolward_wire::exchange::Failure;
use toolward_wire::list::{self, ListKind};
use toolward_wire::{Era, Id, Malformed, Message};

use crate::decide::{Refused, View};

/// Where a refusal stands in a result's `_meta`.
const REFUSAL: &str = "io.toolward/refusal";
/// A modern client may keep a list for this long.
const LIST_TTL_MS: &[u8] = b"5000";

/// The answer to a list request: everything the agent may see, in one page.
pub fn tools(id: &Id, era: Era, view: &View) -> Bytes {
    let more: &[(&str, &[u8])] = match era {
        Era::Legacy => &[],
        Era::Modern => &[
            ("resultType", b"\"complete\""),
            ("ttlMs", LIST_TTL_MS),
            ("cacheScope", b"\"private\""),
        ],
    };
    result_body(id, &list::result(ListKind::Tools, view.array(), None, more))
}

/// The answer to a call that policy refuses. Its shape depends only on whether the tool is listed.
pub fn refused(
    id: &Id,
    era: Era,
    view: &View,
    name: &str,
    refused: &Refused,
    decision: &str,
) -> Bytes {
    let said = refusal(view.allowed(), name, refused.action.as_deref());
    let mut data = json!({ "error": "tool_not_allowed", "message": said.message, "tool": name });
    if let Some(action) = &refused.action {
        data["action"] = json!(action);
    }
    data["allowed_tools"] = json!(said.allowed_tools);
    data["retryable"] = json!(false);
    data["decision_id"] = json!(decision);
    if !refused.listed {
        let data = data.to_string();
        return error_body(Some(id), code::INVALID_PARAMS, &said.message, Some(data.as_bytes()));
    }
    let why = refused.decided.as_ref().map_or("", |decided| &decided.reason);
    let text = format!(
        "{}\nWhy: {why}.\nThe same call will be refused again; call with what is allowed instead. \
         A person can find out more with `toolward explain`.",
        said.message
    );
    let mut result = json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "_meta": {REFUSAL: data},
    });
    if era == Era::Modern {
        result["resultType"] = json!("complete");
    }
    result_body(id, result.to_string().as_bytes())
}

/// The answer to a call that was allowed and could not be carried out.
pub fn failed(id: &Id, server: &str, failure: Failure) -> Option<Bytes> {
    let (error, message, retryable) = match failure {
        // Whoever cancels hears nothing more.
        Failure::Cancelled => return None,
        Failure::Gone => ("server_unavailable", "the server ended before it answered", true),
        Failure::TimedOut => ("server_timeout", "the server did not answer in time", true),
        Failure::BadAnswer => ("bad_answer", "the server's answer is not valid", false),
        Failure::Asked => ("question_refused", "the server asked what it may not ask", false),
    };
    Some(internal(id, error, &format!("{server}: {message}"), retryable))
}

/// The server cannot be reached: not a policy matter.
pub fn unavailable(id: &Id, server: &str, why: &str) -> Bytes {
    internal(id, "server_unavailable", &format!("{server}: {why}"), true)
}

/// An error of the gateway's own.
pub fn internal(id: &Id, error: &str, message: &str, retryable: bool) -> Bytes {
    let data = json!({"error": error, "message": message, "retryable": retryable}).to_string();
    error_body(Some(id), code::INTERNAL_ERROR, message, Some(data.as_bytes()))
}

/// The answer to a message that is not read.
pub fn malformed(malformed: &Malformed) -> Bytes {
    error_body(malformed.id.as_ref(), malformed.code(), &malformed.to_string(), None)
}

/// The answer to a request with wrong parameters.
pub fn invalid(id: &Id, code: i32, message: &str, data: Option<Value>) -> Bytes {
    let data = data.map(|data| data.to_string());
    error_body(Some(id), code, message, data.as_deref().map(str::as_bytes))
}

/// The answer to a line that is too long to be read: whose request it was is not known.
pub fn too_long(message: &str) -> Bytes {
    error_body(None, code::INVALID_REQUEST, message, None)
}

/// A result made of these members.
pub fn object(id: &Id, members: &[(&str, Option<&[u8]>)]) -> Bytes {
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
    result_body(id, &result)
}

/// Whether an answer is a question, a task or a link that the client is to follow: none of these
/// passes yet.
pub fn is_question(message: &Message) -> bool {
    let unbuilt = ["task", "inputRequests", "requestState"];
    unbuilt.iter().any(|member| message.result_member(member).is_some())
        || message.error_code() == Some(code::URL_ELICITATION_REQUIRED.into())
        || message
            .result_member("resultType")
            .is_some_and(|kind| kind.as_str().as_deref() != Some("complete"))
}

/// A server's answer without what only the gateway may say; `None` where it says nothing such.
pub fn answer(id: &Id, era: Era, message: &Message) -> Option<Bytes> {
    let forged = message.result_meta(REFUSAL).is_some();
    let cached = era == Era::Modern
        && ["ttlMs", "cacheScope"].iter().any(|member| message.result_member(member).is_some());
    (forged || cached).then(|| {
        let mut edit = message.edit().id(id);
        if forged {
            edit = edit.remove_result_meta(REFUSAL);
        }
        if cached {
            edit = edit.remove_result("ttlMs").remove_result("cacheScope");
        }
        edit.finish()
    })
}
