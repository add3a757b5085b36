//! One policy query with its full answer, shared by `can-i`, `explain` and the admin UI.

use serde_json::{Value, json};
use toolward_config::sanitize;
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::upstream::built_in;
use toolward_gateway::view::names::Naming;
use toolward_policy::allowed::Offer;
use toolward_policy::call::stated_action;
use toolward_policy::explain::{Explanation, Outcome, Query, StepTrace};
use toolward_policy::reason::About;
use toolward_policy::refusal::{Refusal, Sent};
use toolward_policy::why::Why;
use toolward_policy::{
    Call, Caller, Decision, Hints, Listing, Policy, Row, Step, Subject, Tool, ToolSet, Verdict,
};

use crate::arguments::ArgumentsText;
use crate::cli::Kind;
use crate::discovery::Route;

/// A question.
pub(crate) struct PolicyQuery<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) agent: Option<&'a str>,
    pub(crate) server: &'a str,
    /// The tool's original name, or that of a prompt or resource.
    pub(crate) name: &'a str,
    pub(crate) arguments: Option<&'a ArgumentsText>,
    pub(crate) kind: Kind,
    /// Whether it is about the listing and not about a call.
    pub(crate) list: bool,
    /// `None`: the server's list is known and lacks the tool.
    pub(crate) tool: Option<&'a Tool>,
    /// The answer rests on the tool's name alone.
    pub(crate) list_unknown: bool,
    pub(crate) hints: &'a Hints,
    /// The servers that the agent is offered tools of.
    pub(crate) offered: Vec<(&'a str, &'a ToolSet)>,
    /// How clients name tools; `None`: as their server does.
    pub(crate) naming: Option<&'a Naming>,
    /// What is redacted in what a refusal repeats.
    pub(crate) redact: &'a Redact,
    /// How the agent calls the server's tools.
    pub(crate) route: Route,
}

/// The placeholder id of a decision that was not recorded.
const NO_DECISION: &str = "ID";

/// The way through the layers, and what holds in the end.
pub(crate) struct Answer {
    pub(crate) explanation: Explanation,
    pub(crate) decision: Decision,
    pub(crate) why: String,
}

