//! One connection over HTTP/1.1: requests are read strictly and one after another, and each is given
//! its time.

mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use toolward_wire::http::{BodyLength, BodyReader, HeadLimits, RequestHead, read_request};

use super::body::{read_body, status};
use super::connection_limit::Admission;
use super::http::route::canonical;
use super::http::{Endpoint, Received};
use super::peer::Peer;
use super::response::{Response, json};
use super::{cors, oversized};
use crate::authn::Wrong;
use crate::budget::Reservation;
use crate::responses;

pub use self::write::write;

/// Timeouts between two requests, and for a head once it has begun.
const IDLE: Duration = Duration::from_secs(75);
const HEAD: Duration = Duration::from_secs(10);
/// Within this time a client that has not authenticated must have sent its request's head.
const FIRST: Duration = Duration::from_secs(10);
/// How long an evicted connection has for a request that is on its way.
const EVICTION_GRACE: Duration = Duration::from_millis(200);
/// What a request costs beside its body, for as long as it is read, worked on or answered.
const REQUEST_ROOM: usize = 32 << 10;
/// A head of this length, and the buffer for it, are part of what a connection costs.
const USUAL_HEAD: usize = 8 << 10;
/// How long, and how much of, what nobody wants is read before a connection is closed.
const LINGER: Duration = Duration::from_secs(2);
const MOST_LINGERED: usize = 8 << 20;
/// What a client may send ahead while its request is worked on.
const AHEAD: usize = 8 << 10;

/// Whether the gateway is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    No,
    /// Requests under way are finished.
    Now,
    /// Another process has the sockets: connections are used once more before they close, so that no
    /// client is cut off while it asks.
    HandedOver,
}

/// Serves a connection until either side closes it, or the gateway is about to end.
pub(super) async fn serve<S>(
    endpoint: Arc<Endpoint>,
    peer: Peer,
    mut stream: S,
    mut ending: watch::Receiver<Ending>,
    admission: &Admission,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = BytesMut::with_capacity(8 << 10);
    let head_room = endpoint.gateway.context.budget.unidentified().reserve_nothing();
    loop {
        let known = admission.is_known();
        let deadline = Instant::now() + FIRST;
        let head = tokio::select! {
            head = read_head(&mut stream, &mut buffer, Some(&head_room)) => head,
            // Without a credential nobody keeps a connection for long.
            () = sleep_until(deadline), if !known => return,
            () = evicted(admission, known), if !known || buffer.is_empty() => return,
            _ = ending.wait_for(|ending| *ending == Ending::Now), if buffer.is_empty() => return,
        };
        let _busy = endpoint.begin();
        head_room.shrink_to(0);
        let (response, keep_alive, old) = match head {
            Ok(None) => return,
            Err(status) => {
                endpoint.turned_away(&peer, None, "the head of the request is malformed");
                (Response::empty(status), false, false)
            }
            Ok(Some(head)) if !endpoint.believes(&peer) => {
                endpoint.reject_credential(&peer, &head, Wrong::Certificate.words());
                (Response::empty(401), false, head.old)
            }
            Ok(Some(head)) => {
                let (keep_alive, old) = (head.keep_alive, head.old);
                let page = cors::page(&endpoint.gateway.active().reachable, &head);
                let Some((response, read)) =
                    exchange(&endpoint, &peer, &mut stream, &mut buffer, head, admission).await
                else {
                    // The client is gone.
                    return;
                };
                let response = match page {
                    Some(page) => cors::readable(response, page),
                    None => response,
                };
                // After an error the rest of the connection is not believed.
                (response, keep_alive && read, old)
            }
        };
        let keep_alive = keep_alive && *ending.borrow() == Ending::No;
        let mut response = response;
        let ticket = response.ticket.take();
        let revoked = async {
            match &ticket {
                Some(ticket) => endpoint.revoked(&peer, ticket).await,
                None => std::future::pending().await,
            }
        };
        let written = tokio::select! {
            biased;
            written = write(&mut stream, &mut buffer, response, keep_alive, old) => written,
            () = revoked => Ok(false),
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

/// Resolves when the connection has to make room. A client that has just connected may have sent its
/// request already: it gets a moment, in which it can show its credential.
async fn evicted(admission: &Admission, known: bool) {
    admission.evicted().await;
    if !known {
        tokio::time::sleep(EVICTION_GRACE).await;
    }
}

/// Closes our side and reads on for a moment: a socket that is closed with something unread takes the
/// response back.
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

/// The head of the next request; `None` where the client has closed or says nothing.
///
/// A head longer than usual takes room, because its sender is not known yet.
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
        buffer.reserve(4 << 10);
        match timeout(IDLE, stream.read_buf(buffer)).await {
            Ok(Ok(1..)) => {}
            _ => return Ok(None),
        }
    }
    let rest = async {
        loop {
            match read_request(buffer, &limits) {
                Ok(Some(head)) => return Ok(Some(head)),
                Ok(None) => {}
                Err(problem) => return Err(problem.status()),
            }
            let taken = buffer.len().saturating_sub(USUAL_HEAD);
            if room.is_some_and(|room| !room.try_grow_to(taken)) {
                return Err(503);
            }
            buffer.reserve(4 << 10);
            if !stream.read_buf(buffer).await.is_ok_and(|read| read > 0) {
                return Ok(None);
            }
        }
    };
    timeout(HEAD, rest).await.unwrap_or(Err(408))
}

/// One request and its response; whether the request was read to its end. `None`: the client is gone.
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
    // Whoever may not ask is told so before anything of it is read.
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
            503 => "too much is held at once",
            408 => "the message did not come in time",
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
    let Some(room) = account.try_reserve(REQUEST_ROOM) else {
        return Some((refuse(503).field("Retry-After", "1"), false));
    };
    let body = tokio::select! {
        body = read_body(stream, buffer, &head, reader, Some(&room)) => body,
        // Nothing is lost with a request that is not there yet.
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
        response = endpoint.respond(peer, admitted, head, Received { body, room }) => Some((response, true)),
        // Nobody waits for the response any more: a request that ends with its stream is dropped.
        () = gone(stream, buffer) => None,
    }
}

/// Resolves when the client closes its side; what it sends ahead is kept.
pub async fn gone<S>(stream: &mut S, buffer: &mut BytesMut)
where
    S: AsyncRead + Unpin,
{
    loop {
        if buffer.len() >= AHEAD {
            return std::future::pending().await;
        }
        buffer.reserve(1 << 10);
        if !stream.read_buf(buffer).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}
