//! `list_changed` notifications for clients with a session.
//!
//! A client is notified when its view of a kind differs from the list that was last sent to it. A client that never
//! listed needs no notification.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use toolward_wire::jsonrpc::request_body;
use toolward_wire::list::ListKind;

use super::View;
use super::cache::Viewer;
use crate::responses::Outbound;

/// Changes within this time are combined into one notification.
const SETTLE: Duration = Duration::from_millis(20);

/// Notifies a client of changes until it closes its channel. `current` builds the client's view of a kind from
/// the known lists; `None` ends the task.
pub(crate) fn follow(
    client: Weak<Viewer>,
    mut changes: watch::Receiver<u64>,
    notifications: mpsc::Sender<Outbound>,
    current: impl Fn(&Viewer, ListKind) -> Option<Arc<View>> + Send + 'static,
) -> AbortHandle {
    let stale = client.upgrade().map(|client| client.sent_stale()).unwrap_or_default();
    let follower = tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = stale.notified() => {}
                () = notifications.closed() => return,
            }
            tokio::time::sleep(SETTLE).await;
            let Some(client) = client.upgrade() else { return };
            let mut announced = "";
            for kind in ListKind::ALL {
                let Some(sent) = client.sent(kind) else { continue };
                let Some(view) = current(&client, kind) else { return };
                if sent.array() == view.array() {
                    continue;
                }
                client.set_sent(view);
                // Resources and templates share one notification.
                if kind.changed() == announced {
                    continue;
                }
                announced = kind.changed();
                let body = request_body(None, announced, None);
                if notifications.send(body.into()).await.is_err() {
                    return;
                }
            }
        }
    });
    follower.abort_handle()
}
