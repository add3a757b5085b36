//! `toolward explain`: every layer and step, and what the agent would see.

use std::io::Write;

use clap::ArgMatches;
use serde_json::{Value, json};
use toolward_config::neutral::neutralise;
use toolward_policy::explain::{Explanation, LayerTrace, Outcome, StepTrace, Tried};
use toolward_policy::refusal::Offer;
use toolward_policy::{Decision, Step, Verdict};

use crate::cli::{ExplainArgs, RecordArgs};
use crate::commands::audit::past;
use crate::commands::question::{Question, decision_json};
use crate::exit::{self, Failure};
use crate::guards;
use crate::render::{BOLD, DIM, paint, verdict};

pub(crate) fn run(args: ExplainArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.question.output.json;
    let (subject, config) = (&args.question.subject, &args.question.policy.config);
    if args.question.agent.is_none() && past::is_id(subject) {
        // A folder that is named is where to look, whatever the configuration says.
        let config = config.clone().filter(|_| args.dir.is_none());
        return past::run(subject, &RecordArgs { dir: args.dir, config }, json);
    }
    let list = args.question.list;
    let question = Question::new(args.question, matches)?;
    let explanation = question.explain();
    let (decision, hidden) = question.decide(&explanation);
    let answer = Answer { explanation, decision, why: question.why(&decision, hidden) };
    let mut out = anstream::stdout();
    if json {
        writeln!(out, "{}", to_json(&question, &answer))?;
    } else {
        write!(out, "{}", to_text(&question, &answer, list))?;
    }
    Ok(if decision.verdict == Verdict::Deny { exit::NO } else { exit::OK })
}

/// The way through the layers, and what holds in the end.
struct Answer {
    explanation: Explanation,
    decision: Decision,
    why: String,
}

fn to_text(question: &Question, answer: &Answer, list: bool) -> String {
    let Answer { explanation, decision, why } = answer;
    let mut lines = Vec::new();
    let who = match &question.agent {
        Some(agent) => neutralise(agent).into_owned(),
        None => "a caller without a name".into(),
    };
    let what = neutralise(&format!("{}/{}", question.server, question.name)).into_owned();
    let verb = if list { "lists" } else { "calls" };
    let answer = paint(verdict(decision.verdict), decision.verdict);
    lines.push(format!("{} {verb} {}: {answer}", paint(BOLD, who), paint(BOLD, what)));
    let hints: Vec<&str> = question.hints.iter().collect();
    if question.is_about_a_tool() && !hints.is_empty() {
        let source = if question.list_unknown() { " (its list is not known)" } else { "" };
        lines.push(format!("hints: {}{}", neutralise(&hints.join(", ")), paint(DIM, source)));
    }
    lines.push(String::new());
    for layer in &explanation.layers {
        lines.extend(layer_text(question, layer));
    }
    if explanation.layers.is_empty() {
        lines.push(format!("{}  {why}", decision.step));
    }
    lines.push(String::new());
    lines.push(format!("because {why}"));
    lines.extend(agent_sees(question, decision, list));
    lines.join("\n") + "\n"
}

fn layer_text(question: &Question, layer: &LayerTrace) -> Vec<String> {
    let name = question.input.policy.layer_names().nth(usize::from(layer.layer)).unwrap_or("?");
    let whose = match &layer.agent {
        Some(agent) => format!(", rules of `{}`", neutralise(agent)),
        None => String::new(),
    };
    let answer = paint(verdict(layer.decision.verdict), layer.decision.verdict);
    let mut lines = vec![format!("layer {} {}{whose}: {answer}", layer.layer, neutralise(name))];
    let mut action = None;
    for step in &layer.steps {
        if step.action != action {
            action.clone_from(&step.action);
            let named = action.as_deref().map(neutralise).unwrap_or_default();
            lines.push(format!("  with the action `{named}`:"));
        }
        lines.push(step_text(step));
        lines.extend(step.tried.iter().map(|tried| tried_text(question, layer.layer, tried)));
    }
    lines
}

fn step_text(step: &StepTrace) -> String {
    let note = match (&step.note, step.tried.len(), step.entries) {
        (Some(note), _, _) => neutralise(note).into_owned(),
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
    };
    if note.is_empty() {
        return format!("  {}", step.step);
    }
    format!("  {:<18} {}", step.step.as_str(), paint(DIM, note))
}

