//! `requestState` of a modern client: what a server asked during a call, sealed.
//!
//! The gateway keeps nothing between the rounds. The state is bound to the agent and its holder, to the call it was
//! made for and to the keys that were asked, and contains the server's own state.

use std::borrow::Cow;
use std::io;

use sha2::{Digest, Sha256};
use toolward_wire::input_requests::{self, InputRequest};
use toolward_wire::{Edit, MAX_REQUEST_BYTES, Message, Sender, string};

use super::questions::{Declined, rule};
use crate::context::Context;
use crate::methods::request::Envelope;
use crate::opaque_id::Kind;
use crate::responses::Body;

/// How long a client may take to respond.
const SECONDS: u64 = 600;

/// The state that the client's next attempt must match.
struct State {
    server: String,
    /// The method, the name and a digest of the arguments.
    call: [u8; 32],
    keys: Vec<String>,
    /// The server's `requestState`, as JSON.
    upstream: Option<Vec<u8>>,
}

impl State {
    fn to_json(&self) -> Vec<u8> {
        let upstream = self.upstream.as_deref().map(String::from_utf8_lossy);
        serde_json::json!([self.server, self.call, self.keys, upstream]).to_string().into_bytes()
    }

    fn read(payload: &[u8]) -> Option<State> {
        type Parts = (String, [u8; 32], Vec<String>, Option<String>);
        let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
        let text = |at: usize| value.get(at)?.as_str().map(String::from);
        let call = value.get(1)?.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok());
        let keys = value.get(2)?.as_array()?.iter().map(|key| key.as_str().map(String::from));
        let parts: Parts = (
            text(0)?,
            call.collect::<Option<Vec<u8>>>()?.try_into().ok()?,
            keys.collect::<Option<Vec<String>>>()?,
            text(3),
        );
        let (server, call, keys, upstream) = parts;
        Some(State { server, call, keys, upstream: upstream.map(String::into_bytes) })
    }
}

/// A call that repeats an earlier one with the client's input.
pub(super) struct Repeated {
    pub(super) message: Message,
    /// The server that asked; `None` if the responses answer nothing.
    pub(super) server: Option<String>,
}

/// The `input_required` result of a server as the client gets it.
pub(super) fn relay(
    context: &Context,
    envelope: &Envelope,
    (server, request): (&str, [u8; 32]),
    message: &Message,
) -> Result<Body, Declined> {
    const MALFORMED: Declined = Declined("the server's requests are malformed");
    let entries = input_requests::entries(message).ok_or(MALFORMED)?;
    let (active, client) = (&envelope.active, &envelope.client);
    let mut asked = Vec::new();
    for (key, entry) in &entries {
        // The gateway's own keys are never a server's.
        if key.starts_with("io.toolward/") {
            return Err(MALFORMED);
        }
        asked.push((key, entry, rule(active, client, server, entry)?));
    }
    let keys = entries.iter().map(|(key, _)| key.clone().into_owned()).collect();
    let upstream = message.result_member("requestState").map(|raw| raw.bytes().to_vec());
    let state = State { server: server.into(), call: request, keys, upstream };
    let sealed = context.sealer.seal(Kind::State, &client.caller, SECONDS, &state.to_json());
    let sealed = sealed.map_err(|_: io::Error| Declined("the state cannot be sealed"))?;
    let mut edit = message.edit().id(&envelope.id).remove_own_meta();
    if asked.iter().any(|(.., params)| params.is_some()) {
        edit = edit.set_result("inputRequests", rewritten(&asked));
    }
    Ok(edit.set_result("requestState", string::quote(&sealed)).finish_shared().into())
}

/// `inputRequests` with changed parameters.
fn rewritten(asked: &[(&Cow<'_, str>, &InputRequest<'_>, Option<bytes::Bytes>)]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (key, entry, params) in asked {
        if out.len() > 1 {
            out.push(b',');
        }
        string::write(key, &mut out);
        out.extend_from_slice(b":{\"method\":");
        string::write(&entry.method, &mut out);
        let params = params.as_deref().or(entry.params.map(|raw| raw.bytes()));
        if let Some(params) = params {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(params);
        }
        out.push(b'}');
    }
    out.push(b'}');
    out
}

/// The digest that a state is bound to: the method, the name and the arguments of a call.
pub(super) fn digest(method: &str, name: &str, message: &Message) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [method, name] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    if let Some(arguments) = message.arguments() {
        hash.update(arguments.to_json().to_string().as_bytes());
    }
    hash.finalize().into()
}

/// A call with the client's input, as sent to the server; `None` if the call has no input. The error is
/// what is wrong with its state. A state of another agent is treated like one that never existed.
pub(super) fn repeated(
    context: &Context,
    envelope: &Envelope,
    name: &str,
    message: &Message,
) -> Result<Option<Repeated>, &'static str> {
    let responses = message.param("inputResponses");
    let Some(state) = message.param("requestState") else {
        // Responses to a question that was not asked are dropped, and the server asks again.
        let plain = || message.edit().remove_param("inputResponses").finish();
        let plain = responses.map(|_| Message::parse(plain(), usize::MAX, Sender::Client));
        return match plain {
            Some(Ok(message)) => Ok(Some(Repeated { message, server: None })),
            Some(Err(_)) => Err("`inputResponses` is not valid"),
            None => Ok(None),
        };
    };
    if responses.is_some_and(|raw| !raw.is_object()) {
        return Err("`inputResponses` must be an object");
    }
    const UNKNOWN: &str = "the `requestState` is not known; call again without it";
    let handle = state.as_str().ok_or(UNKNOWN)?;
    let payload = context.sealer.open(Kind::State, &envelope.client.caller, &handle);
    let state = payload.as_deref().and_then(State::read).ok_or(UNKNOWN)?;
    if state.call != digest(envelope.row.name, name, message) {
        return Err("the `requestState` belongs to another call");
    }
    let change = |edit: Edit<'_>| -> bytes::Bytes {
        let mut kept = vec![b'{'];
        for member in responses.iter().flat_map(|raw| raw.members()) {
            if state.keys.iter().any(|key| member.is(key)) {
                if kept.len() > 1 {
                    kept.push(b',');
                }
                string::write(&member.name(), &mut kept);
                kept.push(b':');
                kept.extend_from_slice(member.value.bytes());
            }
        }
        kept.push(b'}');
        let edit = match &state.upstream {
            Some(upstream) => edit.set_param("requestState", upstream.clone()),
            None => edit.remove_param("requestState"),
        };
        match responses {
            Some(_) => edit.set_param("inputResponses", kept).finish(),
            None => edit.finish(),
        }
    };
    let body = change(message.edit());
    let parsed = Message::parse(
        body,
        MAX_REQUEST_BYTES.max(message.body().len() + (64 << 10)),
        Sender::Client,
    );
    let message = parsed.map_err(|_| UNKNOWN)?;
    Ok(Some(Repeated { message, server: Some(state.server) }))
}
