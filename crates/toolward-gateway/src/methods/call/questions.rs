//! Requests of a server to the client while a call is in flight.
//!
//! | client | server | how |
//! |---|---|---|
//! | legacy | legacy | the request is sent on the stream of the call, under an id of the gateway |
//! | legacy | modern | each entry of `inputRequests` is sent like that, then the call is repeated with the responses |
//! | modern | modern | `input_required` is relayed with a sealed state (`input_state.rs`) |
//! | modern | legacy | the call is held, and continued by the client's next request (`hold.rs`) |
//!
//! A request that the policy does not allow, or that cannot be delivered, is declined and ends the call
//! as a refusal: the server must not continue as if it had been confirmed.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::oneshot;
use toolward_wire::input_requests::{self, InputRequest};
use toolward_wire::jsonrpc::result_body;
use toolward_wire::{Era, Id, Kind, MAX_REQUEST_BYTES, Message, Sender};

use crate::active::Active;
use crate::client::outlet::{ClientResponse, PendingResponse, declined, request};
use crate::context::Context;
use crate::methods::events;
use crate::methods::request::Envelope;
use crate::notifications::Notes;
use crate::upstream::Server;

/// The requests of one call.
pub(super) struct Questions<'a> {
    pub(super) context: &'a Context,
    pub(super) envelope: &'a Envelope,
    pub(super) server: &'a Arc<Server>,
    /// The audit record of the call.
    pub(super) intent: String,
    pub(super) notes: &'a Notes,
    open: Vec<OpenQuestion>,
}

/// A request that waits for the client.
struct OpenQuestion {
    /// The server's id, or the key in `inputRequests` as a string.
    id: Id,
    method: Box<str>,
    pending: Pending,
}

/// Where the response comes from.
enum Pending {
    /// The gateway itself.
    Own(Option<Message>),
    Session(PendingResponse),
    Parked(oneshot::Receiver<ClientResponse>),
}

impl Pending {
    async fn response(&mut self) -> Option<ClientResponse> {
        match self {
            Pending::Own(message) => {
                message.take().map(|message| ClientResponse { message, _room: None })
            }
            Pending::Session(pending) => pending.response().await,
            Pending::Parked(response) => response.await.ok(),
        }
    }
}

/// Why a request was declined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declined(pub(super) &'static str);

pub(super) const MALFORMED: Declined = Declined("the server's requests are malformed");

