//! State shared by several gateways, and graceful shutdown: `state`, `approvals.store` and `drain`, resolved.

use std::time::Duration;

use super::secret::Secret;

/// How long a load balancer may take to notice that a gateway is not ready, unless `drain.delay` is set.
const DELAY: Duration = Duration::from_secs(5);
const WAIT: Duration = Duration::from_secs(30);

/// The parts of `state` that gateways share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SharedState {
    /// Secrets from which the keys of session ids are derived: the first seals, all open. Empty: the key of the state
    /// directory.
    pub keys: Vec<Secret>,
    /// The database of approvals, grants and pins. `None`: the state directory.
    pub store: Option<Secret>,
}

/// How the gateway shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// How long it still accepts connections.
    pub delay: Option<Duration>,
    /// How long requests in flight may take then.
    pub wait: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Drain { delay: None, wait: WAIT }
    }
}

impl Drain {
    /// The delay. On loopback, there is usually no load balancer that has to notice anything.
    pub fn delay(&self, beyond_loopback: bool) -> Duration {
        self.delay.unwrap_or(if beyond_loopback { DELAY } else { Duration::ZERO })
    }
}
