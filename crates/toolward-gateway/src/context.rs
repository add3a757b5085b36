//! What method handlers need beside the request: servers, audit log, memory budget.

use std::sync::Arc;
use std::time::Duration;

use crate::audit::Audit;
use crate::budget::Budget;
use crate::upstream::Servers;

/// The parts of the gateway that outlive a configuration.
pub struct Context {
    pub servers: Arc<Servers>,
    pub audit: Arc<Audit>,
    /// The memory that may be held for clients.
    pub budget: Budget,
    /// How long a listing waits for a server that is starting.
    pub list_timeout: Duration,
}
