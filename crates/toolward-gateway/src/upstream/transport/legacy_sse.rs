//! A server on HTTP+SSE of 2024-11-05: one stream brings all its messages, each of ours is a POST to
//! the address that the stream names first. It is spoken to as if it were a child process, line by
//! line.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use toolward_wire::http::{BodyReader, write_request};
use toolward_wire::line;
use toolward_wire::{MAX_RESPONSE_BYTES, Revision};

use super::event_stream::Events;
use crate::log::Log;
use crate::upstream::Unavailable;
use crate::upstream::address::{Address, Remote};
use crate::upstream::pool::Pool;

/// How long the stream may take to open, and a message to be taken.
const PATIENCE: Duration = Duration::from_secs(30);
/// What may wait between the stream and whoever reads the lines.
const BETWEEN: usize = 1 << 20;

/// Opens the stream; gives the lines that come and go.
pub(in crate::upstream) async fn connect(
    name: &str,
    remote: &Remote,
    log: &Log,
) -> Result<DuplexStream, Unavailable> {
    let down = |error: io::Error| Unavailable::Down(error.to_string());
    let late = |_| Unavailable::Down("its stream did not open in time".into());
    let opening = async {
        let mut events = open(remote).await?;
        loop {
            let event = events.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if event.event.as_deref() == Some("endpoint") {
                let address = std::str::from_utf8(&event.data).map_err(io::Error::other)?;
                let address = remote.address.same_host(address.trim()).ok_or_else(|| {
                    io::Error::other("it sends us to another host, which is not followed")
                })?;
                return Ok((events, address));
            }
        }
    };
    let (events, post) =
        tokio::time::timeout(PATIENCE, opening).await.map_err(late)?.map_err(down)?;
    let (ours, theirs) = tokio::io::duplex(BETWEEN);
    let (incoming, outgoing) = tokio::io::split(theirs);
    let remote = remote.clone();
    let (name, log) = (name.to_string(), log.clone());
    tokio::spawn(async move {
        // Whichever side ends first ends the other.
        let ended = tokio::select! {
            ended = receive(events, outgoing) => ended,
            ended = send(post, remote, incoming) => ended,
        };
        if let Err(error) = ended {
            log(&format!("{name}: {error}"));
        }
    });
    Ok(ours)
}

/// Messages of the stream become lines.
async fn receive(mut events: Events, mut lines: impl AsyncWriteExt + Unpin) -> io::Result<()> {
    let mut out = Vec::new();
    while let Some(event) = events.next().await? {
        if event.is_message() {
            // In parts, so that a long message is not copied as a whole.
            let mut parts = event.data.chunks(BETWEEN / 16).peekable();
            while let Some(part) = parts.next() {
                out.clear();
                line::encode(part, &mut out);
                out.truncate(part.len() + usize::from(parts.peek().is_none()));
                lines.write_all(&out).await?;
            }
        }
    }
    lines.shutdown().await
}

/// Lines become POSTs, in their order.
async fn send(
    address: Address,
    remote: Remote,
    lines: impl tokio::io::AsyncRead + Unpin,
) -> io::Result<()> {
    let pool = Pool::new(address.clone());
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let body = line.strip_suffix(b"\n").unwrap_or(&line);
        let posted = tokio::time::timeout(PATIENCE, post(&pool, &address, &remote, body)).await;
        posted.unwrap_or_else(|_| Err(io::Error::other("it does not take our messages")))?;
    }
}

async fn post(pool: &Pool, address: &Address, remote: &Remote, body: &[u8]) -> io::Result<()> {
    let other = |error: String| io::Error::other(error);
    let mut connection = pool.take().await?;
    let mut fields = vec![("Content-Type", "application/json"), ("Accept-Encoding", "identity")];
    fields.extend(remote.headers.iter().map(|(name, value)| (&**name, &**value)));
    let token = remote.token().await?;
    fields.extend(token.as_deref().map(|token| ("Authorization", token)));
    let mut request = Vec::with_capacity(512 + body.len());
    let length = Some(body.len());
    write_request(&mut request, "POST", &address.target, &address.authority, &fields, length)
        .map_err(|error| other(error.to_string()))?;
    request.extend_from_slice(body);
    connection.write(&request).await?;
    let head = connection.response().await?;
    if !(200..300).contains(&head.status) {
        return Err(other(format!("it answers with status {}", head.status)));
    }
    let keep = head.keep_alive;
    let mut reader = BodyReader::new(head.body, MAX_RESPONSE_BYTES)
        .map_err(|problem| other(problem.to_string()))?;
    loop {
        let body = reader.read(&mut connection.buffer).map_err(|p| other(p.to_string()))?;
        if body.is_some() {
            break;
        }
        if !connection.read_more().await? {
            return Ok(());
        }
    }
    if keep {
        pool.put(connection);
    }
    Ok(())
}

/// Opens the stream of a server's events.
async fn open(remote: &Remote) -> io::Result<Events> {
    let at = &remote.address;
    let mut fields = vec![
        ("Accept", "text/event-stream"),
        ("Accept-Encoding", "identity"),
        ("MCP-Protocol-Version", Revision::R2024_11_05.as_str()),
    ];
    fields.extend(remote.headers.iter().map(|(name, value)| (&**name, &**value)));
    let token = remote.token().await?;
    fields.extend(token.as_deref().map(|token| ("Authorization", token)));
    let mut request = Vec::new();
    write_request(&mut request, "GET", &at.target, &at.authority, &fields, None)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let mut connection = Pool::new(at.clone()).take().await?;
    connection.write(&request).await?;
    let head = connection.response().await?;
    let kind = head.headers.get("content-type").unwrap_or_default();
    let plain = head.headers.count("content-encoding") == 0;
    if head.status != 200 || !kind.starts_with("text/event-stream") || !plain {
        let why = format!("it opens no stream of events (status {})", head.status);
        return Err(io::Error::other(why));
    }
    Ok(Events::new(connection, head.body, MAX_RESPONSE_BYTES.into()))
}
