//! The log level of a connection to a legacy server.
//!
//! A server has one level per session. On a connection of one client it is the client's; on a shared one it is the most
//! verbose that any client asked for, and each client's messages are filtered by its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::json;
use toolward_wire::LogLevel;

use super::ServerConnection;
use crate::client::Owner;

/// The timeout for `logging/setLevel`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// No level was requested from the server.
const UNSET: u8 = u8::MAX;

pub(super) struct ConnectionLogLevel(AtomicU8);

impl Default for ConnectionLogLevel {
    fn default() -> ConnectionLogLevel {
        ConnectionLogLevel(AtomicU8::new(UNSET))
    }
}

impl ServerConnection {
    /// Requests log messages from this level on.
    pub(crate) fn log_from(self: &Arc<Self>, level: LogLevel) {
        let is_own = matches!(self.key().owner, Owner::Session(_));
        let wanted = level as u8;
        let known = self.log_level.0.load(Ordering::Relaxed);
        let enough = if is_own { known == wanted } else { known <= wanted };
        if enough {
            return;
        }
        self.log_level.0.store(wanted, Ordering::Relaxed);
        let connection = self.clone();
        tokio::spawn(async move {
            let Ok(hello) = connection.hello().await else { return };
            let capabilities = hello.result_member("capabilities");
            if capabilities.and_then(|raw| raw.member("logging")).is_some() {
                let params = json!({"level": level.as_str()});
                let _ = connection.ask("logging/setLevel", params, REQUEST_TIMEOUT).await;
            }
        });
    }

    /// The server has a new session, without a level; the next request sets it again.
    pub(super) fn forget_log_level(&self) {
        self.log_level.0.store(UNSET, Ordering::Relaxed);
    }
}
