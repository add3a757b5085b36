//! How an agent reaches a tool (directly or through `execute_tool`), from the configuration alone.

use toolward_config::config::Config;
use toolward_policy::Policy;

pub(crate) use toolward_gateway::view::discovery::Route;

use crate::guards;

/// How `agent` calls the tools of `server`.
pub(crate) fn route(policy: &Policy, config: &Config, agent: Option<&str>, server: &str) -> Route {
    guards::discovery(config).route(policy, agent, server)
}