impl<'a> Questions<'a> {
    pub(super) fn new(
        context: &'a Context,
        envelope: &'a Envelope,
        server: &'a Arc<Server>,
        intent: &str,
        notes: &'a Notes,
    ) -> Questions<'a> {
        Questions { context, envelope, server, intent: intent.into(), notes, open: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Sends a request of the server to the client.
    pub(super) async fn ask(&mut self, id: Id, message: &Message) -> Result<(), Declined> {
        let asked = InputRequest::of(message);
        let sent = match &asked {
            Some(asked) => self.send(asked, |id, params| request(message, id, params)).await,
            None => Err(Declined("the request is malformed")),
        };
        let method = message.method().unwrap_or_default();
        self.opened(id, &method, sent).await
    }

    /// Sends an entry of `inputRequests` to the client.
    pub(super) async fn ask_entry(
        &mut self,
        key: &str,
        asked: &InputRequest<'_>,
    ) -> Result<(), Declined> {
        let whole = |id: &Id, params: Option<&[u8]>| {
            let params = params.or(asked.params.map(|raw| raw.bytes()));
            // Legacy clients require an id, which modern servers do not have.
            let lacks_id =
                asked.name() == Some("elicitation.url") && asked.elicitation_id().is_none();
            let with_id = params.filter(|_| lacks_id).and_then(|params| with_visit_id(params, id));
            let params = with_id.as_deref().or(params);
            toolward_wire::jsonrpc::request_body(Some(id), &asked.method, params)
        };
        let sent = self.send(asked, whole).await;
        self.opened(Id::text(key), &asked.method, sent).await
    }

    async fn opened(
        &mut self,
        id: Id,
        method: &str,
        sent: Result<Pending, Declined>,
    ) -> Result<(), Declined> {
        match sent {
            Ok(pending) => {
                self.open.push(OpenQuestion { id, method: method.into(), pending });
                Ok(())
            }
            Err(declined) => {
                self.record(method, "deny", "declined", Some(declined.0)).await;
                Err(declined)
            }
        }
    }

    async fn send(
        &self,
        asked: &InputRequest<'_>,
        body: impl FnOnce(&Id, Option<&[u8]>) -> Bytes,
    ) -> Result<Pending, Declined> {
        if let Some(own) = self.own_answer(asked) {
            return Ok(Pending::Own(Some(own)));
        }
        let client = &self.envelope.client;
        // A call may be held for long: the configuration of the moment decides, not that of its beginning.
        let active = self.context.current.get();
        let active = active.as_ref().unwrap_or(&self.envelope.active);
        let params = rule(active, client, self.server.name(), asked)?;
        if let Some(parking) = &self.envelope.parking {
            let unchanged = || asked.params.map(|raw| Bytes::copy_from_slice(raw.bytes()));
            let response = parking.ask(&asked.method, params.or_else(unchanged));
            return Ok(Pending::Parked(response));
        }
        let outlet = client.outlet.as_ref().ok_or(Declined("the client has no session"))?;
        let pending = outlet.register().ok_or(Declined("too many requests wait for the client"))?;
        match self.notes.ask(body(&pending.id, params.as_deref())).await {
            true => {
                if let Some(id) = asked.elicitation_id() {
                    outlet.expect_visit(self.server.name(), &id);
                }
                Ok(Pending::Session(pending))
            }
            false => Err(Declined("the client cannot receive requests on this connection")),
        }
    }

    /// The gateway's answer to a request that the configuration answers: `roots/list` with `roots`.
    fn own_answer(&self, asked: &InputRequest<'_>) -> Option<Message> {
        let roots = self.server.definition.roots.as_ref()?;
        if asked.name() != Some("roots") {
            return None;
        }
        let body = result_body(&Id::number(0), roots.result());
        Message::parse(body, MAX_REQUEST_BYTES, Sender::Client).ok()
    }

    /// Whether the gateway answers something that an `input_required` result contains.
    pub(super) fn has_own_answer(&self, asked: &Message) -> bool {
        !self.own_answers(asked).is_empty()
    }

    /// The gateway's answers to what a result asks, by key.
    pub(super) fn own_answers(&self, asked: &Message) -> Vec<(String, Message)> {
        let entries = input_requests::entries(asked).unwrap_or_default().into_iter();
        let own = entries.filter_map(|(key, entry)| Some((key.into(), self.own_answer(&entry)?)));
        own.collect()
    }

    /// The next response of the client, with the server's id of the request. `None` instead of a response if the
    /// client's session has ended. Pending forever while no request waits.
    pub(super) async fn response(&mut self) -> (Id, Option<Message>) {
        let open = &mut self.open;
        let (at, response) = poll_fn(|context| {
            for (at, question) in open.iter_mut().enumerate() {
                if let Poll::Ready(response) = pin!(question.pending.response()).poll(context) {
                    return Poll::Ready((at, response));
                }
            }
            Poll::Pending
        })
        .await;
        let OpenQuestion { id, method, pending } = self.open.swap_remove(at);
        let outcome = match &response {
            Some(_) if matches!(pending, Pending::Own(_)) => "configured",
            Some(response) if response.message.kind() == Kind::Error => "declined",
            Some(_) => "answered",
            None => "disconnected",
        };
        self.record(&method, "allow", outcome, None).await;
        (id, response.map(|response| response.message))
    }

    /// Asks the client everything that an `input_required` result contains: the responses as `inputResponses`. A modern
    /// client is not asked here: only what the gateway answers itself is in the result.
    pub(super) async fn gather(&mut self, asked: &Message) -> Result<Vec<u8>, Declined> {
        let entries = input_requests::entries(asked);
        let entries = entries.ok_or(MALFORMED)?;
        let is_modern = self.envelope.client.era() == Era::Modern;
        for (key, entry) in &entries {
            if !is_modern || self.own_answer(entry).is_some() {
                self.ask_entry(key, entry).await?;
            }
        }
        let mut responses: Vec<(Id, Vec<u8>)> = Vec::new();
        while !self.is_empty() {
            let (id, response) = self.response().await;
            let response = response.ok_or(Declined("the client disconnected"))?;
            let declined = |id: &Id| {
                let is = |(key, _): &&(Cow<'_, str>, InputRequest<'_>)| Id::text(key) == *id;
                let entry = entries.iter().find(is).and_then(|(_, entry)| entry.name());
                entry.is_some_and(|name| name.starts_with("elicitation"))
            };
            let result = match response.result() {
                Some(result) => result.bytes().to_vec(),
                // A client that fails has not confirmed anything.
                None if declined(&id) => br#"{"action":"cancel"}"#.to_vec(),
                None => return Err(Declined("the client returned an error")),
            };
            responses.push((id, result));
        }
        let mut out = vec![b'{'];
        for (id, result) in responses {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(id.raw());
            out.push(b':');
            out.extend_from_slice(&result);
        }
        out.push(b'}');
        Ok(out)
    }

    /// Records what a modern client is asked for.
    pub(super) async fn record_relayed(&self, asked: &Message, declined: Option<Declined>) {
        let (verdict, outcome) = match declined {
            None => ("allow", "relayed"),
            Some(_) => ("deny", "declined"),
        };
        for (_, entry) in input_requests::entries(asked).unwrap_or_default() {
            self.record(&entry.method, verdict, outcome, declined.map(|declined| declined.0)).await;
        }
    }

    /// Records the URLs that a client has to visit.
    pub(super) async fn record_visits(&self, count: usize, declined: Option<Declined>) {
        let (verdict, outcome) = match declined {
            None => ("allow", "relayed"),
            Some(_) => ("deny", "declined"),
        };
        for _ in 0..count {
            let reason = declined.map(|declined| declined.0);
            self.record("elicitation/create", verdict, outcome, reason).await;
        }
    }

    /// Records the requests that still wait when the call ends.
    pub(super) async fn finish(&mut self) {
        for question in std::mem::take(&mut self.open) {
            self.record(&question.method, "allow", "timed-out", None).await;
        }
    }

    async fn record(
        &self,
        method: &str,
        verdict: &'static str,
        outcome: &'static str,
        reason: Option<&str>,
    ) {
        let question =
            events::Question { server: self.server.name(), method, verdict, outcome, reason };
        let facts = events::question(self.envelope, &self.intent, &question);
        let audit = &self.context.audit;
        // The call itself is recorded already. A log that cannot be written stops the next call.
        let _ = audit.record(&audit.id(), "question", &facts).await;
    }
}

/// The parameters of a request to visit a URL, with an id.
fn with_visit_id(params: &[u8], id: &Id) -> Option<Vec<u8>> {
    let mut params: serde_json::Value = serde_json::from_slice(params).ok()?;
    params.as_object_mut()?.insert("elicitationId".into(), serde_json::from_slice(id.raw()).ok()?);
    Some(params.to_string().into_bytes())
}

/// The response that declines a request, as a message.
pub(super) fn decline(id: &Id, message: &Message) -> Option<Message> {
    let body = declined(id, InputRequest::of(message).as_ref());
    Message::parse(body, MAX_REQUEST_BYTES, Sender::Client).ok()
}

/// Decides whether a request may reach the client: the parameters if they have to change.
pub(super) fn rule(
    active: &Active,
    client: &crate::client::Client,
    server: &str,
    asked: &InputRequest<'_>,
) -> Result<Option<Bytes>, Declined> {
    active.client_request(client, server, asked).map_err(Declined)
}
