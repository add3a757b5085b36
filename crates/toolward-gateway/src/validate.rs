//! Validates incoming messages before dispatch. Only methods in the method table are accepted, and a
//! modern request must declare what the protocol requires.

use serde_json::json;
use toolward_policy::refusal::brief;
use toolward_wire::headers::StandardHeaders;
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::{Era, Id, Kind, Message, MethodRow, Revision, Sender, meta, method};

use crate::responses::{self, Answer};

/// A valid message.
pub enum Incoming {
    Request {
        id: Id,
        row: &'static MethodRow,
    },
    Notification,
    /// The client's response to a server request.
    Response,
}

/// Whether a message is legacy or modern: a modern request declares its protocol version.
pub fn era(message: &Message) -> Era {
    if message.meta(meta::PROTOCOL_VERSION).is_some() { Era::Modern } else { Era::Legacy }
}

/// Validates a message from a client.
pub fn admit(message: &Message, era: Era) -> Result<Incoming, Box<Answer>> {
    admit_with(message, era, None)
}

/// Validates a message that has HTTP headers.
pub fn admit_with(
    message: &Message,
    era: Era,
    headers: Option<&StandardHeaders<'_>>,
) -> Result<Incoming, Box<Answer>> {
    if matches!(message.kind(), Kind::Response | Kind::Error) {
        return Ok(Incoming::Response);
    }
    let row = message.row(Sender::Client, era);
    if let (Some(id), Era::Modern) = (message.id(), era) {
        modern_terms(message, id, row.as_ref().ok().copied(), headers)?;
    }
    let row = row.map_err(|malformed| responses::malformed(&malformed, era))?;
    let Some(id) = message.id().cloned() else {
        return Ok(Incoming::Notification);
    };
    // Input for a server comes only with a request that a server may ask something about.
    let rejected: &[&str] = match era {
        Era::Modern if row.may_request_input => &[],
        Era::Modern if row.name == "tasks/update" => &["requestState"],
        Era::Modern | Era::Legacy => &["inputResponses", "requestState"],
    };
    if let Some(member) = rejected.iter().find(|member| message.param(member).is_some()) {
        let why = format!("`params.{member}` is not available through this gateway");
        return Err(responses::bad_params(&id, era, &why).into());
    }
    Ok(Incoming::Request { id, row })
}

/// Checks the members that a modern request must have, and that its headers match them.
fn modern_terms(
    message: &Message,
    id: &Id,
    row: Option<&MethodRow>,
    headers: Option<&StandardHeaders<'_>>,
) -> Result<(), Box<Answer>> {
    let era = Era::Modern;
    let terms =
        message.request_meta().map_err(|malformed| responses::malformed(&malformed, era))?;
    let disagrees = |headers: &StandardHeaders<'_>| match row {
        Some(row) => headers.check(message, row).err(),
        // For an unknown method, the position of the name is unknown too.
        None => {
            let row = method::lookup("server/discover", Sender::Client, era)?;
            StandardHeaders { name: None, ..*headers }.check(message, row).err()
        }
    };
    if let Some(mismatch) = headers.and_then(disagrees) {
        let (case, code) = (StatusCase::HeaderMismatch, code::HEADER_MISMATCH);
        return Err(responses::wrong(case, era, id, code, &mismatch.to_string(), None).into());
    }
    match Revision::parse(&terms.version) {
        Some(revision) if revision.era() == era => Ok(()),
        _ => {
            let data = json!({
                "supported": [Revision::newest(era).as_str()],
                "requested": brief(&terms.version),
            });
            let why = "unsupported protocol version";
            let case = StatusCase::UnsupportedVersion;
            Err(responses::wrong(case, era, id, code::UNSUPPORTED_VERSION, why, Some(data)).into())
        }
    }
}
