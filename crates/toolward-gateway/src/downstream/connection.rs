//! An HTTP/1.1 connection: requests are parsed strictly, one after another, each with timeouts.

mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use toolward_wire::http::{BodyLength, BodyReader, HeadLimits, RequestHead, read_request};

use super::body::{read_body, status};
use super::connection_limit::Admission;
use super::http::route::canonical;
use super::http::{Endpoint, RequestBody};
use super::peer::Peer;
use super::response::{Response, json};
use super::{cors, oversized, scratch};
use crate::authn::Wrong;
use crate::budget::Reservation;
use crate::responses;

pub use self::write::write;

/// Idle timeout between two requests, and timeout of a head once it has begun.
const IDLE: Duration = Duration::from_secs(75);
const HEAD: Duration = Duration::from_secs(10);
/// Timeout for a request's head from a client that has not authenticated.
const FIRST: Duration = Duration::from_secs(10);
/// How long an evicted connection may still deliver a request that is already on the wire.
const EVICTION_GRACE: Duration = Duration::from_millis(200);
/// Memory reserved for a request besides its body, while it is read, processed or answered.
const REQUEST_ROOM: usize = 16 << 10;
/// Heads up to this length, and their buffer, are part of the fixed cost of a connection.
const USUAL_HEAD: usize = 8 << 10;
/// How long, and how many bytes of, unwanted input are read before a connection is closed.
const LINGER: Duration = Duration::from_secs(2);
const MOST_LINGERED: usize = 8 << 20;
/// Maximum bytes that a client may send ahead while its request is processed.
const AHEAD: usize = 8 << 10;

/// Whether, and how, the gateway shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    No,
    /// In-flight requests are finished.
    Now,
    /// In-flight requests are aborted, which is recorded.
    AtOnce,
    /// Another process has taken over the sockets: each connection serves one more request before it
    /// closes, so that no request is cut off.
    HandedOver,
}

impl Ending {
    /// No connection serves another request.
    pub fn is_final(self) -> bool {
        matches!(self, Ending::Now | Ending::AtOnce)
    }
}

/// Serves a connection until either side closes it or the gateway shuts down.
pub(super) async fn serve<S>(
    endpoint: Arc<Endpoint>,
    peer: Peer,
    mut stream: S,
    mut ending: watch::Receiver<Ending>,
    admission: &Admission,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = BytesMut::new();
    let head_room = endpoint.gateway.context.budget.unidentified().reserve_nothing();
    loop {
        let known = admission.is_known();
        if buffer.is_empty() {
            // An idle connection holds no buffer.
            buffer = BytesMut::new();
        }
        let head = tokio::select! {
            biased;
            head = read_head(&mut stream, &mut buffer, Some(&head_room)) => head,
            // Without a credential, a connection is not kept for long.
            () = first_request_timeout(known) => return,
            () = evicted(admission, known), if !known || buffer.is_empty() => return,
            _ = ending.wait_for(|ending| ending.is_final()), if buffer.is_empty() => return,
        };
        let _busy = endpoint.begin();
        head_room.shrink_to(0);
        let (response, keep_alive, old) = match head {
            Ok(None) => return,
            Err(status) => {
                endpoint.turned_away(&peer, None, "the head of the request is malformed");
                (Response::empty(status), false, false)
            }
            Ok(Some(head)) if !endpoint.trusts(&peer) => {
                endpoint.reject_credential(&peer, &head, Wrong::Certificate.words());
                (Response::empty(401), false, head.old)
            }
            Ok(Some(head)) => {
                let (keep_alive, old) = (head.keep_alive, head.old);
                let page = cors::page(&endpoint.gateway.active().reachable, &head);
                let Some((response, read)) =
                    exchange(&endpoint, &peer, &mut stream, &mut buffer, head, admission).await
                else {
                    // The client has disconnected.
                    return;
                };
                let response = match page {
                    Some(page) => cors::readable(response, page),
                    None => response,
                };
                // After an error, the rest of the input cannot be trusted.
                (response, keep_alive && read, old)
            }
        };
        let keep_alive = keep_alive && *ending.borrow() == Ending::No;
        let mut response = response;
        let (ticket, cancel) = (response.ticket.take(), response.cancel.take());
        let revoked = async {
            match &ticket {
                Some(ticket) => endpoint.revoked(&peer, ticket).await,
                None => std::future::pending().await,
            }
        };
        let written = tokio::select! {
            biased;
            written = write(&mut stream, &mut buffer, response, keep_alive, old) => written,
            () = revoked => {
                // The call of a session would continue without its stream.
                if let Some(cancel) = cancel {
                    cancel.cancel();
                }
                Ok(false)
            }
        };
        admission.set_busy(false);
        match written {
            Ok(true) => {}
            _ => {
                let _ = timeout(LINGER, linger(&mut stream, &mut buffer)).await;
                return;
            }
        }
    }
}

/// Resolves if a client does not authenticate in time.
async fn first_request_timeout(known: bool) {
    match known {
        true => std::future::pending().await,
        false => tokio::time::sleep(FIRST).await,
    }
}

/// Resolves when the connection is evicted. A client that has just connected may have sent its request
/// already, so it gets a moment to present its credential.
async fn evicted(admission: &Admission, known: bool) {
    admission.evicted().await;
    if !known {
        tokio::time::sleep(EVICTION_GRACE).await;
    }
}