impl<'a> PolicyQuery<'a> {
    pub(crate) fn caller(&self) -> Caller<'a> {
        Caller { agent: self.agent, claims: None }
    }

    fn call(&self) -> Call<'a> {
        Call { action: None, arguments: self.arguments.map(|arguments| arguments as _) }
    }

    fn subject(&self) -> Option<Subject<'a>> {
        match self.kind {
            Kind::Tool => self.tool.map(|tool| Subject::Tool(tool, self.hints)),
            Kind::Prompt => Some(Subject::Prompt(self.name)),
            Kind::Resource => Some(Subject::Resource(self.name)),
        }
    }

    pub(crate) fn is_about_a_tool(&self) -> bool {
        self.kind == Kind::Tool
    }

    pub(crate) fn answer(&self) -> Answer {
        let explanation = self.explain();
        let (decision, hidden) = self.decide(&explanation);
        if let Some(answer) = self.unreachable(&decision) {
            return Answer { explanation, decision: answer.0, why: answer.1 };
        }
        let why = self.why(&decision, hidden);
        Answer { explanation, decision, why }
    }

    /// The way to the decision, in all layers.
    fn explain(&self) -> Explanation {
        let query = if self.list { Query::List } else { Query::Call(self.call()) };
        match self.subject() {
            Some(subject) => self.policy.explain(self.caller(), self.server, subject, query),
            None => Explanation {
                decision: Decision {
                    verdict: Verdict::Deny,
                    layer: None,
                    step: Step::NoSuchTool,
                    rule: None,
                },
                layers: Vec::new(),
            },
        }
    }

    /// The decision, and whether it is the listing that denies: hidden means not callable, also with
    /// an action that the tool's schema does not name.
    fn decide(&self, explanation: &Explanation) -> (Decision, bool) {
        let decision = explanation.decision;
        match self.listing().filter(|_| decision.verdict != Verdict::Deny) {
            Some(listing) if listing.decision.verdict == Verdict::Deny => (listing.decision, true),
            _ => (decision, false),
        }
    }

    /// The answer where the policy allows the tool, and the agent's discovery setting does not: a tool
    /// that is reached through `execute_tool` is not listed, and without that tool it is not reached.
    fn unreachable(&self, decision: &Decision) -> Option<(Decision, String)> {
        let note = self.route_note().filter(|_| decision.verdict != Verdict::Deny)?;
        match self.route {
            Route::Execute if !self.list => None,
            route => Some((route.denial()?, note)),
        }
    }

    /// What a person needs to know about a tool that the agent cannot call directly.
    pub(crate) fn route_note(&self) -> Option<String> {
        self.route.note().filter(|_| self.is_about_a_tool())
    }

    /// What the policy says of it in a listing. With progressive discovery the agent's own listing has
    /// fewer tools: see [`PolicyQuery::is_listed`].
    pub(crate) fn listing(&self) -> Option<Listing> {
        let cell = self.policy.cell(self.agent, self.server, self.subject()?);
        Some(cell.list(self.caller()))
    }

    /// Whether the tool is in the agent's listing.
    pub(crate) fn is_listed(&self) -> bool {
        self.route.is_direct()
            && self.listing().is_some_and(|listing| listing.decision.verdict != Verdict::Deny)
    }

    /// Whether a call is refused.
    pub(crate) fn is_refused(&self) -> bool {
        let allowed = self.explain().decision.verdict == Verdict::Allow;
        self.is_about_a_tool() && !self.list && !(allowed && self.is_listed())
    }

    /// Why, in a sentence.
    fn why(&self, decision: &Decision, hidden: bool) -> String {
        let action = self.action();
        let about = About {
            agent: self.agent,
            server: self.server,
            subject: self.name,
            action: action.as_deref(),
        };
        let why = match hidden {
            true => format!(
                "`{}/{}` is not in the agent's list, because no action of its schema is allowed; \
                 what is hidden cannot be called",
                self.server, self.name
            ),
            false => match self.engine_why(decision) {
                Some(why) => self.policy.reason_why(&why, about),
                None => self.policy.reason(decision, about),
            },
        };
        sanitize(&why).into_owned()
    }

    /// The action that a refusal names. For a name that is not listed, the tool's own action keys must
    /// not matter.
    fn action(&self) -> Option<String> {
        match self.subject().filter(|_| self.is_listed()) {
            Some(subject) => {
                self.policy.cell(self.agent, self.server, subject).stated_action(&self.call())
            }
            None => stated_action(&self.call()),
        }
    }

    /// The engine's reason for refusing this call of a tool.
    fn engine_why(&self, decision: &Decision) -> Option<Why> {
        let refused = self.is_about_a_tool() && !self.list && decision.verdict != Verdict::Allow;
        if !refused {
            return None;
        }
        let cell = self.policy.cell(self.agent, self.server, self.subject()?);
        Some(self.policy.why(&cell, self.caller(), &self.call(), *decision))
    }

    /// The name that clients use for a tool of a server.
    fn called_on(&self, server: &str, tool: &str) -> Box<str> {
        let shown = self.policy.exposure(server).and_then(|exposure| exposure.show(tool));
        let plain = shown.map_or_else(|| tool.into(), |shown| shown.name);
        match self.naming {
            // A question claims no name.
            Some(naming) => naming.called(server, &plain),
            None => plain,
        }
    }

    /// The name by which clients call the tool.
    pub(crate) fn called(&self) -> String {
        self.called_on(self.server, self.name).into()
    }

    /// What an agent may call of a server, by the names of its listing.
    fn offer<'r>(&self, server: &'r str, row: &'r Row) -> Offer<'r> {
        let name = |(tool, cell): (&Tool, &toolward_policy::Cell)| {
            let listed = cell.list(self.caller()).decision.verdict != Verdict::Deny;
            listed.then(|| self.called_on(server, tool.name()))
        };
        let prefix = self.naming.map(|naming| naming.prefix(server)).unwrap_or_default();
        Offer { server, prefix, names: row.iter().map(name).collect(), row }
    }

    /// What the agent gets instead of a result: the gateway's own text and data, for a decision of
    /// this id.
    pub(crate) fn refusal(&self, decision: &Decision) -> Refusal {
        let row = |(server, tools): &(&'a str, &ToolSet)| {
            (*server, self.policy.row(self.agent, server, tools))
        };
        // With progressive discovery, only the built-in server's tools can be called by name.
        let callable = |(server, _): &&(&'a str, &ToolSet)| {
            self.route.is_direct() || *server == built_in::NAME
        };
        let rows: Vec<_> = self.offered.iter().filter(callable).map(row).collect();
        let offers: Vec<Offer<'_>> =
            rows.iter().map(|(server, row)| self.offer(server, row)).collect();
        let (action, called) = (self.action(), self.called());
        let sent =
            Sent { tool: &called, action: action.as_deref(), arguments: self.call().arguments };
        // Of a tool that is not listed, the agent learns no reason.
        let why = self.engine_why(decision).filter(|_| self.is_listed());
        let allowed = self.policy.allowed(self.caller(), &offers);
        allowed.refuse(self.policy, sent, why.as_ref(), self.redact, NO_DECISION)
    }

    /// Everything as JSON, as `explain --json` prints it.
    pub(crate) fn to_json(&self, answer: &Answer) -> Value {
        let Answer { explanation, decision, why } = answer;
        let layers: Vec<Value> = explanation
            .layers
            .iter()
            .map(|layer| {
                json!({
                    "layer": layer.layer,
                    "name": self.policy.layer_names().nth(usize::from(layer.layer)),
                    "agent": layer.agent,
                    "verdict": layer.decision.verdict.as_str(),
                    "step": layer.decision.step.as_str(),
                    "steps": layer.steps.iter().map(|step| self.step(layer.layer, step)).collect::<Vec<_>>(),
                })
            })
            .collect();
        let mut answer = decision_json(self.policy, decision, why);
        answer["listed"] = json!(self.is_listed());
        if let Some(note) = self.route_note() {
            answer["route"] = json!(self.route.as_str());
            answer["note"] = json!(note);
        }
        answer["hints"] = json!(self.hints.iter().collect::<Vec<_>>());
        answer["layers"] = json!(layers);
        if self.is_about_a_tool() && decision.verdict == Verdict::Deny {
            let refusal = self.refusal(decision);
            answer["refusal"] = json!({
                "message": sanitize_lines(&refusal.message),
                "text": sanitize_lines(&refusal.text()),
                "allowed_tools": refusal.data["allowed_tools"],
            });
        }
        answer
    }

    fn step(&self, layer: u16, step: &StepTrace) -> Value {
        let tried: Vec<Value> = step
            .tried
            .iter()
            .filter_map(|tried| {
                let rule = self.policy.rule_at(layer, tried.rule)?;
                let (outcome, why) = outcome(&tried.outcome);
                let mut tried = json!({
                    "rule": rule.path,
                    "selector": rule.selector,
                    "when": rule.when,
                    "location": rule.location(),
                    "outcome": outcome,
                    "why": why,
                });
                if let Some(rate) = rule.limit {
                    tried["limit"] = json!(rate.to_string());
                }
                Some(tried)
            })
            .collect();
        json!({
            "step": step.step.as_str(),
            "action": step.action,
            "entries": step.entries,
            "tried": tried,
            "note": step.note,
        })
    }
}

