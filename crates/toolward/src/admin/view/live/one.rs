//! One decision: its audit record, and the decision of the active policy.

use std::sync::Arc;

use askama::Template;
use serde_json::Value;
use toolward_gateway::audit::arguments::Comparison;
use toolward_gateway::audit::redact::REDACTED;

use super::rows::{Row, is_unseen, says};
use crate::admin::query::encoded;
use crate::admin::view::allow;
use crate::admin::view::prose::{Piece, pieces};
use crate::admin::view::steps;
use crate::admin::{AdminUi, ViewResponse};
use crate::audit_log::find::{decision, facts, is_id};
use crate::audit_log::row::joined;

pub(super) struct One {
    pub(super) row: Row,
    pub(super) facts: Vec<(String, Vec<Piece>)>,
    /// The hash in the next record does not match.
    pub(super) changed: bool,
    /// The policy has changed since the decision.
    pub(super) policy_changed: bool,
    /// The URL of the explanation by the active policy.
    pub(super) explain: Option<String>,
    /// The URL of a proposal that permits a denied call.
    pub(super) allow: Option<String>,
    /// Whether the explanation is about the call rather than the listing.
    pub(super) whole: bool,
}

#[derive(Template)]
#[template(path = "live_one.html")]
struct RecordPart<'a> {
    one: &'a One,
}

pub(super) async fn show(page: &Arc<AdminUi>, id: &str) -> ViewResponse {
    match of(page, id).await {
        Some(one) => ViewResponse::of(&RecordPart { one: &one }),
        None => ViewResponse::Wrong("No audit record has this id.".into()),
    }
}

/// Looks up a decision. The log can be large, so it is searched on another thread.
pub(super) async fn of(page: &Arc<AdminUi>, id: &str) -> Option<One> {
    if !is_id(id) {
        return None;
    }
    let (folder, id) = (page.reloader.begun().audit.dir.clone(), id.to_string());
    let found = tokio::task::spawn_blocking(move || decision(&folder, &id).ok().flatten());
    let found = found.await.ok()??;
    let active = page.gateway().active();
    let record = &found.record;
    let policy_changed = record["policy"].as_str().is_some_and(|then| then != active.version);
    Some(One {
        facts: in_words(facts(&found, None), record),
        changed: found.fits == Some(false),
        policy_changed,
        explain: explain(page, record),
        allow: proposal(record),
        whole: arguments(record, same_as(page)).is_some(),
        row: Row::of(page, &joined(record.clone(), found.outcome.as_ref())),
    })
}

/// The facts, with the reason and the agent's response first, and with words instead of step codes.
fn in_words(facts: Vec<(String, String)>, record: &Value) -> Vec<(String, Vec<Piece>)> {
    let reason = record["reason"].is_string();
    let word = |(label, value): (String, String)| match (&*label, record["step"].as_str()) {
        ("step", Some(_)) if reason => None,
        ("step", Some(step)) => Some(("because".into(), pieces(steps::sentence(step)))),
        ("because", _) => Some((label, pieces(&value))),
        _ => Some((label, vec![Piece::Text(value)])),
    };
    let mut facts: Vec<(String, Vec<Piece>)> = facts.into_iter().filter_map(word).collect();
    // Lines without a label continue the one before.
    let mut place = 0;
    let mut key = |(label, _): &(String, Vec<Piece>)| {
        place = match &**label {
            "" => place,
            "because" => 0,
            "agent got" => 1,
            _ => 2,
        };
        place
    };
    let keys: Vec<u8> = facts.iter().map(&mut key).collect();
    let mut keyed: Vec<(u8, (String, Vec<Piece>))> =
        keys.into_iter().zip(facts.drain(..)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, fact)| fact).collect()
}

/// The URL of the explanation: agent, tool or prompt or resource, and arguments if they are known.
fn explain(page: &AdminUi, record: &Value) -> Option<String> {
    let text = |name: &str| record[name].as_str().map(String::from);
    let others = [("prompt", "prompt"), ("uri", "resource")];
    let other = others.into_iter().find_map(|(member, kind)| Some((text(member)?, kind)));
    let (server, tool) = match (&other, is_unseen(record)) {
        (Some((name, _)), _) => (text("server")?, name.clone()),
        (None, true) => says(page, record)?.tool?,
        (None, false) => (text("server")?, text("tool")?),
    };
    // A name that matches no server cannot be explained.
    if server.is_empty() {
        return None;
    }
    let mut address = format!("explain?server={}&tool={}", encoded(&server), encoded(&tool));
    if let Some((_, kind)) = other {
        address += &format!("&kind={kind}");
    }
    if let Some(agent) = text("agent") {
        address += &format!("&agent={}", encoded(&agent));
    }
    if let Some(given) = arguments(record, same_as(page)) {
        address += &format!("&args={}", encoded(&given));
    }
    Some(address)
}

/// The URL of the narrowest permission, for a call of a tool that no rule denies by name.
fn proposal(record: &Value) -> Option<String> {
    let text = |name: &str| record[name].as_str();
    let step = text("step").filter(|_| text("kind") == Some("refusal"))?;
    allow::address(text("agent")?, (text("server")?, text("tool")?), step)
}

/// Compares a recorded hash with arguments.
fn same_as(page: &AdminUi) -> impl Fn(&str, &[u8]) -> bool {
    let audit = page.gateway().context.audit.clone();
    move |hash, given| audit.arguments.compare(hash, given) == Comparison::Same
}

/// The arguments, if the audit record has them unchanged. With other arguments, the decision could differ.
fn arguments(record: &Value, same: impl Fn(&str, &[u8]) -> bool) -> Option<String> {
    let given = record["arguments"].as_object().map(|_| record["arguments"].to_string())?;
    // An agent can send the placeholder of a redacted secret itself; the hash distinguishes the two.
    let hash = record["arguments_hash"].as_str();
    let as_they_were = || hash.is_some_and(|hash| same(hash, given.as_bytes()));
    (!given.contains(REDACTED) || as_they_were()).then_some(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_whole_arguments_are_asked_about() {
        let same = |hash: &str, given: &[u8]| hash == "h" && given == br#"{"a":"[redacted]"}"#;
        for (record, whole) in [
            (json!({"arguments": {"a": 1}}), true),
            (json!({"arguments": {}}), true),
            (json!({"arguments": {"a": "[redacted]"}, "arguments_hash": "sha256:0"}), false),
            (json!({"arguments": {"a": "x [redacted]"}}), false),
            (json!({"arguments": {"a": "[redacted]"}, "arguments_hash": "h"}), true),
            (json!({"arguments": "sha256:0", "action": "clear"}), false),
            (json!({"arguments": null, "action": "clear"}), false),
            (json!({"action": "clear"}), false),
        ] {
            assert_eq!(arguments(&record, same).is_some(), whole, "{record}");
        }
    }
}
