//! What a server says of its own accord.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use toolward_wire::{Era, Id, Kind};

use super::super::link::Signal;
use super::super::opening::{is_list_changed, own_answer, own_request, tells_changes};
use super::messages::Messages;
use super::{Greeted, HttpLink, Reply, modern_headers};

/// Between two attempts to follow a server's own messages.
const AGAIN: Duration = Duration::from_secs(2);

/// Follows what a server says of its own accord, for as long as there is a link and a session.
pub(super) async fn follow(link: Weak<HttpLink>, greeted: Arc<Greeted>) {
    if !tells_changes(&greeted.hello) {
        return;
    }
    let mut first = true;
    loop {
        let Some(link) = link.upgrade() else { return };
        if !std::mem::take(&mut first) {
            // What was said in between is not known.
            let _ = link.signal.send(Signal::ListChanged);
        }
        let opened = link.listen(&greeted).await;
        let weak = Arc::downgrade(&link);
        drop(link);
        match opened {
            Ok(Some(mut events)) => {
                while let Ok(Some(message)) = events.next().await {
                    let Some(link) = weak.upgrade() else { return };
                    match message.id() {
                        Some(id) if message.kind() == Kind::Request => {
                            link.tell(own_answer(&message, id), greeted.clone());
                        }
                        _ if is_list_changed(&message) => {
                            let _ = link.signal.send(Signal::ListChanged);
                        }
                        _ => {}
                    }
                }
            }
            // It has no such stream.
            Ok(None) => return,
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl HttpLink {
    /// Opens the stream of the server's own messages; `None` where it has none, or not any more.
    async fn listen(&self, greeted: &Greeted) -> io::Result<Option<Messages>> {
        let reply = match self.era() {
            Era::Legacy => self.get(&[], greeted, self.longest).await?,
            Era::Modern => {
                let params = json!({"notifications": {"toolsListChanged": true}});
                let Some(own) = own_request("subscriptions/listen", params, Era::Modern) else {
                    return Ok(None);
                };
                let id = Id::number(self.next.fetch_add(1, Ordering::Relaxed));
                let body = own.message.edit().id(&id).finish();
                let headers = modern_headers("subscriptions/listen", None);
                self.post(&body, &headers, None, self.longest).await?.0
            }
        };
        match reply {
            Reply::Events(events) => Ok(Some(*events)),
            _ => Ok(None),
        }
    }
}