/// A text of several lines, each of them harmless.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.split('\n').map(sanitize).collect::<Vec<_>>().join("\n")
}

/// What came of an entry, in one word, and why where its condition has no answer.
pub(crate) fn outcome(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Matched => ("matched", None),
        Outcome::Maybe => ("maybe", None),
        Outcome::OtherAction => ("other-action", None),
        Outcome::ConditionFalse => ("condition-false", None),
        Outcome::ConditionFailed(why) => ("condition-failed", Some(why)),
    }
}

/// The same in a few words.
pub(crate) fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Matched => "matches".into(),
        Outcome::Maybe => "may match: the arguments decide".into(),
        Outcome::OtherAction => "names another action".into(),
        Outcome::ConditionFalse => "its condition is false".into(),
        Outcome::ConditionFailed(why) => format!("its condition fails: {why}"),
    }
}

/// The note of a step in which no entry matches the subject.
pub(crate) fn step_note(step: &StepTrace) -> String {
    match (&step.note, step.tried.len(), step.entries) {
        (Some(note), _, _) => note.clone(),
        (None, 0, 0) => match step.step {
            Step::ExactDeny
            | Step::WildcardDeny
            | Step::ExactAllow
            | Step::WildcardAllow
            | Step::AllowlistMatch => "no entries".into(),
            Step::ImplicitGrant => "no allow list narrows this server".into(),
            Step::DefaultDeny | Step::AllowlistNone => "nothing matched".into(),
            _ => String::new(),
        },
        (None, 0, 1) => "its only entry does not match".into(),
        (None, 0, entries) => format!("none of its {entries} entries matches"),
        _ => String::new(),
    }
}

/// A decision as JSON, in the form that `decide` answers with.
pub(crate) fn decision_json(policy: &Policy, decision: &Decision, reason: &str) -> Value {
    let rule = policy.rule(decision);
    json!({
        "verdict": decision.verdict.as_str(),
        "step": decision.step.as_str(),
        "layer": decision.layer,
        "rule": rule.as_ref().map(|rule| &rule.path),
        "location": rule.as_ref().map(|rule| rule.location()),
        "reason": reason,
    })
}
