//! One browser connection, parsed by the same strict HTTP reader as agents' connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use toolward_gateway::downstream::accept::Ending;
use toolward_gateway::downstream::body::{read_body, status};
use toolward_gateway::downstream::connection::{gone, linger, read_head, write};
use toolward_gateway::downstream::response::{Content, Response};
use toolward_wire::http::{BodyReader, RequestHead};

use super::AdminUi;
use super::answer::{AdminRoute, secured};
use super::connection_limit::{OpenConnection, Priority};

/// The maximum size of a form.
const MAX_FORM_BYTES: usize = 256 << 10;
/// Timeout for the first request of a connection. Browsers connect when they have a request; some connect
/// ahead of time, and reconnect later.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for the next request on the same connection.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// How long remaining input is drained before a connection is closed.
const LINGER: Duration = Duration::from_secs(2);

pub(super) async fn serve(
    page: Arc<AdminUi>,
    from: IpAddr,
    mut stream: TcpStream,
    mut ending: watch::Receiver<Ending>,
    open: &OpenConnection,
) {
    let mut buffer = BytesMut::with_capacity(8 << 10);
    let (mut first, mut until) = (true, Instant::now() + FIRST_REQUEST_TIMEOUT);
    loop {
        let head = tokio::select! {
            head = timeout_at(until, read_head(&mut stream, &mut buffer, None)) => head,
            _ = ending.wait_for(|ending| *ending != Ending::No), if buffer.is_empty() => return,
        };
        let (response, keep_alive, old) = match head {
            Err(_) | Ok(Ok(None)) => return,
            Ok(Err(status)) => {
                page.turned_away(from, "the head of the request is malformed");
                (Response::empty(status), false, false)
            }
            Ok(Ok(Some(head))) => {
                let (keep_alive, old) = (head.keep_alive, head.old);
                // After the first request, the body has its own timeout.
                let until = if first { until } else { Instant::now() + NEXT_REQUEST_TIMEOUT };
                let mut asking = AdminClient { page: &page, from, until, open };
                let exchanged = asking.exchange(&mut stream, &mut buffer, head).await;
                let Some((response, read)) = exchanged else { return };
                if matches!(response.content, Content::Stream(_)) {
                    open.set_priority(Priority::Streaming);
                }
                (response, keep_alive && read, old)
            }
        };
        let keep_alive = keep_alive && *ending.borrow() == Ending::No;
        let written = tokio::select! {
            biased;
            written = write(&mut stream, &mut buffer, secured(response), keep_alive, old) => written,
            // Streams of events would never end.
            () = over(&mut ending) => Ok(false),
        };
        match written {
            Ok(true) => (first, until) = (false, Instant::now() + NEXT_REQUEST_TIMEOUT),
            _ => {
                open.set_priority(Priority::Unauthenticated);
                let _ = timeout(LINGER, linger(&mut stream, &mut buffer)).await;
                return;
            }
        }
    }
}

/// Resolves a moment after the process was asked to end, so that pending writes complete.
async fn over(ending: &mut watch::Receiver<Ending>) {
    let _ = ending.wait_for(|ending| *ending != Ending::No).await;
    tokio::time::sleep(LINGER).await;
}

/// One client of the admin UI.
struct AdminClient<'a> {
    page: &'a Arc<AdminUi>,
    from: IpAddr,
    /// The deadline for the request.
    until: Instant,
    open: &'a OpenConnection,
}

impl AdminClient<'_> {
    /// Handles one request; returns whether it was read to its end. `None`: the browser disconnected, or did
    /// not send the rest.
    async fn exchange(
        &mut self,
        stream: &mut TcpStream,
        buffer: &mut BytesMut,
        head: RequestHead,
    ) -> Option<(Response, bool)> {
        let (page, from) = (self.page, self.from);
        // Unauthorized requests are rejected before their body is read.
        let thought = Instant::now();
        let place = page.admit(from, &head).await;
        self.until += thought.elapsed();
        if matches!(
            place,
            Ok(AdminRoute::View(_)
                | AdminRoute::Personal(..)
                | AdminRoute::Act(..)
                | AdminRoute::Ask
                | AdminRoute::Preview
                | AdminRoute::Status
                | AdminRoute::Metrics)
        ) {
            self.open.set_priority(Priority::Authenticated);
        }
        let most = match &place {
            Ok(AdminRoute::Login | AdminRoute::Act(..) | AdminRoute::Ask | AdminRoute::Preview) => {
                MAX_FORM_BYTES
            }
            _ => 0,
        };
        let reader = match BodyReader::new(head.body, most) {
            Ok(reader) => reader,
            Err(problem) => {
                return Some((place.err().unwrap_or(Response::empty(status(&problem))), false));
            }
        };
        let body = read_body(stream, buffer, &head, reader, None);
        let body = match timeout_at(self.until, body).await.ok()? {
            Ok(body) => body?,
            Err(status) => return Some((place.err().unwrap_or(Response::empty(status)), false)),
        };
        let place = match place {
            Ok(place) => place,
            Err(response) => return Some((response, true)),
        };
        tokio::select! {
            biased;
            response = page.respond(from, place, &head, body) => Some((response, true)),
            () = gone(stream, buffer) => None,
        }
    }
}
