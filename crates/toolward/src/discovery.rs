//! How an agent reaches a tool, given its `discovery` setting: shared by `ls`, `can-i`, `explain` and the
//! admin UI.
//!
//! An agent with `discovery: progressive` lists only the tools of the built-in server. It calls every other
//! tool through `execute_tool`, where the same policy decides; a direct call is refused like a call of an
//! unknown name.

use toolward_config::config::Config;
use toolward_gateway::methods::meta_tools::{self, Discovery, EXECUTE};
use toolward_policy::{Caller, Decision, Policy, Subject, Verdict};

use crate::guards;

/// How an agent calls the tools of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// By their names, as listed.
    Direct,
    /// Only through `execute_tool`: the agent uses progressive discovery.
    Execute,
    /// Not at all: the agent uses progressive discovery, and this decision denies it `execute_tool`.
    Closed(Decision),
}

impl Route {
    /// How `agent` calls the tools of `server`.
    pub(crate) fn new(
        policy: &Policy,
        discovery: &Discovery,
        agent: Option<&str>,
        server: &str,
    ) -> Route {
        if server == meta_tools::NAME || !discovery.is_progressive(agent) {
            return Route::Direct;
        }
        let tools = meta_tools::tools();
        let name = EXECUTE.rsplit('/').next().unwrap_or(EXECUTE);
        let execute = tools.tools().iter().find(|tool| tool.name() == name);
        let Some(execute) = execute else { return Route::Execute };
        let hints = policy.hints(meta_tools::NAME, execute);
        let cell = policy.cell(agent, meta_tools::NAME, Subject::Tool(execute, &hints));
        let decision = cell.list(Caller { agent, claims: None }).decision;
        match decision.verdict {
            Verdict::Deny => Route::Closed(decision),
            _ => Route::Execute,
        }
    }

    /// The same, from a configuration that no gateway runs.
    pub(crate) fn of_config(
        policy: &Policy,
        config: &Config,
        agent: Option<&str>,
        server: &str,
    ) -> Route {
        Route::new(policy, &guards::discovery(config), agent, server)
    }

    /// Whether the agent lists the server's tools, as far as the policy allows them.
    pub(crate) fn is_direct(self) -> bool {
        self == Route::Direct
    }

    /// The route in a word, for JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Route::Direct => "direct",
            Route::Execute => "execute_tool",
            Route::Closed(_) => "none",
        }
    }

    /// What a person needs to know about a tool that is not called directly.
    pub(crate) fn note(self) -> Option<String> {
        let progressive = "the agent uses progressive discovery";
        match self {
            Route::Direct => None,
            Route::Execute => Some(format!(
                "{progressive}: it calls this tool through `{EXECUTE}`; a direct call is refused"
            )),
            Route::Closed(_) => Some(format!(
                "{progressive}, and `{EXECUTE}` is denied to it: it cannot call this tool"
            )),
        }
    }
}
