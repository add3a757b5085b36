//! One decision as a row.

use serde_json::Value;

use crate::commands::audit::row::{took, what};
use crate::page::Page;
use crate::unseen::Says;

pub(super) struct Row {
    pub(super) id: String,
    pub(super) kind: String,
    /// In full, for machines, and the time of day, for people.
    pub(super) time: String,
    pub(super) clock: String,
    pub(super) agent: Option<String>,
    pub(super) what: String,
    /// One word, and how it is coloured.
    pub(super) verdict: String,
    pub(super) colour: &'static str,
    /// What the policy refuses passes.
    pub(super) unenforced: bool,
    pub(super) why: Why,
    pub(super) outcome: String,
    pub(super) failed: bool,
    pub(super) took: Option<String>,
}

/// What decided.
#[derive(Default)]
pub(super) struct Why {
    pub(super) step: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) place: Option<String>,
    /// It is not in the record: the policy in force says so now.
    pub(super) now: Option<String>,
}

impl Row {
    pub(super) fn of(page: &Page, row: &Value) -> Row {
        let text = |name: &str| row[name].as_str().map(String::from);
        let kind = text("kind").unwrap_or_default();
        let time = text("time").unwrap_or_default();
        let verdict = match &*kind {
            "intent" | "refusal" => text("verdict").unwrap_or_else(|| "?".into()),
            "unavailable" => "not decided".into(),
            other => other.into(),
        };
        let colour = match &*verdict {
            "allow" => "allow",
            "deny" => "deny",
            "ask" => "ask",
            "not decided" => "depends",
            _ => "plain",
        };
        let outcome = match (text("outcome"), row["error_code"].as_i64()) {
            (Some(outcome), Some(code)) => format!("{outcome} ({code})"),
            (Some(outcome), None) => outcome,
            (None, _) if kind == "intent" => "under way".into(),
            (None, _) => String::new(),
        };
        let failed = text("outcome").is_some_and(|outcome| outcome != "ok");
        Row {
            clock: time.get(11..23).unwrap_or(&time).into(),
            agent: text("agent"),
            what: what(row),
            unenforced: row["enforced"] == false,
            why: why(page, row, &kind),
            took: row["duration_us"].as_u64().map(took),
            id: text("id").unwrap_or_default(),
            kind,
            time,
            verdict,
            colour,
            outcome,
            failed,
        }
    }
}

fn why(page: &Page, row: &Value, kind: &str) -> Why {
    let text = |name: &str| row[name].as_str().map(String::from);
    if is_unseen(row) {
        let now = says(page, row);
        let Some(Says { decision: Some(decision), .. }) = now else {
            return Why { now: now.map(|now| now.reason), ..Why::default() };
        };
        let snapshot = page.gateway().current.get();
        let rule = snapshot.policy.rule(&decision);
        return Why {
            step: Some(decision.step.to_string()),
            rule: rule.as_ref().map(|rule| rule.written()),
            place: rule.as_ref().map(|rule| rule.location()),
            now: now.map(|now| now.reason),
        };
    }
    // A limit or a hook is named where a rule would be.
    let step = text("step");
    let guard = step.as_deref().filter(|step| matches!(*step, "limit" | "hook")).and_then(text);
    let reason = text("reason").filter(|_| kind == "unavailable");
    Why { rule: text("rule_text").or(guard).or(reason), place: text("rule_at"), step, now: None }
}

/// A refusal of a name that the agent does not see: the record knows no rule of it.
pub(super) fn is_unseen(row: &Value) -> bool {
    row["kind"] == "refusal" && row["listed"] == false && row["step"].is_null()
}

/// What the policy in force says of such a name.
pub(super) fn says(page: &Page, row: &Value) -> Option<Says> {
    let gateway = page.gateway();
    let snapshot = gateway.current.get();
    let in_force = page.reloader.state().in_force.clone()?;
    let names = in_force.names(gateway, &snapshot);
    let agent = row["agent"].as_str();
    Some(names.say(&snapshot, agent, None, row["exposed_name"].as_str()?))
}
