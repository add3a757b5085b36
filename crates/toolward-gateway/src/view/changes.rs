//! `list_changed` notifications for clients with a session.
//!
//! A client is notified when its view differs from the list that was last sent to it. A client that never listed
//! needs no notification.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use toolward_wire::jsonrpc::request_body;

use super::View;
use super::cache::Viewer;
use crate::responses::Outbound;

/// Changes within this time cause one notification.
const SETTLE: Duration = Duration::from_millis(20);

/// Notifies a client of changes until it closes its channel. `current` builds the client's view from the lists that
/// are known; `None` ends the task.
pub(crate) fn follow(
    client: Weak<Viewer>,
    mut changes: watch::Receiver<u64>,
    notifications: mpsc::Sender<Outbound>,
    current: impl Fn(&Viewer) -> Option<Arc<View>> + Send + 'static,
) -> AbortHandle {
    let follower = tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = notifications.closed() => return,
            }
            tokio::time::sleep(SETTLE).await;
            let Some(client) = client.upgrade() else { return };
            let Some(view) = current(&client) else { return };
            let Some(sent) = client.sent() else { continue };
            if sent.array() == view.array() {
                continue;
            }
            client.set_sent(view);
            let body = request_body(None, "notifications/tools/list_changed", None);
            if notifications.send(body.into()).await.is_err() {
                return;
            }
        }
    });
    follower.abort_handle()
}
