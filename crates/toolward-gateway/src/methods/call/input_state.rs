//! `requestState` of a modern client: what a server asked during a call, sealed.
//!
//! The gateway keeps nothing between the rounds. The state is bound to the agent and its holder, to the call it was
//! made for and to the keys that were asked, and contains the server's own state.

use std::borrow::Cow;
use std::io;

use sha2::{Digest, Sha256};
use toolward_wire::input_requests::{self, InputRequest};
use toolward_wire::{Edit, MAX_REQUEST_BYTES, Message, Raw, RawMember, Sender, meta, string};

use super::questions::{Declined, MALFORMED, rule};
use crate::active::Active;
use crate::client::Client;
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
    /// The server requires visits of URLs, and gets the call again without the responses: it has no notion of them.
    is_visit: bool,
}

impl State {
    fn to_json(&self) -> Vec<u8> {
        let upstream = self.upstream.as_deref().map(String::from_utf8_lossy);
        let state = (&self.server, self.call, &self.keys, upstream, self.is_visit);
        serde_json::json!(state).to_string().into_bytes()
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
        let (upstream, is_visit) = (upstream.map(String::into_bytes), value.get(4)?.as_bool()?);
        Some(State { server, call, keys, upstream, is_visit })
    }
}

impl State {
    fn seal(&self, context: &Context, envelope: &Envelope) -> Result<String, Declined> {
        let caller = &envelope.client.caller;
        let sealed = context.sealer.seal(Kind::State, caller, SECONDS, &self.to_json());
        sealed.map_err(|_: io::Error| Declined("the state cannot be sealed"))
    }
}

/// A problem with the state of a call.
pub(super) enum StateError {
    Unusable(&'static str),
    /// The user did not visit the URL that the server requires.
    NotVisited,
}

impl From<&'static str> for StateError {
    fn from(why: &'static str) -> StateError {
        StateError::Unusable(why)
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
    let entries = input_requests::entries(message).ok_or(MALFORMED)?;
    let (active, client) = (&envelope.active, &envelope.client);
    let requests = decide(active, client, server, &entries)?;
    let keys = entries.iter().map(|(key, _)| key.clone().into_owned()).collect();
    let upstream = message.result_member("requestState").map(|raw| raw.bytes().to_vec());
    let state = State { server: server.into(), call: request, keys, upstream, is_visit: false };
    let sealed = state.seal(context, envelope)?;
    let mut edit = message.edit().id(&envelope.id).remove_own_meta();
    if let Some(requests) = requests {
        edit = edit.set_result("inputRequests", requests);
    }
    Ok(edit.set_result("requestState", string::quote(&sealed)).finish_shared().into())
}

/// The state of a call whose server requires visits of URLs, which are asked under these keys.
pub(super) fn of_visit(
    context: &Context,
    envelope: &Envelope,
    (server, call): (&str, [u8; 32]),
    keys: Vec<String>,
) -> Result<String, Declined> {
    let state = State { server: server.into(), call, keys, upstream: None, is_visit: true };
    state.seal(context, envelope)
}

/// Decides about what a server asks: `inputRequests` with changed parameters, if some have to change.
pub(super) fn decide(
    active: &Active,
    client: &Client,
    server: &str,
    entries: &[(Cow<'_, str>, InputRequest<'_>)],
) -> Result<Option<Vec<u8>>, Declined> {
    let mut asked = Vec::new();
    for (key, entry) in entries {
        // The gateway's own keys are never a server's.
        if key.starts_with(meta::OWN_PREFIX) {
            return Err(MALFORMED);
        }
        asked.push((key, entry, rule(active, client, server, entry)?));
    }
    Ok(asked.iter().any(|(.., params)| params.is_some()).then(|| rewritten(&asked)))
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

/// A call with the client's input, as sent to the server; `None` if the call has no input. A state of another
/// agent is treated like one that never existed.
pub(super) fn repeated(
    context: &Context,
    envelope: &Envelope,
    name: &str,
    message: &Message,
) -> Result<Option<Repeated>, StateError> {
    let responses = message.param("inputResponses");
    let Some(state) = message.param("requestState") else {
        return responses.map(|responses| unasked(envelope, message, responses)).transpose();
    };
    if responses.is_some_and(|raw| !raw.is_object()) {
        return Err("`inputResponses` must be an object".into());
    }
    const UNKNOWN: &str = "the `requestState` is not known; call again without it";
    let handle = state.as_str().ok_or(UNKNOWN)?;
    let payload = context.sealer.open(Kind::State, &envelope.client.caller, &handle);
    let state = payload.as_deref().and_then(State::read).ok_or(UNKNOWN)?;
    if state.call != digest(envelope.row.name, name, message) {
        return Err("the `requestState` belongs to another call".into());
    }
    let visited = |key: &String| {
        let response = responses.and_then(|raw| raw.member(key));
        let action = response.and_then(|raw| raw.member("action")).and_then(Raw::as_str);
        action.as_deref() == Some("accept")
    };
    if state.is_visit && !state.keys.iter().all(visited) {
        return Err(StateError::NotVisited);
    }
    let change = |edit: Edit<'_>| -> bytes::Bytes {
        let edit = match &state.upstream {
            Some(upstream) => edit.set_param("requestState", upstream.clone()),
            None => edit.remove_param("requestState"),
        };
        let was_asked = |member: &RawMember<'_>| state.keys.iter().any(|key| member.is(key));
        match responses {
            Some(_) if state.is_visit => edit.remove_param("inputResponses").finish(),
            Some(all) => edit.set_param("inputResponses", all.kept(was_asked)).finish(),
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

/// A call with responses to questions that the gateway did not relay. They reach the server only if every question of it
/// would reach the client; a client must not confirm something that it may not be asked. Otherwise they are dropped,
/// and the server asks.
fn unasked(envelope: &Envelope, message: &Message, all: Raw<'_>) -> Result<Repeated, StateError> {
    let passes = all.is_object() && envelope.active.relays_everything(&envelope.client);
    let is_response = |member: &RawMember<'_>| {
        member.value.is_object() && !member.name().starts_with(meta::OWN_PREFIX)
    };
    let edit = match passes.then(|| all.kept(is_response)).filter(|kept| kept != b"{}") {
        Some(kept) => message.edit().set_param("inputResponses", kept),
        None => message.edit().remove_param("inputResponses"),
    };
    let message = Message::parse(edit.finish(), usize::MAX, Sender::Client);
    let message = message.map_err(|_| "`inputResponses` is not valid")?;
    Ok(Repeated { message, server: None })
}
