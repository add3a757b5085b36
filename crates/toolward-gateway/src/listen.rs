//! A client's connection: standard input and output, one message a line.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use toolward_wire::line::{self, LineDecoder};
use toolward_wire::{MAX_REQUEST, Message, Sender};

use crate::pipeline::{Gateway, Next};
use crate::present;

/// Messages to the client, in order.
pub type Outbox = mpsc::UnboundedSender<Bytes>;

/// How long requests that are under way may take once the client has closed its side.
const DRAIN: Duration = Duration::from_secs(5);

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The client closed it.
    Closed,
    /// The server could not be started; the client has been told.
    NotStarted(String),
}

/// Serves one client until it closes its side. Requests that are under way then get a few seconds.
pub async fn stdio(
    gateway: Arc<Gateway>,
    mut input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> Ended {
    let (out, bodies) = mpsc::unbounded_channel();
    let mut writer = tokio::spawn(write_lines(output, bodies));
    let mut lines = LineDecoder::new(MAX_REQUEST);
    let mut running = JoinSet::new();
    let mut ended = Ended::Closed;
    'connection: loop {
        while let Some(line) = lines.next_line() {
            let message = match line {
                Ok(line) => Message::parse(line, MAX_REQUEST, Sender::Client),
                Err(error) => {
                    let _ = out.send(present::too_long(&error.to_string()));
                    continue;
                }
            };
            let message = match message {
                Ok(message) => message,
                Err(malformed) => {
                    let _ = out.send(present::malformed(&malformed));
                    continue;
                }
            };
            match gateway.clone().receive(message, &out).await {
                Next::Nothing => {}
                Next::Work(work) => {
                    running.spawn(work);
                }
                Next::Stop(why) => {
                    ended = Ended::NotStarted(why);
                    break 'connection;
                }
            }
        }
        tokio::select! {
            read = input.read_buf(lines.buffer()) => match read {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            },
            // Nobody reads the answers any more.
            _ = &mut writer => return close(&gateway, running, Ended::Closed).await,
            // Finished work is collected, so that memory does not grow with calls.
            Some(_) = running.join_next(), if !running.is_empty() => {}
        }
    }
    drop(out);
    // What was asked before the end is answered, within reason.
    let drained = async { while running.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, drained).await;
    let ended = close(&gateway, running, ended).await;
    // A client that does not read must not keep the process.
    let _ = tokio::time::timeout(DRAIN, writer).await;
    ended
}

async fn close(gateway: &Gateway, mut running: JoinSet<()>, ended: Ended) -> Ended {
    running.shutdown().await;
    gateway.close().await;
    ended
}

/// Writes messages, one a line; what waits together is written together.
pub(crate) async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut bodies: mpsc::UnboundedReceiver<Bytes>,
) {
    let mut buffer = Vec::new();
    while let Some(body) = bodies.recv().await {
        buffer.clear();
        line::encode(&body, &mut buffer);
        while let Ok(body) = bodies.try_recv() {
            line::encode(&body, &mut buffer);
        }
        if output.write_all(&buffer).await.is_err() || output.flush().await.is_err() {
            break;
        }
    }
}

/// The answer to a client's first request where the gateway cannot start; `None` for a line that is
/// not a request.
pub fn startup_error(line: &[u8], why: &str) -> Option<Bytes> {
    let message = Message::parse(Bytes::copy_from_slice(line), MAX_REQUEST, Sender::Client).ok()?;
    let id = message.id()?;
    let text = format!("toolward cannot start:\n{why}");
    Some(present::internal(id, "not_started", &text, false))
}
