//! The request to a hook: a JSON object that describes the call.

use serde_json::{Map, Value, json};
use toolward_wire::{Raw, line, meta, string};

use super::super::{GuardedCall, Plan};
use crate::upstream::Reach;

/// The request. `id` is set for persistent processes.
pub(super) fn json(call: &GuardedCall<'_>, arguments: bool, id: Option<u64>) -> Vec<u8> {
    let (permit, message) = (call.permit, call.permit.message());
    let decided = permit.decision();
    let mut object = Object::new();
    object.raw("version", b"1");
    if let Some(id) = id {
        object.raw("id", id.to_string().as_bytes());
    }
    let caller = call.client.caller.policy();
    object.text("agent", caller.agent);
    object.text("server", Some(&decided.server));
    object.text("tool", Some(&decided.original));
    object.text("action", permit.action());
    object.raw("definition", call.plan.map_or(b"null", |plan| plan.definition.as_bytes()));
    let hints: Vec<&str> =
        call.plan.map(|plan| plan.hints.iter().map(|hint| &**hint).collect()).unwrap_or_default();
    object.raw("hints", json!(hints).to_string().as_bytes());
    object.raw("client", &client(call));
    let claims = caller.claims.map_or_else(|| "null".into(), |claims| json!(claims).to_string());
    object.raw("claims", claims.as_bytes());
    object.raw("request_id", call.id.raw());
    if arguments {
        let given = message.arguments().map_or(&b"{}"[..], |given| given.raw().bytes());
        object.raw("arguments", given);
    }
    object.finish()
}

/// The client's name, version and capabilities. They are the client's own claims and unverified.
fn client(call: &GuardedCall<'_>) -> Vec<u8> {
    let message = call.permit.message();
    let info = match &call.client.info {
        Some(info) => Raw::scan(info, info.len()).ok(),
        None => message.meta(meta::CLIENT_INFO),
    };
    let capabilities = match &call.client.capabilities {
        Some(stated) => Raw::scan(stated, stated.len()).ok(),
        None => message.meta(meta::CLIENT_CAPABILITIES),
    };
    let mut object = Object::new();
    for name in ["name", "version"] {
        let value = info.and_then(|info| info.member(name)?.as_str());
        object.text(name, value.as_deref());
    }
    object.raw("capabilities", capabilities.map_or(b"null", Raw::bytes));
    object.finish()
}

/// The request on one line. Line breaks between JSON tokens become spaces.
pub(super) fn line(request: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(request.len() + 1);
    line::encode(request, &mut out);
    out
}

/// The tool's definition for a `policy_sh`. Members that the gateway adds override the server's.
///
/// `None` if the definition is not an object: the policy would have to decide without it.
pub(super) fn metadata<'p>(call: &GuardedCall<'_>, plan: &'p Plan) -> Option<&'p str> {
    if let Some(known) = plan.metadata.get() {
        return Some(known);
    }
    let mut metadata: Map<String, Value> = serde_json::from_str(&plan.definition).ok()?;
    metadata.insert("server".into(), json!(call.server.name()));
    match &call.server.definition.reach {
        Reach::Child(launch) => {
            metadata.insert("path".into(), json!(launch.program.to_string_lossy()));
        }
        Reach::InMemory(_) | Reach::Http(_) | Reach::Own => drop(metadata.remove("path")),
    }
    let timeouts = &call.server.definition.timeouts;
    let timeout = timeouts.reported(&call.permit.decision().original);
    let whole = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    metadata.insert("timeoutSecs".into(), json!(whole));
    Some(plan.metadata.get_or_init(|| Value::Object(metadata).to_string().into()))
}

/// A writer for a JSON object.
struct Object(Vec<u8>);

impl Object {
    fn new() -> Object {
        Object(Vec::with_capacity(512))
    }

    /// Adds a value that is JSON already. Names need no escaping.
    fn raw(&mut self, name: &str, value: &[u8]) {
        self.0.extend_from_slice(if self.0.is_empty() { b"{\"" } else { b",\"" });
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, name: &str, text: Option<&str>) {
        self.raw(name, b"");
        match text {
            Some(text) => string::write(text, &mut self.0),
            None => self.0.extend_from_slice(b"null"),
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}
