//! One policy query with its full answer, shared by `can-i`, `explain` and the admin UI.

mod ways;

use serde_json::{Map, Value, json};
use toolward_config::sanitize;
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::view::names::Naming;
use toolward_policy::explain::{Explanation, Outcome, Query, StepTrace};
use toolward_policy::reason::{About, hidden_tool};
use toolward_policy::why::Why;
use toolward_policy::{
    Call, Caller, Decision, Hints, Listing, Policy, Step, Subject, Tool, ToolSet, Verdict,
};

use self::ways::refusal_json;
pub(crate) use self::ways::{Via, Way};
use crate::arguments::ArgumentsText;
use crate::cli::Kind;
use crate::discovery::Route;
use crate::listing;

/// A policy query.
pub(crate) struct PolicyQuery<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) agent: Option<&'a str>,
    pub(crate) server: &'a str,
    /// The tool's original name, or that of a prompt or resource.
    pub(crate) name: &'a str,
    pub(crate) arguments: Option<&'a ArgumentsText>,
    /// The claims of the caller's token, as far as they are known.
    pub(crate) claims: Option<&'a Map<String, Value>>,
    pub(crate) kind: Kind,
    /// Whether it is about the listing and not about a call.
    pub(crate) list: bool,
    /// `None`: the server's list is known and lacks the tool.
    pub(crate) tool: Option<&'a Tool>,
    /// The decision is based on the tool's name alone.
    pub(crate) list_unknown: bool,
    pub(crate) hints: &'a Hints,
    /// The servers whose tools the agent may use, with their lists.
    pub(crate) offered: Vec<(&'a str, &'a ToolSet)>,
    /// How clients name tools; `None`: as their server does.
    pub(crate) naming: Option<&'a Naming>,
    /// The redaction of values that a refusal repeats.
    pub(crate) redact: &'a Redact,
    /// How the agent calls the server's tools.
    pub(crate) route: Route,
    /// Why agents cannot use the tool, regardless of the policy.
    pub(crate) quarantined: Option<String>,
}

/// The evaluation of all layers, and the final decision.
pub(crate) struct Answer {
    pub(crate) explanation: Explanation,
    pub(crate) decision: Decision,
    pub(crate) why: String,
}

