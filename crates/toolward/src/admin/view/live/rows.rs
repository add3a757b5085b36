//! One decision as a table row.

use serde_json::Value;

use crate::admin::AdminUi;
use crate::admin::view::prose::{Piece, has_place, pieces};
use crate::admin::view::steps;
use crate::audit_log::row::{took, what};
use crate::report::unlisted::Says;

pub(in crate::admin::view) struct Row {
    pub(in crate::admin::view) id: String,
    pub(in crate::admin::view) kind: String,
    /// The full timestamp for machines, and the time of day for people.
    pub(in crate::admin::view) time: String,
    pub(in crate::admin::view) clock: String,
    pub(in crate::admin::view) agent: Option<String>,
    pub(in crate::admin::view) what: String,
    /// One word, and its color.
    pub(in crate::admin::view) verdict: String,
    pub(in crate::admin::view) colour: &'static str,
    /// The verdict of shadow rules, if it is another one.
    pub(in crate::admin::view) would: Option<String>,
    /// The policy is not enforced: denied calls are forwarded.
    pub(in crate::admin::view) unenforced: bool,
    pub(in crate::admin::view) why: Why,
    pub(in crate::admin::view) outcome: String,
    pub(in crate::admin::view) failed: bool,
    pub(in crate::admin::view) took: Option<String>,
}

/// The reason of a decision.
#[derive(Default)]
pub(in crate::admin::view) struct Why {
    /// In words: always for a refusal, otherwise if there is no rule.
    pub(in crate::admin::view) sentence: Option<Vec<Piece>>,
    pub(in crate::admin::view) rule: Option<String>,
    pub(in crate::admin::view) place: Option<String>,
    /// Not from the audit record, but from the active policy.
    pub(in crate::admin::view) now: Option<String>,
}

impl Row {
    pub(in crate::admin::view) fn of(page: &AdminUi, row: &Value) -> Row {
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
            (None, _) if kind == "intent" => "in flight".into(),
            (None, _) => String::new(),
        };
        let failed = text("outcome").is_some_and(|outcome| outcome != "ok");
        Row {
            clock: time.get(11..23).unwrap_or(&time).into(),
            agent: text("agent"),
            what: what(row),
            would: row["would"]["verdict"].as_str().map(String::from),
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

fn why(page: &AdminUi, row: &Value, kind: &str) -> Why {
    let text = |name: &str| row[name].as_str().map(String::from);
    if is_unseen(row) {
        let now = says(page, row);
        let decision = now.as_ref().and_then(|now| now.decision);
        let active = page.gateway().active();
        let rule = decision.and_then(|decision| active.policy.rule(&decision));
        let now = now.map(|now| now.reason);
        let sentence = now.as_deref().map(pieces);
        let place = rule.as_ref().map(|rule| rule.location());
        let place = place.filter(|_| !sentence.as_deref().is_some_and(has_place));
        return Why { sentence, rule: None, place, now };
    }
    let step = text("step");
    let reason = text("reason").or(step.as_deref().map(|step| steps::sentence(step).into()));
    let (rule, place) = (text("rule_text"), text("rule_at"));
    let refused = kind != "intent" || row["verdict"] != "allow";
    let sentence = reason.filter(|_| refused || rule.is_none()).as_deref().map(pieces);
    let place = place.filter(|_| !sentence.as_deref().is_some_and(has_place));
    Why { rule: rule.filter(|_| sentence.is_none()), sentence, place, now: None }
}

/// Whether this is a refusal of an unlisted name, for which the record has no rule.
pub(super) fn is_unseen(row: &Value) -> bool {
    row["kind"] == "refusal" && row["listed"] == false && row["step"].is_null()
}

/// The active policy's explanation of such a name.
pub(super) fn says(page: &AdminUi, row: &Value) -> Option<Says> {
    let gateway = page.gateway();
    let active = gateway.active();
    let in_force = page.reloader.state().in_force.clone()?;
    let names = in_force.names(gateway, &active);
    let agent = row["agent"].as_str();
    Some(names.say(&active, agent, None, row["exposed_name"].as_str()?))
}
