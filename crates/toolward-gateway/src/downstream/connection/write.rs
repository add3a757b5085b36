//! Writes responses: bodies in pieces, events as they arrive.

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use toolward_wire::http::{ResponseBody, write_chunk, write_last_chunk, write_response};
use toolward_wire::sse;

use super::gone;
use crate::clock;
use crate::downstream::frame::Frame;
use crate::downstream::response::{Content, Response};
use crate::responses::Body;

/// How long a client may take to read what is written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keep-alive comments on a silent stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Longer messages are not copied into one buffer with their head.
const SHORT: usize = 16 << 10;

/// Writes a response. Returns whether the connection can be reused.
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
        Content::Bytes(kind, body) => {
            (Some(*kind), ResponseBody::Length(body.len()), Body::from(body.clone()))
        }
        Content::Stream(_) => {
            let length = if old { ResponseBody::UntilClose } else { ResponseBody::Chunked };
            fields.push(("X-Accel-Buffering", "no"));
            (Some("text/event-stream"), length, Body::default())
        }
    };
    fields.extend(kind.map(|kind| ("Content-Type", kind)));
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("cache-control")) {
        fields.push(("Cache-Control", "no-store"));
    }
    let keep_alive = keep_alive && length != ResponseBody::UntilClose;
    let mut head = Vec::with_capacity(256);
    write_response(&mut head, response.status, &fields, length, keep_alive)
        .map_err(|error| io::Error::other(error.to_string()))?;
    timeout(WRITE_TIMEOUT, write_pieces(stream, head, text)).await??;
    let chunked = length == ResponseBody::Chunked;
    let streamed = async {
        match response.content {
            Content::Stream(events) => stream_events(stream, buffer, events, chunked).await,
            _ => Ok(true),
        }
    };
    let left =
        response.until.map(|until| Duration::from_secs(until.saturating_sub(clock::seconds())));
    let completed = match left {
        None => streamed.await?,
        // A stream ends when the credential of its request expires.
        Some(left) => timeout(left, streamed).await.unwrap_or(Ok(false))?,
    };
    Ok(completed && keep_alive)
}

/// Writes a short message together with its head; a long one is written without copying it.
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

/// Forwards events until they end (true) or the client disconnects (false).
async fn stream_events<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    mut events: mpsc::Receiver<Frame>,
    chunked: bool,
) -> io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let event = tokio::select! {
            event = timeout(KEEP_ALIVE_INTERVAL, events.recv()) => event,
            () = gone(stream, buffer) => return Ok(false),
        };
        let frame = match event {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => {
                let mut silence = Vec::new();
                sse::encode_keep_alive(&mut silence);
                Bytes::from(silence).into()
            }
        };
        timeout(WRITE_TIMEOUT, write_frame(stream, &frame, chunked)).await??;
        frame.finish();
    }
    if chunked {
        let mut out = Vec::new();
        write_last_chunk(&mut out);
        timeout(WRITE_TIMEOUT, write_slices(stream, [IoSlice::new(&out)])).await??;
    }
    Ok(true)
}

/// Writes one event; a long one without copying it.
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
