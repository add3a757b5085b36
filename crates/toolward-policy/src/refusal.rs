//! Refusals, worded: the one place that renders what an agent gets instead of a result.
//!
//! The gateway sends what [`Allowed::refuse`] returns, and `explain` and the admin UI show it, so that a
//! person always sees the text that the agent got. Whether the tool is listed decides the shape; of a
//! name that is not listed, nothing but the name itself and the agent's own listing is used.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::allowed::Allowed;
use crate::call::Arguments;
pub use crate::listing::Sent;
use crate::listing::What;
use crate::policy::Policy;
use crate::text::{MAX_ECHOED, escaped};
pub use crate::text::{brief, cut};
use crate::why::{Cause, MAX_QUOTED, Unmet, Why, one_line};

/// At most this many selectors are in `data.allowed_tools`; `…` stands for the rest.
const MAX_SELECTORS: usize = 50;
/// At most this many arguments are repeated.
const MAX_ECHOES: usize = 5;
/// At most this many characters of a condition are quoted.
const MAX_CONDITION: usize = 500;

/// Removes secrets from what a refusal repeats of a call.
pub trait Redact {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str>;
    fn value(&self, value: Value) -> Value;
}

/// Repeats everything: for callers that never show a refusal to anyone but the agent.
impl Redact for () {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text.into()
    }

    fn value(&self, value: Value) -> Value {
        value
    }
}

/// A rate limit that refuses a call.
#[derive(Debug, Clone, Copy)]
pub enum Limited<'a> {
    /// What the limit counts, in words for the agent (`your calls`), its rate, and when to try again.
    Exceeded { limit: &'a str, rate: &'a str, retry_after: Duration },
    /// The store of the limits cannot be reached.
    Unavailable,
}

/// What an agent gets instead of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The tool is in the agent's listing: a tool result. Otherwise a JSON-RPC error.
    pub listed: bool,
    /// What was refused and why, and the operator's message: the error's message.
    pub message: String,
    /// The error's `data`, or the result's `_meta["io.toolward/refusal"]`.
    pub data: Value,
    head: String,
    /// Arguments that are repeated: path, and value as JSON.
    echoes: Vec<(String, String)>,
    advice: String,
    note: Option<String>,
    decision: String,
}

impl Refusal {
    /// The text that the agent reads.
    pub fn text(&self) -> String {
        self.with_values(|value| value)
    }

    /// The same without the values of arguments, for an audit log that does not have them.
    pub fn text_without_values(&self) -> String {
        self.with_values(|_| "[not recorded]")
    }

    fn with_values<'a>(&'a self, shown: impl Fn(&'a str) -> &'a str) -> String {
        if !self.listed {
            return self.message.clone();
        }
        let echo = |(name, value): &'a (String, String)| format!("{name} = {}", shown(value));
        let mut lines = vec![self.head.clone()];
        lines.push(match self.echoes.is_empty() {
            true => self.advice.clone(),
            false => {
                let echoes: Vec<String> = self.echoes.iter().map(echo).collect();
                format!("You sent {}. {}", echoes.join(", "), self.advice)
            }
        });
        lines.extend(self.note.clone());
        let id = &self.decision;
        lines.push(format!("Decision {id} (a person can run: toolward explain {id})"));
        lines.join("\n")
    }
}

