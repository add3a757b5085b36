//! How an agent reaches a tool, from a configuration that no gateway runs.

use toolward_config::config::Config;
use toolward_policy::Policy;

pub(crate) use toolward_gateway::methods::meta_tools::Route;

use crate::guards;

/// How `agent` calls the tools of `server`.
pub(crate) fn route(policy: &Policy, config: &Config, agent: Option<&str>, server: &str) -> Route {
    guards::discovery(config).route(policy, agent, server)
}
