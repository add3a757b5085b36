//! What a message is, before anyone acts on it. Nothing that is not in the table of methods goes any
//! further, and a modern request must say what the protocol wants it to say.

use serde_json::json;
use toolward_policy::refusal::brief;
use toolward_wire::headers::StandardHeaders;
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::{Era, Id, Kind, Message, MethodRow, Revision, Sender, meta, method};

use crate::responses::{self, Answer};

/// A message that may go on.
pub enum Incoming {
    Request {
        id: Id,
        row: &'static MethodRow,
    },
    Notification,
    /// An answer to a question; none is ever asked yet.
    Response,
}

/// The era that a message speaks: a modern request says so itself.
pub fn era(message: &Message) -> Era {
    if message.meta(meta::PROTOCOL_VERSION).is_some() { Era::Modern } else { Era::Legacy }
}

/// Takes in one message of a client.
pub fn admit(message: &Message, era: Era) -> Result<Incoming, Box<Answer>> {
    admit_with(message, era, None)
}

/// Takes in one message that came with headers.
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
    // Tasks, and answers to questions that were never passed on, are not built.
    let unbuilt: &[&str] = match era {
        // Without tasks among the declared capabilities, `task` is ignored: it is not forwarded.
        Era::Legacy => &["inputResponses", "requestState"],
        Era::Modern => &["task", "inputResponses", "requestState"],
    };
    if let Some(member) = unbuilt.iter().find(|member| message.param(member).is_some()) {
        let why = format!("`params.{member}` is not available through this gateway");
        return Err(responses::bad_params(&id, era, &why).into());
    }
    Ok(Incoming::Request { id, row })
}

/// Checks what a modern request must say of itself, and that its headers repeat it.
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
        // Of a method that is not known, no name can be known either.
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
