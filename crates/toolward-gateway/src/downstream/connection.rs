//! One connection over HTTP/1.1: requests are read strictly and one after another, and each is given
//! its time.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use toolward_wire::http::{
    BodyError, BodyLength, BodyReader, HeadLimits, RequestHead, ResponseBody, read_request,
    write_chunk, write_last_chunk, write_response,
};
use toolward_wire::sse;

use super::accept::Ending;
use super::connection_limit::Admission;
use super::frame::Frame;
use super::http::route::{Ticket, canonical};
use super::http::{Endpoint, json};
use super::peer::Peer;
use super::{cors, oversized};
use crate::authn::Wrong;
use crate::budget::Reservation;
use crate::clock;
use crate::responses::{self, Body};

/// Between two requests, for a head once it has begun, for a body, for a write.
const IDLE: Duration = Duration::from_secs(75);
const HEAD: Duration = Duration::from_secs(10);
pub(super) const BODY: Duration = Duration::from_secs(10);
const WRITE: Duration = Duration::from_secs(30);
/// Within this time a client that has not authenticated must have sent its request's head.
const FIRST: Duration = Duration::from_secs(10);
/// How long an evicted connection has for a request that is on its way.
const EVICTION_GRACE: Duration = Duration::from_millis(200);
/// What a request costs beside its body, for as long as it is read, worked on or answered.
const REQUEST_ROOM: usize = 32 << 10;
/// Bytes per second, after the first ten seconds, at which a body has to arrive.
pub(super) const MIN_BODY_RATE: u64 = 16 << 10;
/// A head of this length, and the buffer for it, are part of what a connection costs.
const USUAL_HEAD: usize = 8 << 10;
/// Read of a body at once, at most.
const MAX_READ: usize = 64 << 10;
/// The buffer of a larger body is not kept for the next request.
const LARGE_BODY: usize = 32 << 10;
/// How long, and how much of, what nobody wants is read before a connection is closed.
const LINGER: Duration = Duration::from_secs(2);
const MOST_LINGERED: usize = 8 << 20;
/// A silent stream says so often that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What a client may send ahead while its request is worked on.
const AHEAD: usize = 8 << 10;

/// A longer message is written from where it is, and not copied behind its head.
const SHORT: usize = 16 << 10;

