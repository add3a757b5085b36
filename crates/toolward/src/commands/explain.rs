//! `toolward explain`: every layer and step of a decision, and the response the agent would get.

use std::io::Write;

use clap::ArgMatches;
use toolward_config::sanitize;
use toolward_policy::explain::{LayerTrace, StepTrace, Tried};
use toolward_policy::{Decision, Verdict};

use crate::audit_log::find;
use crate::cli::{ExplainArgs, RecordArgs};
use crate::commands::audit::explain_id;
use crate::commands::question::Question;
use crate::discovery::Route;
use crate::exit::{self, Failure};
use crate::guards;
use crate::query::{Answer, PolicyQuery, outcome_text, sanitize_lines, step_note};
use crate::render::{BOLD, DIM, paint, verdict};

pub(crate) fn run(args: ExplainArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.question.output.json;
    let (subject, config) = (&args.question.subject, &args.question.policy.config);
    if args.question.agent.is_none() && find::is_id(subject) {
        // A folder that is named is where to look, whatever the configuration says.
        let config = config.clone().filter(|_| args.dir.is_none());
        return explain_id::run(subject, &RecordArgs { dir: args.dir, config }, args.utc, json);
    }
    let mut question = Question::new(args.question, matches)?;
    if question.asked().is_refused() {
        question.complete()?;
    }
    let asked = question.asked();
    let answer = asked.answer();
    question.warn_of_unknown_agent()?;
    let mut out = anstream::stdout();
    if json {
        writeln!(out, "{}", asked.to_json(&answer))?;
    } else {
        let guarded = guards::any(&question.input.loaded.config, &question.input.policy);
        write!(out, "{}", to_text(&asked, &answer, guarded))?;
    }
    Ok(if answer.decision.verdict == Verdict::Deny { exit::NO } else { exit::OK })
}

fn to_text(question: &PolicyQuery<'_>, answer: &Answer, guarded: bool) -> String {
    let Answer { explanation, decision, why } = answer;
    let mut lines = Vec::new();
    let who = match question.agent {
        Some(agent) => sanitize(agent).into_owned(),
        None => "a caller without a name".into(),
    };
    let what = sanitize(&format!("{}/{}", question.server, question.name)).into_owned();
    let verb = if question.list { "lists" } else { "calls" };
    let answer = paint(verdict(decision.verdict), decision.verdict);
    lines.push(format!("{} {verb} {}: {answer}", paint(BOLD, who), paint(BOLD, what)));
    let hints: Vec<&str> = question.hints.iter().collect();
    if question.is_about_a_tool() && !hints.is_empty() {
        let source = if question.list_unknown { " (its list is not known)" } else { "" };
        lines.push(format!("hints: {}{}", sanitize(&hints.join(", ")), paint(DIM, source)));
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
    lines.extend(agent_sees(question, decision, guarded));
    lines.join("\n") + "\n"
}

fn layer_text(question: &PolicyQuery<'_>, layer: &LayerTrace) -> Vec<String> {
    let name = question.policy.layer_names().nth(usize::from(layer.layer)).unwrap_or("?");
    let whose = match &layer.agent {
        Some(agent) => format!(", rules of `{}`", sanitize(agent)),
        None => String::new(),
    };
    let answer = paint(verdict(layer.decision.verdict), layer.decision.verdict);
    let mut lines = vec![format!("layer {} {}{whose}: {answer}", layer.layer, sanitize(name))];
    let mut action = None;
    for step in &layer.steps {
        if step.action != action {
            action.clone_from(&step.action);
            let named = action.as_deref().map(sanitize).unwrap_or_default();
            lines.push(format!("  with the action `{named}`:"));
        }
        lines.push(step_text(step));
        lines.extend(step.tried.iter().map(|tried| tried_text(question, layer.layer, tried)));
    }
    lines
}

fn step_text(step: &StepTrace) -> String {
    let note = step_note(step);
    let note = sanitize(&note);
    if note.is_empty() {
        return format!("  {}", step.step);
    }
    format!("  {:<18} {}", step.step.as_str(), paint(DIM, note))
}

fn tried_text(question: &PolicyQuery<'_>, layer: u16, tried: &Tried) -> String {
    let Some(rule) = question.policy.rule_at(layer, tried.rule) else { return String::new() };
    let outcome = outcome_text(&tried.outcome);
    let when = rule.when.as_ref().map(|when| format!(" when {when}")).unwrap_or_default();
    let entry = sanitize(&format!("{}{when}", rule.selector)).into_owned();
    let limit = rule.limit.map(|rate| format!(" (at most {rate})")).unwrap_or_default();
    let place = paint(DIM, sanitize(&rule.location()));
    format!("    `{entry}`{limit} {} {place}", sanitize(&outcome))
}

/// What the agent gets to see of this.
fn agent_sees(question: &PolicyQuery<'_>, decision: &Decision, guarded: bool) -> Vec<String> {
    if !question.is_about_a_tool() || question.list {
        return Vec::new();
    }
    let listed = question.is_listed();
    let sight = match (listed, decision.verdict) {
        (true, Verdict::Deny) => {
            "the agent sees the tool in its list, and for this call an error result:"
        }
        (false, _) => {
            let through = question.route == Route::Execute && decision.verdict != Verdict::Deny;
            match through {
                true => "a direct call is answered with the error:",
                false => {
                    "the agent does not see the tool in its list; a call is answered with the error:"
                }
            }
        }
        _ => {
            let mut lines =
                vec!["the agent sees the tool in its list, and the call is forwarded".to_string()];
            if guarded {
                lines.push(
                    "limits and hooks are asked when the call is made, and may refuse it".into(),
                );
            }
            return lines;
        }
    };
    let mut lines = vec![sight.to_string()];
    if decision.verdict != Verdict::Deny {
        lines.splice(0..0, question.route_note());
    }
    let text = sanitize_lines(&question.refusal(decision).text());
    lines.extend(text.lines().map(|line| format!("  {line}")));
    if question.list_unknown && text.contains(". Allowed: ") {
        let server = sanitize(question.server);
        lines.push(format!(
            "the tools of `{server}` are not known, so `Allowed:` lacks their names"
        ));
    }
    lines
}
