//! The Streamable HTTP endpoint: routes, sessions, stateless requests.

pub(super) mod route;
mod session;
mod stateless;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use toolward_wire::headers;
use toolward_wire::http::{Method, RequestHead};
use toolward_wire::{Era, Revision, Sender, meta};

use self::route::{Admitted, Place};
use self::stateless::StatelessClients;
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

/// Events that wait for a client that does not read: one is written, one is next.
const WAITING: usize = 1;
/// A request that has nothing to send for this long is answered with a stream: its head and the
/// keep-alive comments show clients and proxies that it is still being worked on.
const QUIET: Duration = Duration::from_secs(2);
/// Why requests are refused, as they are counted.
const NOT_ACCEPTED: &str = "the client does not accept what is answered";

/// Everything behind one or several listening sockets.
pub struct Endpoint {
    pub(super) gateway: Arc<Gateway>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) sessions: Sessions,
    pub(super) request_bytes: usize,
    /// Requests that are being read, worked on or answered.
    busy: AtomicUsize,
    stateless: StatelessClients,
    rejected: RejectedCredentials,
}

/// The body of a request, and the memory that it takes.
pub(super) struct Received {
    pub(super) body: Bytes,
    pub(super) room: Reservation,
}

/// A request, from its head to the end of its answer.
pub(super) struct Busy<'e>(&'e Endpoint);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How an endpoint is set up.
pub struct Setup {
    /// For sockets of TCP.
    pub tls: Option<Arc<Tls>>,
    pub sealer: Sealer,
    /// The folder of what outlives the process.
    pub state: PathBuf,
    /// The longest request.
    pub request_bytes: usize,
    /// How long a session may be idle; `None`: half an hour.
    pub session_idle: Option<Duration>,
}

impl Endpoint {
    pub fn new(gateway: Arc<Gateway>, setup: Setup) -> Endpoint {
        Endpoint {
            gateway,
            tls: setup.tls,
            sessions: Sessions::new(Arc::new(setup.sealer), setup.session_idle, &setup.state),
            request_bytes: setup.request_bytes,
            busy: AtomicUsize::new(0),
            stateless: StatelessClients::default(),
            rejected: RejectedCredentials::default(),
        }
    }

    /// Counts a request for as long as it takes.
    pub(super) fn begin(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self)
    }

    /// Whether a request is under way, also one whose connection is lost.
    pub(super) fn is_busy(&self) -> bool {
        let in_flight = |server: &Arc<Server>| server.calls.under_way() > 0;
        let calls = || self.gateway.active().servers.iter().any(in_flight);
        self.busy.load(Ordering::Acquire) > 0 || calls()
    }

    /// Counts a request that nobody answers for.
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

    /// Counts a request that was refused, where no record of its own says so: by the agent, or by
    /// where it came from.
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
        body: Received,
    ) -> Response {
        let active = admitted.active;
        match (admitted.place, head.method) {
            // Without a record no call is carried out, unless the configuration says so.
            (Place::Health("ready"), _) => {
                let (status, word) = match self.gateway.context.audit.recording().await {
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
            (Place::Health(word), _) => Response::new(200, Content::Text(word)),
            (Place::Mcp { caller, scope, .. }, Method::Post) => {
                let agent = caller.agent.clone();
                let response = self.post(active, caller, scope, &head, body).await;
                self.count(peer, &head, agent.as_ref(), &response);
                Ticket::keep(response, agent, head)
            }
            (Place::Mcp { caller, scope, until }, method) => {
                // What listens goes on for as long as the credential does.
                let response = self.session_method(&active, (&caller, scope), method, &head);
                self.count(peer, &head, caller.agent.as_ref(), &response);
                Ticket::keep(Response { until, ..response }, caller.agent, head)
            }
        }
    }

    async fn post(
        self: &Arc<Self>,
        active: Arc<Active>,
        caller: Caller,
        scope: Scope,
        head: &RequestHead,
        Received { body, room }: Received,
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
            Era::Modern => self.stateless(active, (caller, scope), head, message, room).await,
            Era::Legacy => self.in_session_era(active, (caller, scope), head, message, room).await,
        }
    }
}

/// Whether the client reads a kind of answer. One that does not say reads everything.
fn accepts(head: &RequestHead, kind: &str) -> bool {
    // What nearly every client sends, and what is asked for here: it need not be taken apart.
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

/// The trace that the client says its request belongs to.
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
/// MCP has no response for a cancelled request, and 202 only for notifications and responses. A client that
/// does not accept events can be told nothing better.
fn cancelled(wants_events: bool) -> Response {
    if !wants_events {
        return Response::empty(202);
    }
    let (out, events) = mpsc::channel(1);
    let _ = out.try_send(Frame::keep_alive());
    Response::new(200, Content::Stream(events))
}