impl Allowed {
    /// The refusal of a call. `why` is the engine's reason; without one, the tool is not in the
    /// agent's listing, hidden or nonexistent.
    pub fn refuse(
        &self,
        policy: &Policy,
        sent: Sent<'_>,
        why: Option<&Why>,
        redact: &dyn Redact,
        decision: &str,
    ) -> Refusal {
        let what = shown(sent, redact);
        let (mut echoes, mut advice) = (Vec::new(), String::new());
        let head = match why.map(|why| &why.cause) {
            _ if !self.explain => format!("{what} is not permitted"),
            None | Some(Cause::Action | Cause::DeniedAction | Cause::Tool) => {
                if let Some(action) = why.and_then(|why| why.action.as_ref()) {
                    advice = action.advice();
                    let sent = action.sent().map(|(key, action)| (key, json!(action)));
                    echoes.extend(
                        sent.map(|(key, action)| (escaped(key), echo(key, &action, redact))),
                    );
                }
                if matches!(why.map(|why| &why.cause), Some(Cause::DeniedAction | Cause::Tool)) {
                    advice.push_str("Denied by policy. ");
                }
                let layer = why.and_then(|why| why.decision.layer);
                let call = What { sent, shown: &what, listed: why.is_some() };
                format!("{what} is not permitted. Allowed: {}", self.listing(policy, &call, layer))
            }
            Some(Cause::DeniedArguments) => {
                format!("{what} is not permitted with these arguments: denied by policy.")
            }
            Some(Cause::Conditions(unmet)) => {
                echoes = echoed(unmet, sent.arguments, redact);
                let clause = conditions(unmet);
                format!("{what} is not permitted with these arguments: {clause}.")
            }
            Some(Cause::Ambiguous(ambiguity)) => {
                let action = why.and_then(|why| why.action.as_ref());
                let (clause, at_fault) = match action {
                    Some(action) => action.ambiguous(ambiguity),
                    None => (escaped(&ambiguity.to_string()), None),
                };
                advice = action.map(|action| action.values(at_fault)).unwrap_or_default();
                format!("{what} is not permitted with these arguments: {clause}.")
            }
            Some(Cause::Approval) => {
                format!("{what} is not permitted: a person must approve it.")
            }
        };
        advice.push_str("Repeating the same call will not help.");
        let entry = why.and_then(|why| why.message.as_deref());
        let data = json!({"error": "tool_not_allowed"});
        let parts = Parts { head, echoes, advice, entry, retryable: false, decision };
        self.finish(sent, why.is_some(), parts, data)
    }

    /// The refusal of a call that a rate limit stops. `entry` is the message of the entry that
    /// allowed the call.
    pub fn limit(
        &self,
        sent: Sent<'_>,
        limited: Limited<'_>,
        entry: Option<&str>,
        redact: &dyn Redact,
        decision: &str,
    ) -> Refusal {
        let what = shown(sent, redact);
        let mut data = json!({"error": "limits_unavailable"});
        let (mut head, mut advice) =
            (format!("{what} is not permitted"), "Try again later.".into());
        match limited {
            Limited::Exceeded { limit, rate, retry_after } => {
                data["error"] = json!("limit_exceeded");
                if self.explain {
                    head += &format!(" at this rate: the limit of {rate} on {limit} is used up.");
                    data["limit"] = json!(limit);
                    data["rate"] = json!(rate);
                }
                data["retry_after_ms"] = json!(retry_after.as_millis() as u64);
                advice = format!("Try again in {}.", in_words(retry_after));
            }
            Limited::Unavailable if self.explain => {
                data["limit"] = json!("store");
                head += " now: its rate limit cannot be checked.";
            }
            Limited::Unavailable => {}
        }
        let parts = Parts { head, echoes: Vec::new(), advice, entry, retryable: true, decision };
        self.finish(sent, true, parts, data)
    }

    fn finish(&self, sent: Sent<'_>, listed: bool, parts: Parts<'_>, mut data: Value) -> Refusal {
        let Parts { head, echoes, advice, entry, retryable, decision } = parts;
        let note = entry.filter(|_| listed).or(self.message.as_deref()).map(String::from);
        let message = match &note {
            Some(note) => format!("{head}\n{note}"),
            None => head.clone(),
        };
        data["message"] = json!(message);
        data["tool"] = json!(brief(sent.tool));
        if let Some(action) = sent.action {
            data["action"] = json!(brief(action));
        }
        if self.explain {
            data["allowed_tools"] = json!(self.brief_selectors());
        }
        data["retryable"] = json!(retryable);
        data["decision_id"] = json!(decision);
        let decision = decision.into();
        Refusal { listed, message, data, head, echoes, advice, note, decision }
    }

    /// The selectors as refusals have them: at most 50, then `…`.
    fn brief_selectors(&self) -> Vec<&str> {
        let all = self.selectors();
        let more = (all.len() > MAX_SELECTORS).then_some("…");
        all.iter().take(MAX_SELECTORS).map(String::as_str).chain(more).collect()
    }
}