/// What is answered to a request.
pub struct Response {
    pub status: u16,
    pub fields: Vec<(&'static str, String)>,
    pub content: Content,
    /// Events end at this second since 1970.
    pub until: Option<u64>,
    /// Events end when this does not let in any more.
    pub ticket: Option<Ticket>,
    /// Why the request was refused, where no record of its own says so: such are counted.
    pub unrecorded: Option<&'static str>,
    /// The memory of the content, reserved until it is written.
    pub room: Option<Arc<Reservation>>,
}

/// The body of a request, and the memory that it takes.
pub(super) struct Received {
    pub(super) body: Bytes,
    pub(super) room: Reservation,
}

pub enum Content {
    Empty,
    Text(&'static str),
    Json(Body),
    /// What a browser shows, of this type.
    Page(&'static str, Bytes),
    /// The same, which never changes under its address.
    Asset(&'static str, Bytes),
    /// Events, ready to be sent.
    Events(mpsc::Receiver<Bytes>),
    /// The same, with the memory that they take.
    Stream(mpsc::Receiver<Frame>),
}

impl Response {
    pub fn new(status: u16, content: Content) -> Response {
        let (fields, until, ticket, unrecorded, room) = Default::default();
        Response { status, fields, content, until, ticket, unrecorded, room }
    }

    pub fn empty(status: u16) -> Response {
        Response::new(status, Content::Empty)
    }

    /// A refusal that is counted.
    pub fn refused(status: u16, why: &'static str) -> Response {
        Response { unrecorded: Some(why), ..Response::empty(status) }
    }

    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.fields.push((name, value.into()));
        self
    }
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
    let head_room = endpoint.gateway.budget.unidentified().reserve_nothing();
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
                endpoint.turned_away(&peer, Some(&head), Wrong::Certificate.words());
                (Response::empty(401), false, head.old)
            }
            Ok(Some(head)) => {
                let (keep_alive, old) = (head.keep_alive, head.old);
                let page = endpoint.access().reachable.page(&head);
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
    let admitted = match endpoint.admit(peer, &head).await {
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
    let account = endpoint.gateway.budget.account(admitted.agent());
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
    tokio::select! {
        biased;
        response = endpoint.respond(peer, admitted, head, Received { body, room }) => Some((response, true)),
        // Nobody waits for the response any more: a request that ends with its stream is dropped.
        () = gone(stream, buffer) => None,
    }
}

/// The body of a request, or the status that says why not. `None`: the client is gone.
///
/// Its memory is reserved as it arrives, not as it is announced: a client that announces a large body and
/// sends nothing holds nothing. A body that arrives more slowly than [`MIN_BODY_RATE`] is given up.
pub async fn read_body<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    head: &RequestHead,
    mut reader: BodyReader,
    room: Option<&Reservation>,
) -> Result<Option<Bytes>, u16>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if head.expects_continue && buffer.is_empty() {
        let asked = async {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            stream.flush().await
        };
        // A client that does not read must not keep the connection.
        if !matches!(timeout(HEAD, asked).await, Ok(Ok(()))) {
            return Ok(None);
        }
    }
    let begun = Instant::now();
    let base = room.map_or(0, Reservation::bytes);
    loop {
        let held = reader.held() + buffer.len();
        if room.is_some_and(|room| !room.try_grow_to(base + held)) {
            return Err(503);
        }
        match reader.read(buffer) {
            Ok(Some(body)) => {
                if body.len() > LARGE_BODY {
                    // The memory of a large body is freed with the body.
                    *buffer = BytesMut::from(&buffer[..]);
                }
                return Ok(Some(body));
            }
            Ok(None) => {}
            Err(problem) => return Err(status(&problem)),
        }
        buffer.reserve(8 << 10);
        let arrived = Duration::from_secs(held as u64 / MIN_BODY_RATE);
        let mut into = (&mut *buffer).limit(MAX_READ);
        match timeout_at(begun + BODY + arrived, stream.read_buf(&mut into)).await {
            Ok(Ok(1..)) => {}
            Ok(_) => return Ok(None),
            Err(_) => return Err(408),
        }
    }
}

pub fn status(problem: &BodyError) -> u16 {
    match problem {
        BodyError::TooLarge => 413,
        BodyError::Malformed | BodyError::CutShort => 400,
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

/// Writes a response; whether the connection can be used again.
pub async fn write<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    response: Response,
    keep_alive: bool,
    old: bool,
) -> io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut fields: Vec<(&str, &str)> =
        response.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (kind, length, text) = match &response.content {
        Content::Empty => (None, ResponseBody::Empty, Body::default()),
        Content::Text(text) => {
            let body = Body::from(Bytes::from_static(text.as_bytes()));
            (Some("text/plain; charset=utf-8"), ResponseBody::Length(text.len()), body)
        }
        Content::Json(body) => {
            (Some("application/json"), ResponseBody::Length(body.len()), body.clone())
        }
        Content::Page(kind, body) | Content::Asset(kind, body) => {
            (Some(*kind), ResponseBody::Length(body.len()), Body::from(body.clone()))
        }
        Content::Events(_) | Content::Stream(_) => {
            let length = if old { ResponseBody::UntilClose } else { ResponseBody::Chunked };
            fields.push(("X-Accel-Buffering", "no"));
            (Some("text/event-stream"), length, Body::default())
        }
    };
    fields.extend(kind.map(|kind| ("Content-Type", kind)));
    fields.push(match &response.content {
        Content::Asset(..) => ("Cache-Control", "private, max-age=31536000, immutable"),
        _ => ("Cache-Control", "no-store"),
    });
    let keep_alive = keep_alive && length != ResponseBody::UntilClose;
    let mut head = Vec::with_capacity(256);
    write_response(&mut head, response.status, &fields, length, keep_alive)
        .map_err(|error| io::Error::other(error.to_string()))?;
    timeout(WRITE, write_pieces(stream, head, text)).await??;
    let chunked = length == ResponseBody::Chunked;
    let streamed = async {
        match response.content {
            Content::Events(events) => stream_events(stream, buffer, events, chunked).await,
            Content::Stream(events) => stream_events(stream, buffer, events, chunked).await,
            _ => Ok(true),
        }
    };
    let left =
        response.until.map(|until| Duration::from_secs(until.saturating_sub(clock::seconds())));
    let goes_on = match left {
        None => streamed.await?,
        // A stream that would outlive the credential by which it was asked for is cut.
        Some(left) => timeout(left, streamed).await.unwrap_or(Ok(false))?,
    };
    Ok(goes_on && keep_alive)
}

/// A short message goes out with its head in one write; a long one is not copied for that.
async fn write_pieces<S>(stream: &mut S, mut head: Vec<u8>, body: Body) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    if body.len() <= SHORT {
        for piece in &body.pieces {
            head.extend_from_slice(piece);
        }
        stream.write_all(&head).await?;
        return stream.flush().await;
    }
    let [first, middle, last] = &body.pieces;
    let pieces: [&[u8]; 4] = [&head, first, middle, last];
    write_slices(stream, pieces.map(IoSlice::new)).await
}

async fn write_slices<S, const N: usize>(
    stream: &mut S,
    mut slices: [IoSlice<'_>; N],
) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let mut left = &mut slices[..];
    while left.iter().any(|slice| !slice.is_empty()) {
        let written = stream.write_vectored(left).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    stream.flush().await
}

/// Passes on events until they end (true) or the client goes away (false).
async fn stream_events<S, F>(
    stream: &mut S,
    buffer: &mut BytesMut,
    mut events: mpsc::Receiver<F>,
    chunked: bool,
) -> io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Into<Frame>,
{
    loop {
        let event = tokio::select! {
            event = timeout(KEEP_ALIVE, events.recv()) => event,
            () = gone(stream, buffer) => return Ok(false),
        };
        let frame = match event {
            Ok(Some(event)) => event.into(),
            Ok(None) => break,
            Err(_) => {
                let mut silence = Vec::new();
                sse::encode_keep_alive(&mut silence);
                Bytes::from(silence).into()
            }
        };
        timeout(WRITE, write_frame(stream, &frame, chunked)).await??;
        frame.finish();
    }
    if chunked {
        let mut out = Vec::new();
        write_last_chunk(&mut out);
        timeout(WRITE, write_slices(stream, [IoSlice::new(&out)])).await??;
    }
    Ok(true)
}

/// Writes one event, a long one from where it is.
async fn write_frame<S>(stream: &mut S, frame: &Frame, chunked: bool) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let [one, two, three, four, five] = frame.pieces();
    if frame.len() <= SHORT {
        let whole = [&one[..], two, three, four, five].concat();
        let mut out = Vec::with_capacity(whole.len() + 16);
        match chunked {
            true => write_chunk(&mut out, &whole),
            false => out = whole,
        }
        return write_slices(stream, [IoSlice::new(&out)]).await;
    }
    let (size, end) = match chunked {
        true => (format!("{:x}\r\n", frame.len()), "\r\n"),
        false => (String::new(), ""),
    };
    let pieces: [&[u8]; 7] = [size.as_bytes(), one, two, three, four, five, end.as_bytes()];
    write_slices(stream, pieces.map(IoSlice::new)).await
}

#[cfg(test)]
mod tests {
    use toolward_wire::http::BodyLength;

