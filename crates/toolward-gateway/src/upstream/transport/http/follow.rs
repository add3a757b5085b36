//! What a server on HTTP sends of its own accord: `list_changed`, and requests such as `ping`.
//!
//! Legacy servers send it on the stream of a GET, and many announce changes without declaring
//! `listChanged`. Modern servers are asked with `subscriptions/listen`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::AbortHandle;
use toolward_wire::{Era, Id, Kind, Message};

use super::super::ids;
use super::messages::Messages;
use super::{Greeted, HttpLink, Reply, modern_headers};
use crate::http_client::Connection;
use crate::lock::LockUnpoisoned;
use crate::upstream::handshake::{is_list_changed, own_answer, own_request, tells_changes};
use crate::upstream::transport::Signal;

/// The first pause before the stream is opened again, doubled up to the longest one.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A stream that lasted this long worked: the next pause is the first one again.
const WORKED: Duration = Duration::from_secs(30);

/// The task that follows a server's own messages. It ends with its link.
#[derive(Default)]
pub(super) struct Follower(Mutex<Option<AbortHandle>>);

impl Follower {
    /// Follows a session from here on, instead of the one before.
    pub(super) fn replace(&self, link: &Arc<HttpLink>, greeted: &Arc<Greeted>) {
        let wanted = link.era() == Era::Legacy || tells_changes(&greeted.hello);
        let task = wanted
            .then(|| tokio::spawn(follow(Arc::downgrade(link), greeted.clone())).abort_handle());
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

/// Follows a session's messages until the session ends or the server turns out to have no stream. The
/// link is not kept alive by it: a server may take as long as it likes to answer.
async fn follow(link: Weak<HttpLink>, greeted: Arc<Greeted>) {
    let (mut pause, mut was_open, mut has_stream) = (PAUSE, false, false);
    loop {
        let begun = Instant::now();
        let opened = open(&link, &greeted).await;
        if std::mem::take(&mut was_open)
            && let Some(link) = link.upgrade()
        {
            // What was sent in between is lost.
            let _ = link.signal.send(Signal::ListChanged);
        }
        match opened {
            Ok(Reply::Events(events)) => {
                (was_open, has_stream) = (true, true);
                read(&link, &greeted, *events).await;
            }
            // Some servers that have no stream say 404 as well.
            Ok(Reply::NoSession) if has_stream => {
                if let Some(link) = link.upgrade() {
                    link.forget(&greeted).await;
                    let _ = link.signal.send(Signal::Ended);
                }
                return;
            }
            Ok(Reply::Refused(429 | 500..)) | Err(_) => {}
            // It has no such stream.
            Ok(_) => return,
        }
        if begun.elapsed() >= WORKED {
            pause = PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

async fn read(link: &Weak<HttpLink>, greeted: &Arc<Greeted>, mut events: Messages) {
    while let Ok(Some(message)) = events.next().await {
        let Some(link) = link.upgrade() else { return };
        link.told(greeted, &message);
    }
}

/// Opens the stream of the server's own messages.
async fn open(link: &Weak<HttpLink>, greeted: &Arc<Greeted>) -> io::Result<Reply> {
    let gone = || io::Error::from(io::ErrorKind::NotConnected);
    let mut connection = link.upgrade().ok_or_else(gone)?.ask_for_stream(greeted).await?;
    let head = connection.response().await?;
    let link = link.upgrade().ok_or_else(gone)?;
    link.reply(connection, head, true, link.longest.into()).await
}

impl HttpLink {
    /// A connection on which the stream was asked for.
    async fn ask_for_stream(&self, greeted: &Greeted) -> io::Result<Connection> {
        self.remote.token().await?;
        let request = match self.era() {
            Era::Legacy => self.head("GET", &[], Some(greeted), None)?,
            Era::Modern => {
                let params = json!({"notifications": {"toolsListChanged": true}});
                let own = own_request("subscriptions/listen", params, Era::Modern);
                let own = own.ok_or_else(|| io::Error::other("there is no such request"))?;
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

    /// A message of the server that belongs to no request of ours.
    pub(super) fn told(self: &Arc<Self>, greeted: &Arc<Greeted>, message: &Message) {
        match message.id() {
            Some(id) if message.kind() == Kind::Request => {
                self.tell(own_answer(message, id), greeted.clone());
            }
            _ if is_list_changed(message) => {
                let _ = self.signal.send(Signal::ListChanged);
            }
            _ => {}
        }
    }
}
