//! The text and data of refusals: the only place that renders the response an agent gets instead of
//! a result.
//!
//! The gateway sends the result of [`Allowed::refuse`], and `explain` and the admin UI show it, so
//! a person always sees the text that the agent got. The shape depends on whether the tool is
//! listed. For an unlisted name, only the name itself and the agent's own listing are used.

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
use crate::why::{Cause, MAX_QUOTED, Unmet, Why, in_words as scopes_in_words, one_line};

/// The error of RFC 6750 for a token without the necessary scopes.
const INSUFFICIENT_SCOPE: &str = "insufficient_scope";
/// At most this many selectors are in `data.allowed_tools`; `…` replaces the rest.
const MAX_SELECTORS: usize = 50;
/// At most this many arguments are echoed.
const MAX_ECHOES: usize = 5;
/// At most this many prompts are named.
const MAX_PROMPTS: usize = 10;
/// At most this many characters of a condition are quoted.
const MAX_CONDITION: usize = 500;

/// Redacts secrets in the parts of a call that a refusal echoes.
pub trait Redact {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str>;
    fn value(&self, value: Value) -> Value;
}

/// Redacts nothing: for callers that show a refusal to the agent only.
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
    /// The limit in words for the agent (`your calls`), its rate, and when to try again.
    Exceeded { limit: &'a str, rate: &'a str, retry_after: Duration },
    /// The store that counts the limits is unavailable.
    Unavailable,
}

/// The response an agent gets instead of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Whether the tool is in the agent's listing: then the refusal is a tool result, otherwise a
    /// JSON-RPC error.
    pub listed: bool,
    /// The error's message: the call, the reason, and the operator's message.
    pub message: String,
    /// The error's `data`, or the result's `_meta["io.toolward/refusal"]`.
    pub data: Value,
    head: String,
    /// Echoed arguments: path, and value as JSON.
    echoes: Vec<(String, String)>,
    advice: String,
    note: Option<String>,
    decision: String,
}

/// The subject of a refused request. Only calls of tools are answered with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Tool,
    Prompt,
    Resource,
}

impl Refusal {
    /// The same refusal of a prompt or a resource: its data names that instead of a tool, and lists no tools.
    pub fn of(mut self, refused: Refused) -> Refusal {
        let (key, error) = match refused {
            Refused::Tool => return self,
            Refused::Prompt => ("prompt", "prompt_not_allowed"),
            Refused::Resource => ("uri", "resource_not_allowed"),
        };
        let Some(data) = self.data.as_object_mut() else { return self };
        if let Some(name) = data.remove("tool") {
            data.insert(key.into(), name);
        }
        data.remove("allowed_tools");
        data.remove("action");
        if data.get("error").and_then(Value::as_str) == Some("tool_not_allowed") {
            data.insert("error".into(), json!(error));
        }
        self
    }

    /// All scopes that the call needs, separated by spaces, if it is refused only because the caller's
    /// token lacks some of them.
    pub fn scope(&self) -> Option<&str> {
        let error = self.data.get("error").and_then(Value::as_str);
        self.data.get("scope")?.as_str().filter(|_| error == Some(INSUFFICIENT_SCOPE))
    }

    /// The text that the agent reads.
    pub fn text(&self) -> String {
        self.with_values(|value| value)
    }

    /// The same without argument values, for an audit log that does not contain them.
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
    /// The refusal of a call. `why` is the engine's reason; `None` if the tool is not in the
    /// agent's listing, whether hidden or nonexistent.
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
            Some(Cause::Scopes(scopes)) => {
                let scopes = scopes_in_words(scopes);
                format!("{what} is not permitted with this token: it needs {scopes}.")
            }
            Some(Cause::Approval) => {
                format!("{what} is not permitted: a person must approve it.")
            }
        };
        advice.push_str("Repeating the same call will not help.");
        let entry = why.and_then(|why| why.message.as_deref());
        let data = match why.map(|why| &why.cause) {
            Some(Cause::Scopes(scopes)) if self.explain => {
                json!({"error": INSUFFICIENT_SCOPE, "scope": scopes.join(" ")})
            }
            _ => json!({"error": "tool_not_allowed"}),
        };
        let parts = Parts { head, echoes, advice, entry, retryable: false, decision };
        self.finish(sent, why.is_some(), parts, data)
    }

    /// The refusal of a prompt that is not in the agent's listing, whether hidden or nonexistent. `listed` are the names
    /// of the prompts in it.
    pub fn refuse_prompt(
        &self,
        name: &str,
        listed: &[&str],
        redact: &dyn Redact,
        decision: &str,
    ) -> Refusal {
        let sent = Sent { tool: name, action: None, arguments: None };
        let what = shown(sent, redact);
        let named: Vec<String> =
            listed.iter().take(MAX_PROMPTS).map(|name| escaped(name)).collect();
        let allowed = match listed.len().checked_sub(MAX_PROMPTS) {
            _ if named.is_empty() => "nothing".into(),
            None | Some(0) => named.join(", "),
            Some(more) => format!("{} ({more} more in prompts/list)", named.join(", ")),
        };
        let head = match self.explain {
            true => format!("{what} is not permitted. Allowed: {allowed}"),
            false => format!("{what} is not permitted"),
        };
        let (echoes, advice) = (Vec::new(), String::new());
        let parts = Parts { head, echoes, advice, entry: None, retryable: false, decision };
        let data = json!({"error": "tool_not_allowed"});
        self.finish(sent, false, parts, data).of(Refused::Prompt)
    }

    /// The refusal of a call over a rate limit. `entry` is the message of the entry that allowed
    /// the call.
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

    /// The selectors in a refusal: at most 50, then `…`.
    fn brief_selectors(&self) -> Vec<&str> {
        let all = self.selectors();
        let more = (all.len() > MAX_SELECTORS).then_some("…");
        all.iter().take(MAX_SELECTORS).map(String::as_str).chain(more).collect()
    }
}

/// The parts of a refusal.
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
        // Secrets are redacted before the text is cut, but the text is bounded first to limit the
        // work.
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

/// Why a condition failed to evaluate: " (a and b are missing)".
fn lacking(unmet: &Unmet) -> String {
    let names: Vec<String> = unmet.missing.iter().map(|name| escaped(name)).collect();
    match names.split_last() {
        None if unmet.failed => " (which cannot be evaluated for these arguments)".into(),
        None => String::new(),
        Some((one, [])) => format!(" ({one} is missing)"),
        Some((last, rest)) => format!(" ({} and {last} are missing)", rest.join(", ")),
    }
}

/// The arguments that quoted conditions read, as sent.
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

/// A value as JSON: redacted, on one line, and short.
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

/// A duration in words, rounded up.
pub fn in_words(wait: Duration) -> String {
    match wait.as_secs() {
        0 => format!("{} ms", wait.as_millis().max(1)),
        seconds @ 1..=119 => format!("{} s", seconds + u64::from(wait.subsec_nanos() > 0)),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}
