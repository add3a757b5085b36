//! A bridge from a stdio client to a gateway that is reached over Streamable HTTP.
//!
//! For clients that can only start programs. Each line of the client is one POST, and each message of the
//! response is one line. The bridge decides nothing: policy, audit log and identity are the gateway's, and the
//! client's token is sent with every request. It adds what only HTTP has: the session id, the headers that
//! mirror a modern request, and resumption of a stream that was cut.

mod remote;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use toolward_wire::line::LineDecoder;
use toolward_wire::{Era, Id, Kind, Message, Sender};

use self::remote::Remote;
use super::stdio::lines::write_lines;
use crate::http_client::Address;
use crate::parse::parse;
use crate::responses::{self, Outbound};
use crate::validate;

/// How long requests in flight may take once the client has closed its side.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the gateway may take to end the session.
const GOODBYE: Duration = Duration::from_secs(2);
/// Outgoing messages queued for a client that does not read.
const WAITING: usize = 64;
/// At this number of requests in flight, no further one is read.
const MAX_IN_FLIGHT: usize = 1024;

/// Passes messages between a client and the gateway at `address` until the client closes its side.
pub async fn serve(
    address: Address,
    token: Option<String>,
    request_bytes: usize,
    (mut input, output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
) {
    let (out, messages) = mpsc::channel(WAITING);
    let mut writer = tokio::spawn(write_lines(output, messages));
    let remote = Arc::new(Remote::new(address, token, out.clone()));
    let mut bridge = Bridge { remote, out, work: JoinSet::new(), in_flight: HashMap::new() };
    let mut lines = LineDecoder::reporting_overlong(request_bytes);
    loop {
        while let Some(line) = lines.next_line() {
            match line {
                Ok(line) => bridge.received(line, request_bytes).await,
                Err(_) => {
                    let id = lines.overlong().and_then(|line| line.request_id());
                    bridge.say(responses::too_long(id.as_ref(), request_bytes).body).await;
                }
            }
        }
        let is_full = bridge.work.len() >= MAX_IN_FLIGHT;
        tokio::select! {
            read = input.read_buf(lines.buffer()), if !is_full => match read {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            },
            // The client no longer reads.
            _ = &mut writer => return,
            Some(_) = bridge.work.join_next(), if !bridge.work.is_empty() => bridge.forget_finished(),
        }
    }
    let drained = async { while bridge.work.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, drained).await;
    bridge.work.shutdown().await;
    let _ = tokio::time::timeout(GOODBYE, bridge.remote.end()).await;
    drop(bridge);
    // A client that does not read must not keep the process alive.
    let _ = tokio::time::timeout(DRAIN, writer).await;
}

struct Bridge {
    remote: Arc<Remote>,
    out: mpsc::Sender<Outbound>,
    work: JoinSet<()>,
    /// Modern requests in flight: dropping one closes its stream, which cancels it.
    in_flight: HashMap<Id, AbortHandle>,
}

impl Bridge {
    async fn received(&mut self, line: Bytes, limit: usize) {
        let message = match parse(line, limit, Sender::Client).await {
            Ok(message) => message,
            Err(malformed) => {
                return self.say(responses::malformed(&malformed, Era::Legacy).body).await;
            }
        };
        let era = validate::era(&message);
        match (message.kind(), message.id().cloned()) {
            (Kind::Request, Some(id)) => {
                let begins = message.method().as_deref() == Some("initialize");
                let remote = self.remote.clone();
                let work = async move { remote.request(&message, era).await };
                match begins {
                    // Later requests belong to the session that begins here.
                    true => work.await,
                    false => {
                        let task = self.work.spawn(work);
                        if era == Era::Modern {
                            self.in_flight.insert(id, task);
                        }
                    }
                }
            }
            (Kind::Notification, _) if self.cancels(&message) => {}
            // In the client's order.
            _ => self.remote.tell(&message).await,
        }
    }

    /// Cancels a modern request by closing its stream, which is how HTTP does it.
    fn cancels(&mut self, message: &Message) -> bool {
        if message.method().as_deref() != Some("notifications/cancelled") {
            return false;
        }
        let id = message.param("requestId").and_then(Id::of);
        let Some(task) = id.and_then(|id| self.in_flight.remove(&id)) else { return false };
        task.abort();
        true
    }

    fn forget_finished(&mut self) {
        self.in_flight.retain(|_, task| !task.is_finished());
    }

    async fn say(&self, body: responses::Body) {
        let _ = self.out.send(body.into()).await;
    }
}
