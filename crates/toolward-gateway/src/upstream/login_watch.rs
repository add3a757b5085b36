//! Notices that somebody logged in to a server that needs it, so that clients get its tools without asking again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Key, Server};
use crate::client::Client;

/// The interval at which the login is looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// The timeout for the list of the server.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether a task looks for a login. There is at most one per server.
#[derive(Debug, Default)]
pub(super) struct LoginWatch(AtomicBool);

/// Waits for a login in the background, and then fetches the list that a client needs.
pub(super) fn watch(server: &Arc<Server>, client: &Client, keys: &[Key; 2]) {
    if server.login_watch.0.swap(true, Ordering::Relaxed) {
        return;
    }
    let agent = client.caller.agent.clone();
    let ways = server.ways(client, keys);
    let server = Arc::downgrade(server);
    tokio::spawn(async move {
        while is_missing(&server, agent.as_deref()) {
            tokio::time::sleep(INTERVAL).await;
        }
        let Some(server) = server.upgrade() else { return };
        server.login_watch.0.store(false, Ordering::Relaxed);
        server.prepare(&ways, LIST_TIMEOUT).await;
        // Views are built again, by clients that follow changes and at the next request of the others.
        server.changes.bump();
    });
}

fn is_missing(server: &Weak<Server>, agent: Option<&str>) -> bool {
    server.upgrade().is_some_and(|server| server.missing_login_of(agent).is_some())
}
