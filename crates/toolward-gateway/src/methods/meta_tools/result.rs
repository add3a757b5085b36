//! Results of the meta tools: JSON as text, and as structured content if the protocol version supports
//! it.

use toolward_wire::jsonrpc::result_body;
use toolward_wire::{Era, Id, Revision, string};

use super::arguments::Wrong;
use crate::responses::Answer;
use crate::upstream::built_in::is_structured;

/// The response to a call: a JSON object, or an error in its arguments.
pub(super) fn answer(id: &Id, revision: Revision, outcome: &Result<String, Wrong>) -> Answer {
    let text = outcome.as_ref().unwrap_or_else(|wrong| wrong);
    let mut result = Vec::with_capacity(text.len() * 2 + 256);
    result.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":");
    string::write(text, &mut result);
    result.extend_from_slice(b"}]");
    match outcome {
        Ok(json) if is_structured(revision) => {
            result.extend_from_slice(b",\"structuredContent\":");
            result.extend_from_slice(json.as_bytes());
        }
        Ok(_) => {}
        Err(_) => result.extend_from_slice(b",\"isError\":true"),
    }
    if revision.era() == Era::Modern {
        result.extend_from_slice(b",\"resultType\":\"complete\"");
    }
    result.push(b'}');
    result_body(id, &result).into()
}