/// Closes our side and keeps reading for a moment: if a socket is closed with unread input, the kernel
/// resets the connection and the response may be lost.
pub async fn linger<S>(stream: &mut S, buffer: &mut BytesMut)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _ = stream.shutdown().await;
    let mut read = 0;
    while read < MOST_LINGERED {
        buffer.clear();
        buffer.reserve(8 << 10);
        match stream.read_buf(buffer).await {
            Ok(more @ 1..) => read += more,
            _ => return,
        }
    }
}

/// Reads the head of the next request; `None` if the client has closed the connection or is idle.
///
/// A head longer than usual is charged to the unidentified callers' budget, because its sender is not
/// authenticated yet.
pub async fn read_head<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    room: Option<&Reservation>,
) -> Result<Option<RequestHead>, u16>
where
    S: AsyncRead + Unpin,
{
    let limits = HeadLimits::default();
    if buffer.is_empty() {
        match timeout(IDLE, scratch::read(stream, buffer, usize::MAX)).await {
            Ok(Ok(1..)) => {}
            _ => return Ok(None),
        }
    }
    // Usually the head is complete by now, and needs no timeout.
    match read_request(buffer, &limits) {
        Ok(Some(head)) => return Ok(Some(head)),
        Ok(None) => {}
        Err(problem) => return Err(problem.status()),
    }
    let rest = async {
        loop {
            let taken = buffer.len().saturating_sub(USUAL_HEAD);
            if room.is_some_and(|room| !room.try_grow_to(taken)) {
                return Err(503);
            }
            buffer.reserve(4 << 10);
            if !stream.read_buf(buffer).await.is_ok_and(|read| read > 0) {
                return Ok(None);
            }
            match read_request(buffer, &limits) {
                Ok(Some(head)) => return Ok(Some(head)),
                Ok(None) => {}
                Err(problem) => return Err(problem.status()),
            }
        }
    };
    timeout(HEAD, rest).await.unwrap_or(Err(408))
}

/// Handles one request. Returns the response, and whether the request was read to its end. `None`: the
/// client has disconnected.
async fn exchange<S>(
    endpoint: &Arc<Endpoint>,
    peer: &Peer,
    stream: &mut S,
    buffer: &mut BytesMut,
    mut head: RequestHead,
    admission: &Admission,
) -> Option<(Response, bool)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    head.path = canonical(head.path);
    // Unauthorized requests are rejected before their body is read.
    let admitted = match endpoint.admit(endpoint.gateway.active(), peer, &head).await {
        Ok(admitted) => admitted,
        Err(response) => {
            endpoint.count(peer, &head, None, &response);
            return Some((*response, matches!(head.body, BodyLength::Empty)));
        }
    };
    if let Some(agent) = admitted.caller() {
        admission.authenticated(agent);
    }
    let refuse = |status: u16| {
        let why = match status {
            413 => "the message is too large",
            429 => "too many requests of this agent wait for their response",
            503 => "the memory limit is reached",
            408 => "the message did not arrive in time",
            _ => "the body is malformed",
        };
        let response = Response::refused(status, why);
        endpoint.count(peer, &head, admitted.agent(), &response);
        response
    };
    let reader = match BodyReader::new(head.body, endpoint.request_bytes) {
        Ok(reader) => reader,
        Err(problem) => {
            let id = oversized::request_id(stream, buffer, &head).await;
            let Some(id) = id else { return Some((refuse(status(&problem)), false)) };
            let response = json(responses::too_long(Some(&id), endpoint.request_bytes));
            endpoint.count(peer, &head, admitted.agent(), &response);
            return Some((response, true));
        }
    };
    let account = endpoint.gateway.context.budget.account(admitted.agent());
    let Some(_waiting) = account.try_wait(endpoint.waiting_requests) else {
        return Some((refuse(429).field("Retry-After", "1"), false));
    };
    let Some(room) = account.try_reserve(REQUEST_ROOM) else {
        return Some((refuse(503).field("Retry-After", "1"), false));
    };
    let body = tokio::select! {
        biased;
        body = read_body(stream, buffer, &head, reader, Some(&room)) => body,
        // An incomplete request can be dropped without loss.
        () = admission.evicted() => return None,
    };
    admission.set_busy(true);
    let body = match body {
        Ok(body) => body?,
        Err(503) => return Some((refuse(503).field("Retry-After", "1"), false)),
        Err(status) => return Some((refuse(status), false)),
    };
    let admitted = match endpoint.admit_again(admitted, peer, &head).await {
        Ok(admitted) => admitted,
        Err(response) => {
            endpoint.count(peer, &head, None, &response);
            return Some((*response, true));
        }
    };
    tokio::select! {
        biased;
        response = endpoint.respond(peer, admitted, head, RequestBody { body, room }) => Some((response, true)),
        // The client no longer waits for the response: a stateless request is dropped, and with it
        // cancelled.
        () = gone(stream, buffer) => None,
    }
}

/// Resolves when the client closes its side; input that it sends ahead is buffered.
pub async fn gone<S>(stream: &mut S, buffer: &mut BytesMut)
where
    S: AsyncRead + Unpin,
{
    loop {
        if buffer.len() >= AHEAD {
            return std::future::pending().await;
        }
        if !scratch::read(stream, buffer, AHEAD - buffer.len()).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}
