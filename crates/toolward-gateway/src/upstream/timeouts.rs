//! How long a call may take.

use std::time::Duration;

use toolward_policy::selector::Glob;

/// How long a server may be silent unless the configuration has another value.
const IDLE: Duration = Duration::from_secs(60);
/// How long a call may take in total unless the configuration has another value.
const MOST: Duration = Duration::from_secs(600);
/// The timeout reported to a `policy_sh` hook unless one is configured: the value that the framework
/// such scripts are written for has.
const REPORTED: Duration = Duration::from_secs(30);

/// The timeouts of a server's calls, as configured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeouts {
    /// Idle time by tool, first match.
    pub by_tool: Vec<(Glob, Duration)>,
    /// Idle time of other tools.
    pub otherwise: Option<Duration>,
    /// The longest call, with or without progress.
    pub most: Option<Duration>,
}

impl Timeouts {
    fn configured(&self, tool: &str) -> Option<Duration> {
        let named = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        named.map(|(_, timeout)| *timeout).or(self.otherwise)
    }

    /// How long a call of a tool may go without an answer or progress.
    pub fn idle(&self, tool: &str) -> Duration {
        self.configured(tool).unwrap_or(IDLE)
    }

    /// How long a call of a tool may take in total. A configured idle time is never cut short by the
    /// default.
    pub fn most(&self, tool: &str) -> Duration {
        self.most.unwrap_or_else(|| self.idle(tool).max(MOST))
    }

    /// The timeout of a tool as a `policy_sh` hook sees it.
    pub(crate) fn reported(&self, tool: &str) -> Duration {
        self.configured(tool).unwrap_or(REPORTED)
    }

    /// The longest time that any call may take.
    pub fn longest(&self) -> Duration {
        let idle = self.by_tool.iter().map(|(_, timeout)| *timeout).chain(self.otherwise).max();
        self.most.unwrap_or_else(|| idle.unwrap_or(IDLE).max(MOST))
    }
}
