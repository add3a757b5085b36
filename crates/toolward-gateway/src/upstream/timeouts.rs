//! Timeouts of calls.

use std::time::Duration;

use toolward_policy::selector::Glob;

/// The default idle timeout.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The default limit on the total time of a call.
const DEFAULT_MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The timeout reported to a `policy_sh` hook if none is configured: the default of the framework
/// that such scripts are written for.
const DEFAULT_REPORTED_TIMEOUT: Duration = Duration::from_secs(30);

/// The configured timeouts of a server's calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeouts {
    /// Idle timeouts by tool; the first match applies.
    pub by_tool: Vec<(Glob, Duration)>,
    /// The idle timeout of other tools.
    pub otherwise: Option<Duration>,
    /// The limit on the total time of a call, with or without progress.
    pub most: Option<Duration>,
}

impl Timeouts {
    fn configured(&self, tool: &str) -> Option<Duration> {
        let named = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        named.map(|(_, timeout)| *timeout).or(self.otherwise)
    }

    /// How long a call of a tool may go without a response or progress.
    pub fn idle(&self, tool: &str) -> Duration {
        self.configured(tool).unwrap_or(DEFAULT_IDLE_TIMEOUT)
    }

    /// How long a call of a tool may take in total. The default never cuts a configured idle
    /// timeout short.
    pub fn most(&self, tool: &str) -> Duration {
        self.most.unwrap_or_else(|| self.idle(tool).max(DEFAULT_MAX_TIMEOUT))
    }

    /// The timeout of a tool as reported to a `policy_sh` hook.
    pub(crate) fn reported(&self, tool: &str) -> Duration {
        self.configured(tool).unwrap_or(DEFAULT_REPORTED_TIMEOUT)
    }

    /// The longest time that any call may take.
    pub fn longest(&self) -> Duration {
        let idle = self.by_tool.iter().map(|(_, timeout)| *timeout).chain(self.otherwise).max();
        self.most.unwrap_or_else(|| idle.unwrap_or(DEFAULT_IDLE_TIMEOUT).max(DEFAULT_MAX_TIMEOUT))
    }
}
