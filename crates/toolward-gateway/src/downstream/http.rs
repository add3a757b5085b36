//! The Streamable HTTP endpoint: routes, sessions, stateless requests.

pub(super) mod route;
mod session;
mod stateless;
mod stateless_clients;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use toolward_wire::headers;
use toolward_wire::http::{Method, RequestHead};
use toolward_wire::{Era, Revision, Sender, meta};

use self::route::{Admitted, Route};
use self::stateless_clients::StatelessClients;
use super::frame::Frame;
use super::peer::Peer;
use super::response::{Content, Response, Ticket, json};
use super::sessions::Sessions;
use super::tls::Tls;
use crate::active::Active;
use crate::audit::{Recording, Source};
use crate::budget::Reservation;
use crate::client::{Caller, Scope};
use crate::gateway::Gateway;
use crate::log::RejectedCredentials;
use crate::opaque_id::Sealer;
use crate::parse::parse;
use crate::responses;
use crate::upstream::Server;
use crate::validate;

/// Events queued for a client that does not read: one is being written, one is next.
const WAITING: usize = 1;
/// If nothing has been sent for this long, the request is answered with a stream: its head and the
/// keep-alive comments show clients and proxies that the request is still being processed.
const QUIET: Duration = Duration::from_secs(2);
/// The reason logged for such rejected requests.
const NOT_ACCEPTED: &str = "the client does not accept the response's content type";

/// The HTTP endpoint behind one or several listening sockets.
pub struct Endpoint {
    pub(super) gateway: Arc<Gateway>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) sessions: Sessions,
    pub(super) request_bytes: usize,
    /// The maximum number of an agent's requests that wait for their response.
    pub(super) waiting_requests: usize,
    /// Requests that are being read, processed or answered.
    busy: AtomicUsize,
    /// The gateway will shut down: load balancers are to send requests elsewhere.
    draining: AtomicBool,
    stateless: StatelessClients,
    rejected: RejectedCredentials,
}

/// The body of a request, and its reserved memory.
pub(super) struct RequestBody {
    pub(super) body: Bytes,
    pub(super) room: Reservation,
}

/// Counts a request as in flight, from its head to the end of its response.
pub(super) struct RequestGuard<'e>(&'e Endpoint);

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The configuration of an endpoint.
pub struct Setup {
    /// For TCP sockets.
    pub tls: Option<Arc<Tls>>,
    pub sealer: Arc<Sealer>,
    /// The state directory.
    pub state: PathBuf,
    /// The maximum size of a request, in bytes.
    pub request_bytes: usize,
    /// The maximum number of an agent's requests that wait for their response. Further ones are rejected at once.
    pub waiting_requests: usize,
    /// The idle timeout of sessions; `None`: 30 minutes.
    pub session_idle: Option<Duration>,
}

impl Endpoint {
    pub fn new(gateway: Arc<Gateway>, setup: Setup) -> Endpoint {
        Endpoint {
            gateway,
            tls: setup.tls,
            sessions: Sessions::new(setup.sealer, setup.session_idle, &setup.state),
            request_bytes: setup.request_bytes,
            waiting_requests: setup.waiting_requests,
            busy: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            stateless: StatelessClients::default(),
            rejected: RejectedCredentials::default(),
        }
    }

