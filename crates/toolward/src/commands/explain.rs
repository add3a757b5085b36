//! `toolward explain`: every layer and step of a decision, and the response the agent would get.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::config::Config;
use toolward_config::hint_sets::HintSet;
use toolward_config::sanitize;
use toolward_gateway::upstream::built_in::EXECUTE;
use toolward_policy::Verdict;
use toolward_policy::explain::{LayerTrace, StepTrace, Tried};

use crate::audit_log::find;
use crate::cli::{ExplainArgs, Kind, RecordArgs};
use crate::commands::audit::explain_id;
use crate::commands::question::Question;
use crate::exit::{self, Failure};
use crate::guards;
use crate::query::{Answer, PolicyQuery, Via, Way, outcome_text, sanitize_lines, step_note};
use crate::render::{BOLD, DIM, paint, verdict};

pub(crate) fn run(args: ExplainArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.question.output.json;
    let (subject, config) = (&args.question.subject, &args.question.policy.config);
    if args.question.agent.is_none() && find::is_id(subject) {
        // A directory given by a flag takes precedence over the configuration.
        let config = config.clone().filter(|_| args.dir.is_none());
        return explain_id::run(subject, &RecordArgs { dir: args.dir, config }, args.utc, json);
    }
    if !subject.contains('/') {
        return Err(Failure::usage(format!(
            "error: `{}` is neither SERVER/TOOL nor the id of a decision\n  help: write SERVER/TOOL, or the id \
             that a refusal or `toolward audit query` shows: at least 12 digits of 0-9 and a-f",
            sanitize(subject)
        )));
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
        let mut row = asked.to_json(&answer);
        if let Some(shadow) = &question.input.shadow {
            row["would"] = json!(asked.would(shadow, &answer.decision));
        }
        writeln!(out, "{row}")?;
    } else {
        let config = &question.input.loaded.config;
        let guarded = guards::any(config, &question.input.policy);
        write!(out, "{}", to_text(&asked, &answer, config, guarded))?;
        let shadow = question.input.shadow.as_ref();
        if let Some(would) = shadow.and_then(|shadow| asked.would(shadow, &answer.decision)) {
            writeln!(out, "with the shadow rules, it would be: {}", sanitize(&would))?;
        }
    }
    Ok(if answer.decision.verdict == Verdict::Deny { exit::NO } else { exit::OK })
}

fn to_text(question: &PolicyQuery<'_>, outcome: &Answer, config: &Config, guarded: bool) -> String {
    let Answer { explanation, decision, why } = outcome;
    let mut lines = Vec::new();
    let who = match question.agent {
        Some(agent) => sanitize(agent).into_owned(),
        None => "an unnamed caller".into(),
    };
    let what = sanitize(&format!("{}/{}", question.server, question.name)).into_owned();
    let verb = match question.kind {
        _ if question.list => "lists",
        Kind::Tool => "calls",
        Kind::Prompt => "gets the prompt",
        Kind::Resource | Kind::Template => "reads",
    };
    let answer = paint(verdict(decision.verdict), decision.verdict);
    lines.push(format!("{} {verb} {}: {answer}", paint(BOLD, who), paint(BOLD, what)));
    let hints: Vec<&str> = question.hints.iter().collect();
    if question.is_about_a_tool() && !hints.is_empty() {
        let source = match hint_set(config, question.server, question.name) {
            Some(set) => format!(" (the built-in set `{}`, version {})", set.name, set.version),
            None if question.list_unknown => " (its list is not known)".into(),
            None => String::new(),
        };
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
    lines.extend(agent_sees(question, outcome, guarded));
    lines.join("\n") + "\n"
}

/// The set that a tool's hints come from, if it is one.
fn hint_set(config: &Config, server: &str, tool: &str) -> Option<&'static HintSet> {
    let server = config.servers.iter().find(|known| known.name == server)?;
    server.hints.set.filter(|_| server.hints.from_set.iter().any(|known| known == tool))
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
    let role = rule.role.as_deref().map(|role| format!(" of the role `{}`", sanitize(role)));
    let role = role.unwrap_or_default();
    format!("    `{entry}`{limit}{role} {} {place}", sanitize(&outcome))
}

/// The agent's perspective: its list, and the response to each way of making the call.
fn agent_sees(question: &PolicyQuery<'_>, answer: &Answer, guarded: bool) -> Vec<String> {
    let ways = question.ways(answer);
    let mut lines = Vec::new();
    if ways.len() > 1 {
        lines.extend(question.route_note());
    }
    for way in &ways {
        lines.push(sight(way, ways.len() > 1));
        let Some(refusal) = &way.refusal else {
            if guarded {
                lines.push(
                    "limits and hooks are checked when the call is made, and may refuse it".into(),
                );
            }
            continue;
        };
        let text = sanitize_lines(&refusal.text());
        lines.extend(text.lines().map(|line| format!("  {line}")));
        if question.list_unknown && text.contains(". Allowed: ") {
            let server = sanitize(question.server);
            lines.push(format!(
                "the tools of `{server}` are not known, so `Allowed:` lacks their names"
            ));
        }
    }
    lines
}

/// The line before the response to one way of making the call; `several` if there are others.
fn sight(way: &Way, several: bool) -> String {
    let refused = way.refusal.is_some();
    match (way.via, way.listed, refused) {
        (Via::Execute, _, false) => format!("through `{EXECUTE}`, the call is forwarded"),
        (Via::Execute, true, true) => {
            format!("through `{EXECUTE}`, the call is answered with an error result:")
        }
        (Via::Execute, false, true) => {
            format!("through `{EXECUTE}`, the call is answered with the error:")
        }
        (Via::Direct, true, false) => {
            "the agent sees the tool in its list, and the call is forwarded".into()
        }
        (Via::Direct, true, true) => {
            "the agent sees the tool in its list, and for this call an error result:".into()
        }
        (Via::Direct, false, _) if several => "a direct call is answered with the error:".into(),
        (Via::Direct, false, _) => {
            "the agent does not see the tool in its list; a call is answered with the error:".into()
        }
    }
}