fn tried_text(question: &Question, layer: u16, tried: &Tried) -> String {
    let Some(rule) = question.input.policy.rule_at(layer, tried.rule) else { return String::new() };
    let outcome = match &tried.outcome {
        Outcome::Matched => "matches".into(),
        Outcome::Maybe => "may match: the arguments decide".into(),
        Outcome::OtherAction => "names another action".into(),
        Outcome::ConditionFalse => "its condition is false".into(),
        Outcome::ConditionFailed(why) => format!("its condition fails: {why}"),
    };
    let when = rule.when.as_ref().map(|when| format!(" when {when}")).unwrap_or_default();
    let entry = neutralise(&format!("{}{when}", rule.selector)).into_owned();
    let limit = rule.limit.map(|rate| format!(" (at most {rate})")).unwrap_or_default();
    let place = paint(DIM, neutralise(&rule.location()));
    format!("    `{entry}`{limit} {} {place}", neutralise(&outcome))
}

/// What the agent gets to see of this.
fn agent_sees(question: &Question, decision: &Decision, list: bool) -> Vec<String> {
    if !question.is_about_a_tool() || list {
        return Vec::new();
    }
    let listed = question.is_listed();
    let sight = match (listed, decision.verdict) {
        (true, Verdict::Deny) => {
            "the agent sees the tool in its list, and for this call an error result:"
        }
        (false, _) => {
            "the agent does not see the tool in its list; a call is answered with the error:"
        }
        _ => {
            let mut lines =
                vec!["the agent sees the tool in its list, and the call is forwarded".to_string()];
            if guards::any(&question.input.loaded.config, &question.input.policy) {
                lines.push(
                    "limits and hooks are asked when the call is made, and may refuse it".into(),
                );
            }
            return lines;
        }
    };
    vec![sight.into(), format!("  {}", refusal(question).0)]
}

fn refusal(question: &Question) -> (String, Vec<String>) {
    let input = &question.input;
    let rows: Vec<_> = input
        .catalogue
        .lists()
        .map(|(server, tools)| (server, input.policy.row(question.agent.as_deref(), server, tools)))
        .collect();
    let offers: Vec<Offer<'_>> = rows.iter().map(|(server, row)| Offer { server, row }).collect();
    let action = question.action();
    let allowed = input.policy.allowed_tools(question.caller(), &offers);
    let refusal =
        toolward_policy::refusal::refusal(&allowed, &question.exposed(), action.as_deref());
    (neutralise(&refusal.message).into_owned(), refusal.allowed_tools)
}

fn to_json(question: &Question, answer: &Answer) -> Value {
    let Answer { explanation, decision, why } = answer;
    let layers: Vec<Value> = explanation
        .layers
        .iter()
        .map(|layer| {
            json!({
                "layer": layer.layer,
                "name": question.input.policy.layer_names().nth(usize::from(layer.layer)),
                "agent": layer.agent,
                "verdict": layer.decision.verdict.as_str(),
                "step": layer.decision.step.as_str(),
                "steps": layer.steps.iter().map(|step| step_json(question, layer.layer, step)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut answer = decision_json(&question.input, decision, why);
    answer["listed"] = json!(question.is_listed());
    answer["hints"] = json!(question.hints.iter().collect::<Vec<_>>());
    answer["layers"] = json!(layers);
    if question.is_about_a_tool() && decision.verdict == Verdict::Deny {
        let (message, allowed) = refusal(question);
        answer["refusal"] = json!({"message": message, "allowed_tools": allowed});
    }
    answer
}

fn step_json(question: &Question, layer: u16, step: &StepTrace) -> Value {
    let tried: Vec<Value> = step
        .tried
        .iter()
        .filter_map(|tried| {
            let rule = question.input.policy.rule_at(layer, tried.rule)?;
            let (outcome, why) = match &tried.outcome {
                Outcome::Matched => ("matched", None),
                Outcome::Maybe => ("maybe", None),
                Outcome::OtherAction => ("other-action", None),
                Outcome::ConditionFalse => ("condition-false", None),
                Outcome::ConditionFailed(why) => ("condition-failed", Some(why)),
            };
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
