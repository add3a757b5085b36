//! Messages that a server over HTTP sends on its own: `list_changed`, log messages, and requests such as `ping`.
//!
//! Legacy servers send them on the stream of a GET, and many announce changes without declaring
//! `listChanged`. Modern servers send them in response to `subscriptions/listen`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use toolward_wire::{Era, Id, Kind, Message};

use super::super::ids;
use super::messages::Messages;
use super::{HandshakeResult, HttpSession, Reply, modern_headers};
use crate::http_client::Connection;
use crate::lock::LockUnpoisoned;
use crate::upstream::handshake::{announced_changes, own_answer, own_request, refusal};
use crate::upstream::transport::Signal;

/// The backoff before the stream is reopened: it starts with the first value and doubles up to the
/// second.
const MIN_BACKOFF: Duration = Duration::from_secs(2);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A stream that lasted this long worked: the backoff starts over.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// The task that follows a server's own messages. It ends with its connection.
#[derive(Default)]
pub(super) struct Follower(Mutex<Option<AbortHandle>>);

impl Follower {
    /// Follows a new session instead of the previous one.
    pub(super) fn replace(&self, session: &Arc<HttpSession>, greeted: &Arc<HandshakeResult>) {
        let wanted = session.era() == Era::Legacy || announced_changes(&greeted.hello).is_some();
        let task = wanted
            .then(|| tokio::spawn(follow(Arc::downgrade(session), greeted.clone())).abort_handle());
        let mut running = self.0.locked();
        if let Some(before) = std::mem::replace(&mut *running, task) {
            before.abort();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

/// Follows a session's messages until the session ends or the server turns out to have no stream.
/// It does not keep the connection alive: a server may take any time to respond.
async fn follow(session: Weak<HttpSession>, greeted: Arc<HandshakeResult>) {
    let (mut backoff, mut was_open, mut has_stream) = (MIN_BACKOFF, false, false);
    loop {
        let begun = Instant::now();
        let opened = open(&session, &greeted).await;
        if std::mem::take(&mut was_open)
            && let Some(session) = session.upgrade()
        {
            // Messages sent in between are lost.
            session.signal.send(&Signal::Ended);
        }
        match opened {
            Ok(Reply::Events(events)) => {
                (was_open, has_stream) = (true, true);
                read(&session, &greeted, *events).await;
            }
            // Some servers without a stream return 404 as well.
            Ok(Reply::NoSession) if has_stream => {
                if let Some(session) = session.upgrade() {
                    session.forget(&greeted).await;
                    session.signal.send(&Signal::Ended);
                }
                return;
            }
            Ok(Reply::Refused(429 | 500..)) | Err(_) => {}
            // The server has no such stream.
            Ok(_) => return,
        }
        if begun.elapsed() >= STABLE_AFTER {
            backoff = MIN_BACKOFF;
        }
        tokio::time::sleep(backoff).await;
        backoff = MAX_BACKOFF.min(backoff * 2);
    }
}

async fn read(session: &Weak<HttpSession>, greeted: &Arc<HandshakeResult>, mut events: Messages) {
    while let Ok(Some(message)) = events.next().await {
        let Some(session) = session.upgrade() else { return };
        session.received(greeted, &message);
    }
}

/// Opens the stream of the server's own messages.
async fn open(session: &Weak<HttpSession>, greeted: &Arc<HandshakeResult>) -> io::Result<Reply> {
    let gone = || io::Error::from(io::ErrorKind::NotConnected);
    let mut connection = session.upgrade().ok_or_else(gone)?.ask_for_stream(greeted).await?;
    let head = connection.response().await?;
    let session = session.upgrade().ok_or_else(gone)?;
    session.reply(connection, head, true, session.longest.into()).await
}

impl HttpSession {
    /// Requests the stream, and returns the connection.
    async fn ask_for_stream(&self, greeted: &HandshakeResult) -> io::Result<Connection> {
        self.remote.token().await?;
        let request = match self.era() {
            Era::Legacy => self.head("GET", &[], Some(greeted), None)?,
            Era::Modern => {
                let listen = |params| own_request("subscriptions/listen", params, Era::Modern);
                let own = announced_changes(&greeted.hello).and_then(listen);
                let own =
                    own.ok_or_else(|| io::Error::other("internal error: no subscription request"))?;
                let id = Id::number(ids::mint());
                let body = own.message.edit().id(&id).finish();
                let headers = modern_headers("subscriptions/listen", None);
                let mut request = self.head("POST", &headers, None, Some(body.len()))?;
                request.extend_from_slice(&body);
                request
            }
        };
        Ok(self.client.send(&request).await?)
    }

    /// Handles a message of the server that belongs to no request of ours.
    pub(super) fn received(self: &Arc<Self>, greeted: &Arc<HandshakeResult>, message: &Message) {
        match message.id() {
            Some(id) if message.kind() == Kind::Request => match self.opening.outlet() {
                _ if let Some(own) = own_answer(message, id, self.opening.roots()) => {
                    self.tell(own, greeted.clone());
                }
                Some(outlet) => {
                    let (link, greeted) = (Arc::downgrade(self), greeted.clone());
                    outlet.relay(&self.name, message, move |body| {
                        if let Some(link) = link.upgrade() {
                            link.tell(body, greeted);
                        }
                    });
                }
                None => self.tell(refusal(message, id), greeted.clone()),
            },
            _ => match (Signal::of(message), self.opening.outlet()) {
                (Some(signal), _) => self.signal.send(&signal),
                // The stream is of one client's session, so that no one else reads the message.
                (None, Some(outlet)) => outlet.notified(&self.name, message),
                (None, None) => {}
            },
        }
    }
}
