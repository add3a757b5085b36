//! Results that ask the client for input, in one round or several.

use rmcp::ErrorData;
use rmcp::model::*;
use serde_json::{Value, json};

use super::{Context, Result, typed};

/// At least as long as the codec demands.
const KEY: &[u8] = b"a key that protects nothing but tests of a gateway";

#[derive(Clone)]
pub struct Asking(RequestStateCodec);

impl Asking {
    pub fn new() -> Asking {
        Asking(RequestStateCodec::new_unchecked(KEY))
    }

    /// The result that asks for input, or nothing once all rounds have their responses.
    pub fn ask(
        &self,
        entry: &Value,
        state: Option<String>,
        responses: Option<InputResponses>,
        context: &Context,
    ) -> Result<Option<InputRequiredResult>> {
        let rounds = entry["asks"].as_array().unwrap();
        let stateful = entry["state"] == true;
        let known: Option<Value> =
            match &state {
                Some(state) => Some(self.0.open_json(state).map_err(|_| {
                    ErrorData::invalid_params("`requestState` has been changed", None)
                })?),
                None => None,
            };
        let round = known.as_ref().and_then(|state| state["round"].as_u64()).unwrap_or(0) as usize;
        let responses = json!(responses);
        let asked = rounds[round].as_object().unwrap();
        let answered = asked.iter().all(|(key, request)| usable(request, &responses[key]));
        // Without a state, responses alone show that the client has been asked.
        let done = answered && (known.is_some() || !stateful);
        let next = round + usize::from(done);
        let Some(requests) = rounds.get(next) else { return Ok(None) };
        let mut requests = requests.as_object().unwrap().clone();
        if entry["declared_only"] == true {
            let declared = json!(context.meta.client_capabilities());
            requests.retain(|_, request| declared[capability(request)].is_object());
        }
        let state = match stateful {
            true => Some(
                self.0
                    .seal_json(&json!({"round": next}))
                    .map_err(|error| ErrorData::internal_error(error.to_string(), None))?,
            ),
            false => None,
        };
        Ok(Some(InputRequiredResult::new(Some(typed(Value::Object(requests))?), state)))
    }
}

fn capability(request: &Value) -> &'static str {
    match request["method"].as_str() {
        Some("elicitation/create") => "elicitation",
        Some("sampling/createMessage") => "sampling",
        _ => "roots",
    }
}

/// Whether a response can be used: an accepted form must have the properties that were required.
fn usable(request: &Value, response: &Value) -> bool {
    let schema = &request["params"]["requestedSchema"];
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("string") => response["content"][name].is_string(),
        _ => response["content"][name].is_boolean(),
    };
    response.is_object() && required.into_iter().all(has)
}
