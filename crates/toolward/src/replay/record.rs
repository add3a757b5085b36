//! Reads past calls and listings from audit records.

use serde_json::{Map, Value};
use toolward_gateway::audit::redact::REDACTED;
use toolward_policy::recorded::RecordedAction;
use toolward_policy::{Family, Verdict};

/// Longer texts of callers are truncated in the audit log.
const MAX_RECORDED_CHARS: usize = 256;

/// Kinds of records that are neither calls nor listings.
const OTHER_KINDS: [&str; 19] = [
    "login",
    "outcome",
    "subscription",
    "question",
    "turned-away",
    "start",
    "stop",
    "reload",
    "recovery",
    "segment",
    "retention",
    "repair",
    "gap",
    "head",
    "taken-over",
    "approval",
    "pin-change",
    "pin-approved",
    "policy-edit",
];

/// Steps at which the policy itself denies. A refusal with another step is that of a limit, a hook, a pin or a person.
const POLICY_STEPS: [&str; 12] = [
    "unknown-agent",
    "server-deny",
    "server-not-allowed",
    "1-exact-deny",
    "2-wildcard-deny",
    "6-default-deny",
    "allowlist-none",
    "not-exposed",
    "ambiguous-action",
    "unsafe-uri",
    "read-only-mode",
    "no-policy",
];

/// The content of a record.
pub(crate) enum Past<'r> {
    Call(PastCall<'r>),
    Listing(PastListing<'r>),
    NotCompared(NotCompared),
    /// A record about something else.
    Other,
}

/// Why a record about calls is not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NotCompared {
    /// The policy allowed the call, and a limit, a hook, a pin or a person refused it.
    Guarded,
    /// Refusals that were only counted.
    Aggregated(u64),
    /// The server's list was not known.
    Unavailable,
    /// There was no tool of this name.
    NoSuchTool,
    /// Completions and tasks follow what they refer to.
    FollowsAnother,
    /// A kind of record, or a value, that this version does not know.
    OtherVersion,
}

/// A call that the policy decided.
pub(crate) struct PastCall<'r> {
    pub(crate) agent: Option<&'r str>,
    pub(crate) server: &'r str,
    pub(crate) family: Family,
    /// The original name of a tool or prompt, or the resource's URI.
    pub(crate) name: &'r str,
    pub(crate) action: RecordedAction<'r>,
    /// `None`: only their hash was recorded, or values were redacted.
    pub(crate) arguments: Option<&'r Map<String, Value>>,
    /// The verdict at that time.
    pub(crate) verdict: Verdict,
    /// Whether it was forwarded.
    pub(crate) made: bool,
}

/// A listing, with the names of its view if they were recorded.
pub(crate) struct PastListing<'r> {
    pub(crate) agent: Option<&'r str>,
    pub(crate) view: &'r str,
    pub(crate) kind: ListedKind,
    pub(crate) names: Option<&'r Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ListedKind {
    Of(Family),
    Templates,
}

impl<'r> Past<'r> {
    pub(crate) fn of(record: &'r Value) -> Past<'r> {
        let text = |name: &str| record[name].as_str();
        match text("kind") {
            Some("intent") => call(record, true),
            Some("refusal") => refusal(record),
            // A list of the agent's own tasks, which follow their tools.
            Some("list") if text("method") == Some("tasks/list") => Past::Other,
            Some("list") if text("method") == Some("tasks/list") => {
                Past::NotCompared(NotCompared::FollowsAnother)
            }
            Some("list") => listing(record).map_or_else(other_version, Past::Listing),
            Some("refusals") => {
                // The first record of a series has no count yet.
                Past::NotCompared(NotCompared::Aggregated(record["count"].as_u64().unwrap_or(0)))
            }
            Some("unavailable") => Past::NotCompared(NotCompared::Unavailable),
            Some(kind) if OTHER_KINDS.contains(&kind) => Past::Other,
            _ => other_version(),
        }
    }
}

fn other_version<'r>() -> Past<'r> {
    Past::NotCompared(NotCompared::OtherVersion)
}

fn refusal(record: &Value) -> Past<'_> {
    let step = record["step"].as_str();
    match step {
        // A listing that a limit refused, or an unlisted name about which nothing is known.
        None => Past::NotCompared(NotCompared::NoSuchTool),
        Some("no-such-tool") => Past::NotCompared(NotCompared::NoSuchTool),
        Some(step) if POLICY_STEPS.contains(&step) => call(record, false),
        // An entry that asks denies if no one could approve.
        Some("3-exact-allow" | "4-wildcard-allow" | "allowlist-match") => call(record, false),
        Some(_) => Past::NotCompared(NotCompared::Guarded),
    }
}

