//! How an agent reaches a tool, given its `discovery` setting.
//!
//! An agent with `discovery: progressive` lists only the tools of the built-in server. It calls every other
//! tool through `execute_tool`, where the same policy decides; a direct call is refused like a call of an
//! unknown name.

use hashbrown::HashMap;
use toolward_policy::{Caller, Decision, Policy, Step, Subject, Verdict};

use crate::guard::ByAgent;
use crate::upstream::built_in::{EXECUTE, EXECUTE_TOOL, NAME, tools};

/// How agents find tools: directly in lists, or step by step with the meta tools.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Agents that list only the built-in server's tools.
    pub progressive: ByAgent<()>,
    /// The operator's descriptions of servers.
    pub descriptions: HashMap<String, String>,
}

impl Discovery {
    pub fn is_progressive(&self, agent: Option<&str>) -> bool {
        self.progressive.of(agent).next().is_some()
    }

    /// How an agent calls the tools of a server.
    pub fn route(&self, policy: &Policy, agent: Option<&str>, server: &str) -> Route {
        match server == NAME || !self.is_progressive(agent) {
            true => Route::Direct,
            false => Route::through_execute(policy, agent),
        }
    }

    /// How an agent reaches prompts and resources: progressive discovery covers only tools.
    pub fn route_to_others(&self, agent: Option<&str>) -> Route {
        if self.is_progressive(agent) { Route::ToolsOnly } else { Route::Direct }
    }

    /// The decision and the reason that deny an agent the direct call of a tool that its policy allows.
    pub(crate) fn direct_call_denial(
        &self,
        policy: &Policy,
        agent: Option<&str>,
        server: &str,
    ) -> Option<(Decision, String)> {
        let route = self.route(policy, agent, server);
        Some((route.denial()?, route.note()?))
    }

    pub(crate) fn description(&self, server: &str) -> Option<&str> {
        self.descriptions.get(server).map(String::as_str)
    }
}

/// How an agent calls the tools of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By their names, as listed.
    Direct,
    /// Only through `execute_tool`: the agent uses progressive discovery.
    Execute,
    /// Not at all: the agent uses progressive discovery, and this decision denies it `execute_tool`.
    Closed(Decision),
    /// Not at all: it is a prompt or a resource, and the agent uses progressive discovery.
    ToolsOnly,
}

impl Route {
    /// The route of an agent that uses progressive discovery.
    fn through_execute(policy: &Policy, agent: Option<&str>) -> Route {
        let tools = tools();
        let Some(execute) = tools.tools().iter().find(|tool| tool.name() == EXECUTE_TOOL) else {
            return Route::Execute;
        };
        let hints = policy.hints(NAME, execute);
        let cell = policy.cell(agent, NAME, Subject::Tool(execute, &hints));
        let decision = cell.list(Caller { agent, claims: None }).decision;
        match decision.verdict {
            Verdict::Deny => Route::Closed(decision),
            _ => Route::Execute,
        }
    }

    /// Whether the agent lists the server's tools, as far as the policy allows them.
    pub fn is_direct(self) -> bool {
        self == Route::Direct
    }

    /// The name of the route, for JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Route::Direct => "direct",
            Route::Execute => "execute_tool",
            Route::Closed(_) | Route::ToolsOnly => "none",
        }
    }

    /// The decision about a direct call of a tool that the policy allows.
    pub fn denial(self) -> Option<Decision> {
        match self {
            Route::Direct => None,
            Route::Execute | Route::ToolsOnly => Some(Decision {
                verdict: Verdict::Deny,
                layer: None,
                step: Step::NotExposed,
                rule: None,
            }),
            Route::Closed(denied) => Some(denied),
        }
    }

    /// Why a tool cannot be called directly.
    pub fn note(self) -> Option<String> {
        let progressive = "the agent uses progressive discovery";
        match self {
            Route::Direct => None,
            Route::Execute => Some(format!(
                "{progressive}: it calls this tool through `{EXECUTE}`; a direct call is refused"
            )),
            Route::Closed(_) => Some(format!(
                "{progressive}, and `{EXECUTE}` is denied to it: it cannot call this tool"
            )),
            Route::ToolsOnly => Some(format!("{progressive}, which covers only tools")),
        }
    }
}
