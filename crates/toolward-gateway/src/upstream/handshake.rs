//! What is said first on a link, what its answer means, and the few other words of the gateway's own.

use bytes::Bytes;
use serde_json::{Value, json};
use toolward_wire::jsonrpc::{error_body, request_body, result_body};
use toolward_wire::jsonrpc_error::code;
use toolward_wire::{Era, Id, Kind, MAX_REQUEST_BYTES, Message, Raw, Revision, Sender};
use toolward_wire::{meta, method};

use super::{Key, Unavailable};
use crate::client::{Client, Owner};
use crate::permit::Outgoing;

/// The `clientInfo` and `serverInfo` of the gateway itself.
pub(crate) const OWN_INFO: &str =
    concat!("{\"name\":\"toolward\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}");

/// What is said first on a link.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    /// `server/discover`, which also tells whether the server is modern.
    Modern,
    /// `initialize` with these parameters.
    Legacy { params: Bytes },
}

impl Opening {
    pub(super) fn new(key: &Key, client: &Client) -> Opening {
        match key.revision.era() {
            Era::Modern => Opening::Modern,
            Era::Legacy => Opening::Legacy { params: hello_params(key, client).into() },
        }
    }

    pub(crate) fn era(&self) -> Era {
        match self {
            Opening::Modern => Era::Modern,
            Opening::Legacy { .. } => Era::Legacy,
        }
    }

    pub(super) fn method(&self) -> &'static str {
        match self {
            Opening::Modern => "server/discover",
            Opening::Legacy { .. } => "initialize",
        }
    }

    pub(super) fn request(&self, id: &Id) -> Option<Bytes> {
        match self {
            Opening::Legacy { params } => Some(request_body(Some(id), self.method(), Some(params))),
            Opening::Modern => {
                let own = own_request(self.method(), json!({}), Era::Modern)?;
                Some(own.message.edit().id(id).finish())
            }
        }
    }

    /// What to say instead to a server that rejects the revision and lists those that it supports: the
    /// newest of these. `None` if there is none, or it was just asked for.
    pub(super) fn in_supported(&self, answer: &Message) -> Option<Opening> {
        let Opening::Legacy { params } = self else { return None };
        let supported = answer.error_data()?.member("supported")?;
        let newest = supported
            .elements()
            .filter_map(|(one, _)| Revision::parse(&one.as_str()?))
            .filter(|revision| revision.era() == Era::Legacy)
            .max()?;
        let mut params: Value = serde_json::from_slice(params).ok()?;
        let asked = params.get_mut("protocolVersion")?;
        if *asked == newest.as_str() {
            return None;
        }
        *asked = newest.as_str().into();
        Some(Opening::Legacy { params: params.to_string().into() })
    }

    /// What the answer to it says: that the server speaks the era, or that it does not.
    pub(super) fn accept(&self, answer: &Message) -> Result<(), Unavailable> {
        if answer.kind() != Kind::Error {
            return Ok(());
        }
        match self {
            // Old servers say all sorts of things to what they do not know. A modern server that has
            // other revisions than ours may still have an old one.
            Opening::Modern => Err(Unavailable::OtherEra),
            Opening::Legacy { .. } => {
                // What a modern server says of a request without its terms, or of the method.
                let foreign = [
                    code::METHOD_NOT_FOUND,
                    code::INVALID_PARAMS,
                    code::INVALID_REQUEST,
                    code::UNSUPPORTED_VERSION,
                ];
                match answer.error_code() {
                    Some(code) if foreign.iter().any(|one| i64::from(*one) == code) => {
                        Err(Unavailable::OtherEra)
                    }
                    _ => {
                        let why = answer.error_message().unwrap_or_default();
                        Err(Unavailable::Down(format!("it refused `initialize`: {why}")))
                    }
                }
            }
        }
    }

    /// Whether what gave this answer may be asked in the other era: it does not know the question,
    /// rather than that it knows it and refuses us.
    pub(super) fn is_unknown(&self, answer: &Message) -> bool {
        let refuses = Some(i64::from(code::UNSUPPORTED_VERSION));
        matches!(self, Opening::Modern) && answer.error_code() != refuses
    }
}

/// What a legacy server is told first. Nothing that a server may ask of a client passes yet, so that
/// no capability is declared.
fn hello_params(key: &Key, client: &Client) -> String {
    let own = || json!({"name": "toolward", "version": env!("CARGO_PKG_VERSION")});
    // Whoever shares a link does not speak for the others.
    let info = client.info.as_ref().filter(|_| key.owner != Owner::Everyone);
    let info = info.and_then(|info| serde_json::from_slice(info).ok()).unwrap_or_else(own);
    let revision = key.revision.as_str();
    json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": info}).to_string()
}

/// A request that the gateway itself makes, with what a modern server wants to know.
pub(super) fn own_request(method: &'static str, mut params: Value, era: Era) -> Option<Outgoing> {
    if era == Era::Modern {
        params["_meta"] = json!({
            meta::PROTOCOL_VERSION: Revision::newest(Era::Modern).as_str(),
            meta::CLIENT_INFO: {"name": "toolward", "version": env!("CARGO_PKG_VERSION")},
            meta::CLIENT_CAPABILITIES: {},
        });
    }
    let row = method::lookup(method, Sender::Client, era)?;
    let body = request_body(Some(&Id::number(0)), method, Some(params.to_string().as_bytes()));
    let message = Message::parse(body, MAX_REQUEST_BYTES, Sender::Client).ok()?;
    Some(Outgoing { message, row, name: None, headers: Vec::new(), longest: None, room: None })
}

/// The gateway's own answer to a server's request: nothing that a server may ask passes yet.
pub(super) fn own_answer(message: &Message, id: &Id) -> Bytes {
    match message.method().as_deref() {
        Some("ping") => result_body(id, b"{}"),
        _ => error_body(Some(id), code::METHOD_NOT_FOUND, "not available", None),
    }
}

/// Whether a server says that it tells of changes of its list.
pub(super) fn tells_changes(hello: &Message) -> bool {
    let tools = hello.result_member("capabilities").and_then(|raw| raw.member("tools"));
    tools.and_then(|tools| tools.member("listChanged")).and_then(Raw::as_bool) == Some(true)
}

pub(super) fn is_list_changed(message: &Message) -> bool {
    message.method().as_deref() == Some("notifications/tools/list_changed")
}