/// What a refusal is put together from.
struct Parts<'a> {
    head: String,
    echoes: Vec<(String, String)>,
    advice: String,
    entry: Option<&'a str>,
    retryable: bool,
    decision: &'a str,
}

/// The call as messages name it: `tool`, or `tool.action`.
fn shown(sent: Sent<'_>, redact: &dyn Redact) -> String {
    let word = |text: &str| {
        // Secrets are recognized before the text is cut, but nobody reads megabytes for that.
        let bounded = cut(text, 2 * MAX_ECHOED);
        escaped(&cut(&redact.text(&bounded), MAX_ECHOED))
    };
    match sent.action {
        Some(action) => format!("{}.{}", word(sent.tool), word(action)),
        None => word(sent.tool),
    }
}

/// "it is allowed only when A (x is missing), or when B, or under a condition on the caller".
fn conditions(unmet: &[Unmet]) -> String {
    let mut quoted: Vec<(String, &Unmet)> = Vec::new();
    for one in unmet.iter().filter(|one| one.condition.reads_call_alone()) {
        let text = escaped(&cut(&one_line(one.condition.source()), MAX_CONDITION));
        if !quoted.iter().any(|(known, _)| *known == text) {
            quoted.push((text, one));
        }
    }
    let more = quoted.len().saturating_sub(MAX_QUOTED);
    quoted.truncate(MAX_QUOTED);
    let way = |(text, one): &(String, &Unmet)| format!("when {text}{}", lacking(one));
    let mut ways: Vec<String> = quoted.iter().map(way).collect();
    match more {
        0 => {}
        1 => ways.push("under 1 more condition".into()),
        more => ways.push(format!("under {more} more conditions")),
    }
    if unmet.iter().any(|one| !one.condition.reads_call_alone()) {
        ways.push("under a condition on the caller".into());
    }
    format!("it is allowed only {}", ways.join(", or "))
}

/// Why a condition could not be evaluated: " (a and b are missing)".
fn lacking(unmet: &Unmet) -> String {
    let names: Vec<String> = unmet.missing.iter().map(|name| escaped(name)).collect();
    match names.split_last() {
        None if unmet.failed => " (which cannot be evaluated for these arguments)".into(),
        None => String::new(),
        Some((one, [])) => format!(" ({one} is missing)"),
        Some((last, rest)) => format!(" ({} and {last} are missing)", rest.join(", ")),
    }
}

/// The arguments that quoted conditions read, as they were sent.
fn echoed(
    unmet: &[Unmet],
    arguments: Option<&dyn Arguments>,
    redact: &dyn Redact,
) -> Vec<(String, String)> {
    let Some(arguments) = arguments.map(|arguments| arguments.to_json()) else {
        return Vec::new();
    };
    let mut echoes: Vec<(String, String)> = Vec::new();
    let quoted = unmet.iter().filter(|one| one.condition.reads_call_alone()).take(MAX_QUOTED);
    for mention in quoted.flat_map(|one| one.condition.mentions()) {
        let name = escaped(&mention.name());
        let known = echoes.iter().any(|(known, _)| *known == name);
        if let Some(value) = mention.value(&arguments).filter(|_| !known) {
            echoes.push((name, echo(mention.key(), value, redact)));
        }
    }
    echoes.truncate(MAX_ECHOES);
    echoes
}

/// A value as JSON without secrets, on one line and short.
fn echo(key: &str, value: &Value, redact: &dyn Redact) -> String {
    // Whether a value is a secret can depend on its key.
    let named: Map<String, Value> = [(key.to_string(), value.clone())].into_iter().collect();
    let clean = match redact.value(Value::Object(named)) {
        Value::Object(members) => members.into_iter().next().map(|(_, value)| value),
        other => Some(other),
    };
    match clean.unwrap_or_default() {
        Value::String(text) => escaped(&json!(cut(&text, MAX_ECHOED)).to_string()),
        other => escaped(&cut(&other.to_string(), MAX_ECHOED)),
    }
}

/// A duration as people say it, rounded up.
pub fn in_words(wait: Duration) -> String {
    match wait.as_secs() {
        0 => format!("{} ms", wait.as_millis().max(1)),
        seconds @ 1..=119 => format!("{} s", seconds + u64::from(wait.subsec_nanos() > 0)),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}
