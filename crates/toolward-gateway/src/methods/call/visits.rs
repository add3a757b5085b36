//! The error with which a server requires the user to visit URLs before it carries out a call (-32042).
//!
//! Each URL is decided like a request of the server. A legacy client gets the error, and calls again when the visits are
//! over. A modern client has no such error: it gets `input_required`, and its next attempt is sent to the server as a new
//! call.

use serde_json::{Map, Value, json};
use toolward_wire::input_requests::InputRequest;
use toolward_wire::jsonrpc::{error_body, result_body};
use toolward_wire::jsonrpc_error::code;
use toolward_wire::{Message, Shape};

use super::input_state;
use super::questions::{Declined, MALFORMED, rule};
use crate::context::Context;
use crate::methods::request::Envelope;
use crate::responses::Body;

/// URLs that one error may contain.
const MAX_VISITS: usize = 16;

/// Whether a server's response requires visits.
pub(super) fn are_required(message: &Message) -> bool {
    message.error_code() == Some(code::URL_ELICITATION_REQUIRED.into())
}

/// The URLs to visit. `None` if the error is malformed: then nothing of it can be decided.
pub(super) fn entries(message: &Message) -> Option<Vec<InputRequest<'_>>> {
    let data = message.error_data().filter(|raw| raw.is_object())?;
    let mut named = data.members().filter(|one| one.name().eq_ignore_ascii_case("elicitations"));
    let all = named.next().filter(|one| one.is("elicitations"))?.value;
    if named.next().is_some() || all.shape() != Shape::Array {
        return None;
    }
    let all: Option<Vec<_>> =
        all.elements().map(|(entry, _)| InputRequest::of_visit(entry)).collect();
    all.filter(|all| (1..=MAX_VISITS).contains(&all.len()))
}

/// The error as the client gets it. `call` is the digest that the state of a modern client is bound to.
pub(super) fn translate(
    context: &Context,
    envelope: &Envelope,
    (server, call): (&str, Option<[u8; 32]>),
    message: &Message,
) -> Result<Body, Declined> {
    let entries = entries(message).ok_or(MALFORMED)?;
    let mut asked = Vec::new();
    for entry in &entries {
        let changed = rule(&envelope.active, &envelope.client, server, entry)?;
        let params = changed.as_deref().or(entry.params.map(|raw| raw.bytes()));
        let params = params.and_then(|params| serde_json::from_slice::<Value>(params).ok());
        asked.push(params.ok_or(MALFORMED)?);
    }
    match call {
        None => {
            if let Some(outlet) = &envelope.client.outlet {
                let ids = entries.iter().filter_map(InputRequest::elicitation_id);
                ids.for_each(|id| outlet.expect_visit(server, &id));
            }
            let data = json!({ "elicitations": asked }).to_string();
            let why = message.error_message().unwrap_or_default();
            let code = code::URL_ELICITATION_REQUIRED;
            Ok(error_body(Some(&envelope.id), code, &why, Some(data.as_bytes())).into())
        }
        Some(call) => {
            let mut requests = Map::new();
            for (at, mut params) in asked.into_iter().enumerate() {
                if let Some(members) = params.as_object_mut() {
                    members.remove("elicitationId");
                }
                let request = json!({"method": "elicitation/create", "params": params});
                requests.insert(format!("visit{}", at + 1), request);
            }
            let keys = requests.keys().cloned().collect();
            let state = input_state::of_visit(context, envelope, (server, call), keys)?;
            let result = json!({
                "resultType": "input_required", "inputRequests": requests, "requestState": state,
            });
            Ok(result_body(&envelope.id, result.to_string().as_bytes()).into())
        }
    }
}
