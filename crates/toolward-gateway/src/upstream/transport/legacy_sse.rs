//! The HTTP+SSE transport of 2024-11-05. The server sends all its messages on one stream; each of
//! ours is a POST to the endpoint that the stream's first event names. Our messages are written as
//! lines, as to a child process; the server's messages are passed on whole, with their memory.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream};
use tokio::sync::mpsc;
use toolward_wire::{MAX_RESPONSE_BYTES, Revision};

use super::event_stream::Events;
use super::line_session::IncomingMessage;
use crate::budget::Account;
use crate::http_client::{Address, Client};
use crate::upstream::Unavailable;
use crate::upstream::remote::Remote;

/// The timeout for opening the stream, and for a POST.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of bytes of our messages waiting to be sent.
const MAX_UNSENT_BYTES: usize = 1 << 20;

/// Opens the stream. Returns the messages that arrive, which are charged to `account`, and the
/// stream to write our messages to as lines.
pub(in crate::upstream) async fn connect(
    name: &str,
    remote: &Remote,
    account: Arc<OnceLock<Arc<Account>>>,
) -> Result<(mpsc::Receiver<IncomingMessage>, DuplexStream), Unavailable> {
    let down = |error: io::Error| Unavailable::Down(error.to_string());
    let late = |_| Unavailable::Down("its stream did not open in time".into());
    let opening = async {
        let mut events = open(remote).await?;
        loop {
            let event = events.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if event.event.as_deref() == Some("endpoint") {
                let address = std::str::from_utf8(&event.data).map_err(io::Error::other)?;
                let address = remote.address.same_host(address.trim()).ok_or_else(|| {
                    io::Error::other("its endpoint is on another host, which is not allowed")
                })?;
                return Ok((events, address));
            }
        }
    };
    let (events, post) =
        tokio::time::timeout(TIMEOUT, opening).await.map_err(late)?.map_err(down)?;
    let events = events.charged_to(account);
    let (ours, theirs) = tokio::io::duplex(MAX_UNSENT_BYTES);
    let (sender, arriving) = mpsc::channel(1);
    let remote = remote.clone();
    let name = name.to_string();
    tokio::spawn(async move {
        // When either direction ends, the other one does.
        let ended = tokio::select! {
            ended = receive(events, sender) => ended,
            ended = send(post, remote, theirs) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!(target: "upstream", server = name, "{error}");
        }
    });
    Ok((arriving, ours))
}

/// Passes on the messages of the stream. The next one is read while one waits.
async fn receive(mut events: Events, messages: mpsc::Sender<IncomingMessage>) -> io::Result<()> {
    while let Some(event) = events.next().await? {
        let room = events.take_room();
        if event.is_message()
            && messages.send(IncomingMessage { body: event.data, room }).await.is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Sends lines as POST requests, in order.
async fn send(
    address: Address,
    remote: Remote,
    lines: impl tokio::io::AsyncRead + Unpin,
) -> io::Result<()> {
    let client = remote.client();
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let body = line.strip_suffix(b"\n").unwrap_or(&line);
        let posted = tokio::time::timeout(TIMEOUT, post(&client, &address, &remote, body)).await;
        posted.unwrap_or_else(|_| Err(io::Error::other("it does not accept our messages")))?;
    }
}

async fn post(client: &Client, address: &Address, remote: &Remote, body: &[u8]) -> io::Result<()> {
    let mut fields = vec![("Content-Type", "application/json"), ("Accept-Encoding", "identity")];
    fields.extend(remote.headers.iter().map(|(name, value)| (&**name, &**value)));
    let mut token = remote.token().await?;
    fields.extend(token.as_deref().map(|token| ("Authorization", token)));
    let mut request = client.request("POST", &address.target, &fields, Some(body.len()))?;
    request.extend_from_slice(body);
    let mut connection = client.send(&request).await?;
    let head = connection.response().await?;
    if head.status == 401 && token.is_none() {
        remote.renewed(&mut token).await?;
    }
    if !(200..300).contains(&head.status) {
        return Err(io::Error::other(format!("it returned status {}", head.status)));
    }
    // The message is accepted, even if the rest of the response does not arrive.
    let _ = client.body(connection, &head, MAX_RESPONSE_BYTES).await;
    Ok(())
}

/// Opens the event stream of a server.
async fn open(remote: &Remote) -> io::Result<Events> {
    let mut fields = vec![
        ("Accept", "text/event-stream"),
        ("Accept-Encoding", "identity"),
        ("MCP-Protocol-Version", Revision::R2024_11_05.as_str()),
    ];
    fields.extend(remote.headers.iter().map(|(name, value)| (&**name, &**value)));
    let mut token = remote.token().await?;
    fields.extend(token.as_deref().map(|token| ("Authorization", token)));
    let client = remote.client();
    let request = client.request("GET", &remote.address.target, &fields, None)?;
    let mut connection = client.send(&request).await?;
    let head = connection.response().await?;
    if head.status == 401 && token.is_none() {
        remote.renewed(&mut token).await?;
    }
    let kind = head.headers.get("content-type").unwrap_or_default();
    if head.status != 200 || !kind.starts_with("text/event-stream") {
        let why = format!("it did not open an event stream (status {})", head.status);
        return Err(io::Error::other(why));
    }
    Events::new(connection, &head, MAX_RESPONSE_BYTES.into())
}
