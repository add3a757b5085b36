//! The handshake with a server, and the gateway's other requests and responses of its own.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use toolward_wire::input_requests::InputRequest;
use toolward_wire::jsonrpc::{request_body, result_body};
use toolward_wire::jsonrpc_error::code;
use toolward_wire::{
    ClientCapabilities, Era, Id, Kind, MAX_REQUEST_BYTES, Message, Raw, Revision, Sender,
};
use toolward_wire::{meta, method};

use super::{Key, Roots, Unavailable};
use crate::client::outlet::{Outlet, declined};
use crate::client::{Client, Owner};
use crate::permit::Outgoing;

/// The `clientInfo` and `serverInfo` of the gateway itself.
pub(crate) const OWN_INFO: &str =
    concat!("{\"name\":\"toolward\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}");

/// The first request on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    /// `server/discover`, which also detects modern servers.
    Modern,
    /// `initialize` with these parameters.
    Legacy {
        params: Bytes,
        /// The way to the client, if the connection belongs to one session.
        outlet: Option<Arc<Outlet>>,
        /// The configured roots.
        roots: Option<Roots>,
    },
}

impl Opening {
    pub(super) fn new(key: &Key, client: &Client, roots: Option<&Roots>) -> Opening {
        match key.revision.era() {
            Era::Modern => Opening::Modern,
            Era::Legacy => Opening::Legacy {
                params: hello_params(key, client, roots.is_some()).into(),
                outlet: client.outlet.clone().filter(|_| matches!(key.owner, Owner::Session(_))),
                roots: roots.cloned(),
            },
        }
    }

    pub(crate) fn era(&self) -> Era {
        match self {
            Opening::Modern => Era::Modern,
            Opening::Legacy { .. } => Era::Legacy,
        }
    }

    /// The way to the client for requests of the server that belong to no call.
    pub(super) fn outlet(&self) -> Option<&Arc<Outlet>> {
        match self {
            Opening::Legacy { outlet, .. } => outlet.as_ref(),
            Opening::Modern => None,
        }
    }

    /// The gateway's answer to `roots/list` of a legacy server.
    pub(super) fn roots(&self) -> Option<&Roots> {
        match self {
            Opening::Legacy { roots, .. } => roots.as_ref(),
            Opening::Modern => None,
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
            Opening::Legacy { params, .. } => {
                Some(request_body(Some(id), self.method(), Some(params)))
            }
            Opening::Modern => {
                let own = own_request(self.method(), json!({}), Era::Modern)?;
                Some(own.message.edit().id(id).finish())
            }
        }
    }

    /// The handshake to retry with if a server rejects the protocol version and lists those it
    /// supports: the newest of them. `None` if we support none of them, or it is the version that
    /// was rejected.
    pub(super) fn in_supported(&self, answer: &Message) -> Option<Opening> {
        let Opening::Legacy { params, outlet, roots } = self else { return None };
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
        let (params, outlet, roots) = (params.to_string().into(), outlet.clone(), roots.clone());
        Some(Opening::Legacy { params, outlet, roots })
    }

    /// Whether the response means that the server supports the protocol version.
    pub(super) fn accept(&self, answer: &Message) -> Result<(), Unavailable> {
        if answer.kind() != Kind::Error {
            return Ok(());
        }
        match self {
            // Legacy servers respond to an unknown method with all kinds of errors. A modern server
            // that supports none of our protocol versions may still support a legacy one.
            Opening::Modern => Err(Unavailable::OtherEra),
            Opening::Legacy { .. } => {
                // The errors of a modern server for a request without the required metadata, or for
                // the method.
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
}

/// The parameters of `initialize`.
fn hello_params(key: &Key, client: &Client, has_roots: bool) -> String {
    let own_info = || json!({"name": "toolward", "version": env!("CARGO_PKG_VERSION")});
    // On a shared connection, the gateway does not present one client's identity for all of them.
    let info = client.info.as_ref().filter(|_| key.owner != Owner::Everyone);
    let info = info.and_then(|info| serde_json::from_slice(info).ok()).unwrap_or_else(own_info);
    let revision = key.revision.as_str();
    let own = if has_roots { ClientCapabilities::ROOTS } else { ClientCapabilities::NONE };
    let capabilities = (key.declared | own).to_json(key.revision);
    let capabilities: Value = serde_json::from_str(&capabilities).unwrap_or_else(|_| json!({}));
    json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info})
        .to_string()
}

/// A request of the gateway itself, with the metadata that modern servers require.
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
    let (name, headers, declared) = (None, Vec::new(), ClientCapabilities::NONE);
    let (longest, room, log_level, may_be_task) = (None, None, None, false);
    Some(Outgoing { message, row, name, headers, longest, room, declared, log_level, may_be_task })
}

/// The gateway's response to a request of a server that no client has to answer.
pub(super) fn own_answer(message: &Message, id: &Id, roots: Option<&Roots>) -> Option<Bytes> {
    match message.method().as_deref() {
        Some("ping") => Some(result_body(id, b"{}")),
        Some("roots/list") => roots.map(|roots| result_body(id, roots.result())),
        _ => None,
    }
}

/// The gateway's response to a request of a server that cannot reach a client.
pub(super) fn refusal(message: &Message, id: &Id) -> Bytes {
    declined(id, InputRequest::of(message).as_ref())
}

/// The parameters of `subscriptions/listen` for the changes that a server declares to announce; `None` if it
/// announces none.
pub(super) fn announced_changes(hello: &Message) -> Option<Value> {
    let capabilities = hello.result_member("capabilities")?;
    let announced = |capability: &&str| {
        let changes = capabilities.member(capability).and_then(|raw| raw.member("listChanged"));
        changes.and_then(Raw::as_bool) == Some(true)
    };
    let kinds = ["tools", "prompts", "resources"];
    let wanted: serde_json::Map<String, Value> = kinds
        .iter()
        .copied()
        .filter(announced)
        .map(|kind| (format!("{kind}ListChanged"), json!(true)))
        .collect();
    (!wanted.is_empty()).then(|| json!({ "notifications": wanted }))
}