fn call(record: &Value, made: bool) -> Past<'_> {
    let text = |name: &str| record[name].as_str();
    let subject =
        [("tool", Family::Tools), ("prompt", Family::Prompts), ("uri", Family::Resources)];
    let subject = subject.iter().find_map(|(member, family)| Some((*family, text(member)?)));
    let verdict = match text("verdict") {
        Some("allow") => Verdict::Allow,
        Some("ask") => Verdict::Ask,
        Some("deny") => Verdict::Deny,
        _ => return other_version(),
    };
    let (Some((family, name)), Some(server)) = (subject, text("server")) else {
        return match (text("reference").or(text("task")), made) {
            (Some(_), _) => Past::NotCompared(NotCompared::FollowsAnother),
            (None, false) => Past::NotCompared(NotCompared::NoSuchTool),
            (None, true) => other_version(),
        };
    };
    let arguments = record["arguments"].as_object().filter(|given| !is_redacted(given.values()));
    let action = match text("action") {
        _ if text("step") == Some("ambiguous-action") => RecordedAction::Unknown,
        None => RecordedAction::None,
        Some(action) if is_whole(action) => RecordedAction::Is(action),
        Some(_) => RecordedAction::Unknown,
    };
    let agent = text("agent");
    Past::Call(PastCall { agent, server, family, name, action, arguments, verdict, made })
}

fn listing(record: &Value) -> Option<PastListing<'_>> {
    let kind = match record["method"].as_str() {
        None => ListedKind::Of(Family::Tools),
        Some("prompts/list") => ListedKind::Of(Family::Prompts),
        Some("resources/list") => ListedKind::Of(Family::Resources),
        Some("resources/templates/list") => ListedKind::Templates,
        Some(_) => return None,
    };
    let (agent, view) = (record["agent"].as_str(), record["view"].as_str()?);
    Some(PastListing { agent, view, kind, names: record["names"].as_object() })
}

/// Whether a recorded text is the one that the caller sent.
fn is_whole(text: &str) -> bool {
    !text.contains(REDACTED) && text.chars().count() < MAX_RECORDED_CHARS
}

fn is_redacted<'v>(mut values: impl Iterator<Item = &'v Value>) -> bool {
    values.any(|value| match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => is_redacted(items.iter()),
        Value::Object(members) => {
            members.keys().any(|key| key.contains(REDACTED)) || is_redacted(members.values())
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn redacted_arguments_and_truncated_actions_are_not_known() {
        let read = |arguments: Value, action: Value| {
            let record = json!({"kind": "intent", "server": "s", "tool": "t", "verdict": "allow",
                "arguments": arguments, "action": action});
            match Past::of(&record) {
                Past::Call(call) => {
                    (call.arguments.is_some(), call.action != RecordedAction::Unknown)
                }
                _ => panic!("{record}"),
            }
        };
        assert_eq!(read(json!({"a": [1, {"b": "c"}]}), json!("x")), (true, true));
        assert_eq!(read(json!({"a": [1, {"b": "u:[redacted]@h"}]}), json!(null)), (false, true));
        assert_eq!(read(json!("hmac-sha256:1:2"), json!("x".repeat(256))), (false, false));
        assert_eq!(read(json!(null), json!("[redacted]")), (false, false));
    }

    #[test]
    fn records_that_are_not_decisions_of_the_policy_are_distinguished() {
        let refused = |step: &str| json!({"kind": "refusal", "server": "s", "tool": "t", "step": step, "verdict": "deny"});
        for (record, why) in [
            (refused("limit"), NotCompared::Guarded),
            (refused("no-such-tool"), NotCompared::NoSuchTool),
            (json!({"kind": "refusal", "verdict": "deny"}), NotCompared::NoSuchTool),
            (json!({"kind": "refusals", "count": 7}), NotCompared::Aggregated(7)),
            (json!({"kind": "unavailable"}), NotCompared::Unavailable),
            (
                json!({"kind": "intent", "verdict": "allow", "server": "s", "task": "1"}),
                NotCompared::FollowsAnother,
            ),
            (
                json!({"kind": "intent", "verdict": "maybe", "server": "s", "tool": "t"}),
                NotCompared::OtherVersion,
            ),
            (json!({"kind": "intent", "verdict": "allow"}), NotCompared::OtherVersion),
            (
                json!({"kind": "list", "method": "other/list", "view": "1"}),
                NotCompared::OtherVersion,
            ),
            (json!({"kind": "of-another-version"}), NotCompared::OtherVersion),
            (json!(["kind"]), NotCompared::OtherVersion),
        ] {
            assert!(
                matches!(Past::of(&record), Past::NotCompared(found) if found == why),
                "{record}"
            );
        }
        assert!(matches!(Past::of(&refused("6-default-deny")), Past::Call(call) if !call.made));
        assert!(matches!(Past::of(&json!({"kind": "outcome"})), Past::Other));
    }
}