    use super::*;

    fn head(fields: &str) -> RequestHead {
        let mut bytes = BytesMut::from(
            format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n{fields}\r\n")
                .as_str(),
        );
        read_request(&mut bytes, &HeadLimits::default()).unwrap().unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_does_not_read_whether_to_continue_is_given_up() {
        let (mut stream, _client) = tokio::io::duplex(8);
        let reader = BodyReader::new(BodyLength::Known(5), 5).unwrap();
        let mut buffer = BytesMut::new();
        let head = head("Expect: 100-continue\r\n");
        let read = read_body(&mut stream, &mut buffer, &head, reader, None);
        let read = timeout(HEAD + Duration::from_secs(20), read).await;
        assert_eq!(read.expect("it ends by itself"), Ok(None));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_is_reserved_as_it_arrives() {
        let budget = crate::budget::Budget::new(400);
        let room = budget.account(None).reserve_nothing();
        let (mut stream, mut client) = tokio::io::duplex(1024);
        let reader = BodyReader::new(BodyLength::Known(1000), 1000).unwrap();
        let mut buffer = BytesMut::new();
        client.write_all(&[b'x'; 60]).await.unwrap();
        let head = head("");
        let read = read_body(&mut stream, &mut buffer, &head, reader, Some(&room));
        tokio::pin!(read);
        assert!(timeout(Duration::from_millis(50), &mut read).await.is_err());
        assert_eq!(budget.held(), 60, "not what was announced");
        client.write_all(&[b'x'; 60]).await.unwrap();
        assert_eq!(read.await, Err(503), "the share is used up");
    }
}
