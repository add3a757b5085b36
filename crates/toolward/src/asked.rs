//! One question to a policy, and everything that answers it: the same for `can-i`, `explain` and the
//! page.

use serde_json::{Map, Value, json};
use toolward_config::json as strict;
use toolward_config::neutral::neutralise;
use toolward_policy::call::stated_action;
use toolward_policy::explain::{Explanation, Outcome, Query, StepTrace};
use toolward_policy::reason::About;
use toolward_policy::refusal::{Offer, Refusal};
use toolward_policy::{
    Call, Caller, Decision, Hints, Listing, Policy, Step, Subject, Tool, ToolSet, Verdict,
};

use crate::cli::Kind;

/// A question.
pub(crate) struct Asked<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) agent: Option<&'a str>,
    pub(crate) server: &'a str,
    /// The tool's original name, or that of a prompt or resource.
    pub(crate) name: &'a str,
    pub(crate) arguments: Option<&'a Map<String, Value>>,
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
    /// The name by which clients call the tool.
    pub(crate) called: String,
}

/// The way through the layers, and what holds in the end.
pub(crate) struct Answer {
    pub(crate) explanation: Explanation,
    pub(crate) decision: Decision,
    pub(crate) why: String,
}

impl<'a> Asked<'a> {
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

    /// What the agent's listing says of it.
    pub(crate) fn listing(&self) -> Option<Listing> {
        let cell = self.policy.cell(self.agent, self.server, self.subject()?);
        Some(cell.list(self.caller()))
    }

    /// Whether the tool is in the agent's listing.
    pub(crate) fn is_listed(&self) -> bool {
        self.listing().is_some_and(|listing| listing.decision.verdict != Verdict::Deny)
    }

    /// Why, in a sentence.
    fn why(&self, decision: &Decision, hidden: bool) -> String {
        let action = stated_action(&self.call());
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
            false => self.policy.reason(decision, about),
        };
        neutralise(&why).into_owned()
    }

    /// What the agent is told instead of an answer.
    pub(crate) fn refusal(&self) -> Refusal {
        let row = |(server, tools): &(&'a str, &ToolSet)| {
            (*server, self.policy.row(self.agent, server, tools))
        };
        let rows: Vec<_> = self.offered.iter().map(row).collect();
        let offers: Vec<Offer<'_>> =
            rows.iter().map(|(server, row)| Offer { server, row }).collect();
        let allowed = self.policy.allowed_tools(self.caller(), &offers);
        let action = stated_action(&self.call());
        toolward_policy::refusal::refusal(&allowed, &self.called, action.as_deref())
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
        answer["hints"] = json!(self.hints.iter().collect::<Vec<_>>());
        answer["layers"] = json!(layers);
        if self.is_about_a_tool() && decision.verdict == Verdict::Deny {
            let refusal = self.refusal();
            let message = neutralise(&refusal.message);
            answer["refusal"] = json!({"message": message, "allowed_tools": refusal.allowed_tools});
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

/// What a step without an entry that speaks of the subject has to say.
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
        (None, 0, 1) => "its one entry does not speak of it".into(),
        (None, 0, entries) => format!("none of its {entries} entries speaks of it"),
        _ => String::new(),
    }
}

/// Arguments as a person wrote them, or what is wrong with them.
pub(crate) fn parse_arguments(text: &str) -> Result<Map<String, Value>, String> {
    let parsed = strict::parse(text).map_err(|fault| {
        let start = usize::try_from(fault.span.start).unwrap_or(usize::MAX);
        let before = text.get(..start).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let (row, column) = (before.matches('\n').count() + 1, line.chars().count() + 1);
        format!("{} (line {row}, column {column})", fault.message)
    })?;
    match parsed.to_json() {
        Value::Object(arguments) => Ok(arguments),
        _ => Err("an object looks like '{\"path\": \"/a\"}'".into()),
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
