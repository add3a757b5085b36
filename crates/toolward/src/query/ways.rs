//! The ways in which an agent can make a call, and the response to each.
//!
//! With progressive discovery, the same call has two answers: a direct one is refused, because the tool is not
//! listed, and one through `execute_tool` is decided by the policy.

use serde_json::{Value, json};
use toolward_gateway::upstream::built_in;
use toolward_gateway::view::names::Naming;
use toolward_policy::allowed::Offer;
use toolward_policy::call::stated_action;
use toolward_policy::refusal::{Refusal, Sent};
use toolward_policy::{Cell, Decision, Row, Tool, ToolSet, Verdict};

use super::{Answer, PolicyQuery, decision_json, sanitize_lines};
use crate::cli::Kind;
use crate::discovery::Route;

/// The placeholder id of a decision that was not recorded.
const NO_DECISION: &str = "ID";

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// By the name in the agent's list.
    Direct,
    /// As `SERVER/TOOL`, through `execute_tool`.
    Execute,
}

/// One way to make a call, and its result.
pub(crate) struct Way {
    pub(crate) via: Via,
    pub(crate) decision: Decision,
    pub(crate) why: String,
    /// Whether the agent finds the tool in this way.
    pub(crate) listed: bool,
    /// The response, if the call is refused: the gateway's own text and data.
    pub(crate) refusal: Option<Refusal>,
}

impl Way {
    /// The way as JSON, as `explain --json` and `can-i --json` print it.
    pub(crate) fn to_json(&self, question: &PolicyQuery<'_>) -> Value {
        let mut way = decision_json(question.policy, &self.decision, &self.why);
        if let Some(refusal) = &self.refusal {
            way["refusal"] = refusal_json(refusal);
        }
        way
    }
}

pub(super) fn refusal_json(refusal: &Refusal) -> Value {
    json!({
        "message": sanitize_lines(&refusal.message),
        "text": sanitize_lines(&refusal.text()),
        "allowed_tools": refusal.data["allowed_tools"],
    })
}

impl<'a> PolicyQuery<'a> {
    /// The ways in which the agent can try to make this call of a tool, the one that `answer` is about first.
    pub(crate) fn ways(&self, answer: &Answer) -> Vec<Way> {
        if !self.is_about_a_tool() || self.list {
            return Vec::new();
        }
        match self.route {
            Route::Direct | Route::Closed(_) | Route::ToolsOnly => {
                vec![self.way(Via::Direct, answer.decision, answer.why.clone())]
            }
            Route::Execute => {
                let (decision, why) = self.direct(answer);
                let through = self.way(Via::Execute, answer.decision, answer.why.clone());
                vec![through, self.way(Via::Direct, decision, why)]
            }
        }
    }

    /// The direct call, if the agent has another way.
    pub(crate) fn direct_way(&self, answer: &Answer) -> Option<Way> {
        self.ways(answer).into_iter().nth(1)
    }

    /// The decision about a direct call, as the audit log has it: the policy's own if it denies.
    fn direct(&self, answer: &Answer) -> (Decision, String) {
        let unlisted = self.route.denial().zip(self.route.note());
        match unlisted.filter(|_| answer.decision.verdict != Verdict::Deny) {
            Some(unlisted) => unlisted,
            None => (answer.decision, answer.why.clone()),
        }
    }

    fn way(&self, via: Via, decision: Decision, why: String) -> Way {
        let listed = self.is_listed_via(via);
        let refused = !listed || decision.verdict != Verdict::Allow;
        let refusal = refused.then(|| self.refusal(via, &decision));
        Way { via, decision, why, listed, refusal }
    }

    /// Whether the tool is in the agent's listing.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed_via(Via::Direct)
    }

    fn is_listed_via(&self, via: Via) -> bool {
        self.quarantined.is_none()
            && (via == Via::Execute || self.route.is_direct())
            && self.listing().is_some_and(|listing| listing.decision.verdict != Verdict::Deny)
    }

    /// The action that a refusal names. For a name that is not listed, the tool's own action keys must
    /// not matter.
    fn refused_action(&self, via: Via) -> Option<String> {
        match self.is_listed_via(via) {
            true => self.action(),
            false => stated_action(&self.call()),
        }
    }

    /// The name that clients use for a tool of a server.
    fn called_on(&self, via: Via, server: &str, tool: &str) -> Box<str> {
        let exposure = match self.kind {
            Kind::Tool => self.policy.exposure(server),
            Kind::Prompt => self.policy.prompt_exposure(server),
            // URIs never change.
            Kind::Resource | Kind::Template => return tool.into(),
        };
        let shown = exposure.and_then(|exposure| exposure.show(tool));
        let plain = shown.map_or_else(|| tool.into(), |shown| shown.name);
        match self.naming_via(via) {
            // A query does not claim a name.
            Some(naming) => naming.called(server, &plain),
            None => plain,
        }
    }

    fn naming_via(&self, via: Via) -> Option<&'a Naming> {
        match via {
            Via::Direct => self.naming,
            Via::Execute => Some(&Naming::Address),
        }
    }

    /// The name by which clients call the tool directly.
    pub(crate) fn called(&self) -> String {
        self.called_on(Via::Direct, self.server, self.name).into()
    }

    /// The tools of a server that the agent may call, by the names of its listing.
    fn offer<'r>(&self, via: Via, server: &'r str, row: &'r Row) -> Offer<'r> {
        let name = |(tool, cell): (&Tool, &Cell)| {
            let listed = cell.list(self.caller()).decision.verdict != Verdict::Deny;
            listed.then(|| self.called_on(via, server, tool.name()))
        };
        let prefix = self.naming_via(via).map(|naming| naming.prefix(server)).unwrap_or_default();
        Offer { server, prefix, names: row.iter().map(name).collect(), row }
    }

    /// The response to a direct call of a tool that the agent cannot call.
    pub(crate) fn direct_refusal(&self, decision: &Decision) -> Refusal {
        self.refusal(Via::Direct, decision)
    }

    /// The response that the agent gets instead of a result: the gateway's own text and data.
    fn refusal(&self, via: Via, decision: &Decision) -> Refusal {
        let row = |(server, tools): &(&'a str, &ToolSet)| {
            (*server, self.policy.row(self.agent, server, tools))
        };
        // With progressive discovery, the built-in server's tools are called by name, and all others through it.
        let callable = |(server, _): &&(&'a str, &ToolSet)| match via {
            Via::Direct => self.route.is_direct() || *server == built_in::NAME,
            Via::Execute => *server != built_in::NAME,
        };
        let rows: Vec<_> = self.offered.iter().filter(callable).map(row).collect();
        let offers: Vec<Offer<'_>> =
            rows.iter().map(|(server, row)| self.offer(via, server, row)).collect();
        let called = self.called_on(via, self.server, self.name);
        let action = self.refused_action(via);
        let sent =
            Sent { tool: &called, action: action.as_deref(), arguments: self.call().arguments };
        // The agent gets no reason for a tool that it does not see.
        let why = self.engine_why(decision).filter(|_| self.is_listed_via(via));
        let allowed = self.policy.allowed(self.caller(), &offers);
        allowed.refuse(self.policy, sent, why.as_ref(), self.redact, NO_DECISION)
    }
}