    /// Reports that the gateway is not ready, and serves on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn begin(&self) -> RequestGuard<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        RequestGuard(self)
    }

    /// Whether a request is in flight, including those whose connection is lost.
    pub(super) fn is_busy(&self) -> bool {
        let in_flight = |server: &Arc<Server>| server.calls.under_way() > 0;
        let calls = || self.gateway.active().servers.iter().any(in_flight);
        self.busy.load(Ordering::Acquire) > 0 || calls()
    }

    /// Counts a rejected request of an unauthenticated caller.
    pub(super) fn turned_away(&self, peer: &Peer, head: Option<&RequestHead>, why: &'static str) {
        let source = peer.source(&self.gateway.active().reachable, head);
        self.gateway.context.audit.turned_away(&source, why);
    }

    /// Counts and logs a request that is rejected because of its credential.
    pub(super) fn reject_credential(&self, peer: &Peer, head: &RequestHead, why: &'static str) {
        let source = peer.source(&self.gateway.active().reachable, Some(head));
        self.gateway.context.audit.turned_away(&source, why);
        self.rejected.log(&source, why);
    }

    /// Counts a rejected request that has no audit record of its own, by its agent or else by its source
    /// address.
    pub(super) fn count(
        &self,
        peer: &Peer,
        head: &RequestHead,
        agent: Option<&Arc<str>>,
        response: &Response,
    ) {
        match (response.unrecorded, agent) {
            (None, _) => {}
            (Some(why), Some(agent)) => {
                self.gateway.context.audit.turn_away(Source::Agent(agent.clone()), why);
            }
            (Some(why), None) => self.turned_away(peer, Some(head), why),
        }
    }

    pub(super) async fn respond(
        self: &Arc<Self>,
        peer: &Peer,
        admitted: Admitted,
        head: RequestHead,
        body: RequestBody,
    ) -> Response {
        let active = admitted.active;
        match (admitted.route, head.method) {
            // With `audit.required`, no call is forwarded without an audit record, so the gateway is not
            // ready.
            (Route::Health("ready"), _) => {
                let (status, word) = match self.gateway.context.audit.recording().await {
                    _ if self.draining.load(Ordering::Acquire) => (503, "draining"),
                    Recording::Refused => (503, "failing"),
                    _ if active.denies_all => (503, "denying"),
                    Recording::Unrecorded => (200, "ready, and calls go unrecorded"),
                    Recording::Recorded if self.gateway.context.audit.is_low_on_space() => {
                        (200, "ready, and the disk of the audit log is nearly full")
                    }
                    Recording::Recorded => (200, "ready"),
                };
                Response::new(status, Content::Text(word))
            }
            (Route::Health(word), _) => Response::new(200, Content::Text(word)),
            (Route::Mcp { caller, scope, .. }, Method::Post) => {
                let agent = caller.agent.clone();
                let response = self.post(peer, active, (caller, scope), &head, body).await;
                self.count(peer, &head, agent.as_ref(), &response);
                Ticket::keep(response, agent, head)
            }
            (Route::Mcp { caller, scope, until }, method) => {
                // The stream ends when the credential expires.
                let response = self.session_method(&active, (&caller, scope), method, &head);
                self.count(peer, &head, caller.agent.as_ref(), &response);
                Ticket::keep(Response { until, ..response }, caller.agent, head)
            }
        }
    }

    async fn post(
        self: &Arc<Self>,
        peer: &Peer,
        active: Arc<Active>,
        (caller, scope): (Caller, Scope),
        head: &RequestHead,
        RequestBody { body, room }: RequestBody,
    ) -> Response {
        let stated = head.headers.get(headers::PROTOCOL_VERSION);
        let says_modern =
            stated.and_then(Revision::parse).is_some_and(|revision| revision.era() == Era::Modern);
        let message = match parse(body, self.request_bytes, Sender::Client).await {
            Ok(message) => message,
            Err(malformed) => {
                let era = if says_modern { Era::Modern } else { Era::Legacy };
                return json(responses::malformed(&malformed, era));
            }
        };
        if !accepts(head, "application/json") && !accepts(head, "text/event-stream") {
            return Response::refused(406, NOT_ACCEPTED);
        }
        let era = if says_modern { Era::Modern } else { validate::era(&message) };
        match era {
            Era::Modern => {
                self.stateless(active, (caller, scope), (peer, head), message, room).await
            }
            Era::Legacy => self.legacy(active, (caller, scope), head, message, room).await,
        }
    }
}

/// Whether the client accepts a content type. Without an `Accept` header, it accepts everything.
fn accepts(head: &RequestHead, kind: &str) -> bool {
    // Nearly every client sends exactly this, so it is not parsed.
    const USUAL: &[u8] = b"application/json, text/event-stream";
    let mut said = false;
    for value in head.headers.values("accept") {
        if value == USUAL && matches!(kind, "application/json" | "text/event-stream") {
            return true;
        }
        said = true;
        let range = kind.split('/').next().unwrap_or_default();
        for one in std::str::from_utf8(value).unwrap_or_default().split(',') {
            let one = one.split(';').next().unwrap_or_default().trim();
            let any = |one: &str| one.eq_ignore_ascii_case(range);
            if one.eq_ignore_ascii_case(kind)
                || one == "*/*"
                || one.strip_suffix("/*").is_some_and(any)
            {
                return true;
            }
        }
    }
    !said
}

/// The trace context of the request, from its `traceparent` header.
fn trace_parent(head: &RequestHead) -> Option<&str> {
    head.headers.get(meta::TRACE_PARENT)
}

fn param_headers(head: &RequestHead) -> Vec<(String, String)> {
    let named = head.headers.with_prefix(headers::PARAM_PREFIX);
    let text = |value| std::str::from_utf8(value).ok();
    named
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase(), text(value)?.into())))
        .collect()
}

/// The response to a request that its client cancelled: a stream that ends without a JSON-RPC response.
///
/// MCP defines no response for a cancelled request, and 202 only for notifications and responses. For a
/// client that does not accept events, there is no better status.
fn cancelled(wants_events: bool) -> Response {
    if !wants_events {
        return Response::empty(202);
    }
    let (out, events) = mpsc::channel(1);
    let _ = out.try_send(Frame::keep_alive());
    Response::new(200, Content::Stream(events))
}