impl<'a> PolicyQuery<'a> {
    pub(crate) fn caller(&self) -> Caller<'a> {
        Caller { agent: self.agent, claims: self.claims }
    }

    fn call(&self) -> Call<'a> {
        Call { action: None, arguments: self.arguments.map(|arguments| arguments as _) }
    }

    fn subject(&self) -> Option<Subject<'a>> {
        match self.kind {
            Kind::Tool => self.tool.map(|tool| Subject::Tool(tool, self.hints)),
            Kind::Prompt => Some(Subject::Prompt(self.name)),
            Kind::Resource => Some(Subject::Resource(self.name)),
            Kind::Template => Some(Subject::Template(self.name)),
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
        let why = match self.expansion(explanation.decision) {
            Some(_) => listing::EXPANDS.into(),
            None => self.why(&decision, hidden),
        };
        Answer { explanation, decision, why }
    }

    /// The steps of the evaluation, in all layers.
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

    /// The decision of the policy with its shadow rules in words, if it is another one.
    pub(crate) fn would(&self, shadow: &Policy, decision: &Decision) -> Option<String> {
        let query = if self.list { Query::List } else { Query::Call(self.call()) };
        let explained = shadow.explain(self.caller(), self.server, self.subject()?, query);
        let would = explained.decision;
        if would.verdict == decision.verdict {
            return None;
        }
        let rule = shadow.rule(&would);
        let rule = rule.map(|rule| format!(" by `{}` ({})", rule.path, rule.location()));
        let (verdict, step) = (would.verdict, would.step);
        Some(format!("{verdict}{} at step {step}", rule.unwrap_or_default()))
    }

    /// The decision, and whether it is the listing that denies: hidden means not callable, also with
    /// an action that the tool's schema does not name.
    fn decide(&self, explanation: &Explanation) -> (Decision, bool) {
        let decision = self.expansion(explanation.decision).unwrap_or(explanation.decision);
        match self.listing().filter(|_| decision.verdict != Verdict::Deny) {
            Some(listing) if listing.decision.verdict == Verdict::Deny => (listing.decision, true),
            _ => (decision, false),
        }
    }

    /// The answer if the policy allows the tool, and the agent's discovery setting does not: a tool that is
    /// called through `execute_tool` is not listed, and without that tool it cannot be called.
    fn unreachable(&self, decision: &Decision) -> Option<(Decision, String)> {
        if let Some(why) = self.quarantined.as_ref().filter(|_| decision.verdict != Verdict::Deny) {
            let (verdict, step) = (Verdict::Deny, Step::Pin);
            return Some((Decision { verdict, step, layer: None, rule: None }, why.clone()));
        }
        let note = self.route_note().filter(|_| decision.verdict != Verdict::Deny)?;
        match self.route {
            Route::Execute if !self.list => None,
            route => Some((route.denial()?, note)),
        }
    }

    /// A note about a tool that the agent cannot call directly, or a prompt or resource that it cannot use.
    pub(crate) fn route_note(&self) -> Option<String> {
        self.route.note()
    }

    /// The decision about a template that is listed only for URIs that it can expand to.
    fn expansion(&self, written: Decision) -> Option<Decision> {
        let about = (self.caller(), self.server);
        let expansion = || listing::expansion(self.policy, about, self.name, written);
        (self.kind == Kind::Template).then(expansion).flatten()
    }

    /// The verdict of the policy for a listing. With progressive discovery the agent's own listing has fewer
    /// tools: see [`PolicyQuery::is_listed`].
    pub(crate) fn listing(&self) -> Option<Listing> {
        let cell = self.policy.cell(self.agent, self.server, self.subject()?);
        let listing = cell.list(self.caller());
        let decision = self.expansion(listing.decision).unwrap_or(listing.decision);
        Some(Listing { decision, ..listing })
    }

    /// Whether the call is refused in at least one way of making it.
    pub(crate) fn is_refused(&self) -> bool {
        let allowed = self.explain().decision.verdict == Verdict::Allow;
        self.is_about_a_tool() && !self.list && !(allowed && self.is_listed())
    }

    /// The reason, in a sentence.
    fn why(&self, decision: &Decision, hidden: bool) -> String {
        let action = self.action();
        let about = About {
            agent: self.agent,
            server: self.server,
            subject: self.name,
            action: action.as_deref(),
        };
        let why = match hidden {
            true => hidden_tool(self.server, self.name),
            false => match self.engine_why(decision) {
                Some(why) => self.policy.reason_why(&why, about),
                None => self.policy.reason(decision, about),
            },
        };
        sanitize(&why).into_owned()
    }

    /// The action of the call, by the tool's own action keys.
    fn action(&self) -> Option<String> {
        let cell = self.policy.cell(self.agent, self.server, self.subject()?);
        cell.stated_action(&self.call())
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

    /// Everything as JSON, as `explain --json` prints it.
    pub(crate) fn to_json(&self, answer: &Answer) -> Value {
        let ways = self.ways(answer);
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
        if decision.verdict == Verdict::Deny
            && let Some(refusal) = ways.first().and_then(|way| way.refusal.as_ref())
        {
            answer["refusal"] = refusal_json(refusal);
        }
        if let Some(direct) = ways.get(1) {
            answer["direct"] = direct.to_json(self);
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

/// A text of several lines, each of them sanitized.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.split('\n').map(sanitize).collect::<Vec<_>>().join("\n")
}

/// The outcome of an entry in one word, and the reason if its condition could not be evaluated.
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

/// A decision as JSON, in the format of `decide`.
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
