//! The argument that selects a tool's action, as refusals describe it.
//!
//! `Allowed: do.get` names a tool and an action, but not where the action goes in a call: that depends on
//! the server's `action_keys`. So a refusal of a listed tool also names the argument and its allowed values.

use std::borrow::Cow;

use serde_json::Value;

use crate::call::{Action, Ambiguity, Call, Caller};
use crate::cell::Cell;
use crate::fnmatch::Pattern;
use crate::text::{brief, escaped};

/// At most this many allowed values are listed.
const MAX_VALUES: usize = 10;

/// How a call of a tool selects an action, and which actions are allowed.
#[derive(Debug, Clone)]
pub struct ActionArgument {
    /// The argument that was sent, and the action in it.
    sent: Option<(String, String)>,
    /// The tool's action keys: those in its schema, or all of them if its schema has none.
    keys: Vec<String>,
    /// Allowed actions, by name or pattern; empty if they are not known.
    allowed: Vec<String>,
}

impl ActionArgument {
    /// `None` if no rule depends on the tool's action.
    pub(crate) fn of(cell: &Cell, caller: Caller<'_>, call: &Call<'_>) -> Option<ActionArgument> {
        let (keys, definition) = cell.action_keys()?;
        let allowed = cell.list(caller).actions.or_else(|| cell.allowed_actions(caller));
        let definition: Value = serde_json::from_str(definition).unwrap_or_default();
        let properties = &definition["inputSchema"]["properties"];
        let declared = keys.iter().filter(|key| properties.get(&***key).is_some());
        let mut named: Vec<String> = declared.map(|key| key.to_string()).collect();
        if named.is_empty() {
            named = keys.iter().map(|key| key.to_string()).collect();
        }
        let sent = match Action::of(call, keys) {
            Action::Is(action) => sent_under(call, keys).map(|key| (key, action.into())),
            Action::Missing | Action::Ambiguous(_) => None,
        };
        Some(ActionArgument { sent, keys: named, allowed: allowed.unwrap_or_default() })
    }

    /// The argument that was sent, and the action in it.
    pub(crate) fn sent(&self) -> Option<(&str, &str)> {
        self.sent.as_ref().map(|(key, action)| (key.as_str(), action.as_str()))
    }

    /// How to send an allowed action, as text for the client; empty if unknown.
    pub(crate) fn advice(&self) -> String {
        let mut text = match (&self.sent, self.keys.as_slice()) {
            (Some(_), _) => String::new(),
            (None, [one]) => format!("The argument {} is missing. ", escaped(one)),
            (None, several) => format!("{} was sent. ", listed(several, "Neither ", " nor ")),
        };
        text += &self.values(self.sent.as_ref().map(|(key, _)| key.as_str()));
        text
    }

    /// "Allowed values of action: get, list_*. "
    pub(crate) fn values(&self, key: Option<&str>) -> String {
        let only = match self.keys.as_slice() {
            [one] => Some(one.as_str()),
            _ => None,
        };
        // A pattern that covers the refused action would contradict the refusal.
        let refused = self.sent.as_ref().map(|(_, action)| action.to_ascii_lowercase());
        let covers =
            |value: &str, action: &str| Pattern::new(&value.to_ascii_lowercase()).matches(action);
        let is_allowed =
            |value: &&String| !refused.as_deref().is_some_and(|action| covers(value, action));
        let allowed: Vec<&String> = self.allowed.iter().filter(is_allowed).collect();
        let shown: Vec<String> =
            allowed.iter().take(MAX_VALUES).map(|value| escaped(&brief(value))).collect();
        let more = match allowed.len().saturating_sub(MAX_VALUES) {
            0 => String::new(),
            more => format!(" ({more} more)"),
        };
        match (shown.is_empty(), key.or(only)) {
            (true, _) => String::new(),
            (false, Some(key)) => {
                format!("Allowed values of {}: {}{more}. ", escaped(key), shown.join(", "))
            }
            (false, None) => format!("Allowed values: {}{more}. ", shown.join(", ")),
        }
    }

    /// The reason why the action of a call is ambiguous, and the argument that causes it.
    pub(crate) fn ambiguous<'a>(&self, ambiguity: &'a Ambiguity) -> (String, Option<&'a str>) {
        match ambiguity {
            Ambiguity::TwoActions { keys: [one, other], .. } => {
                let (one, other) = (escaped(one), escaped(other));
                (format!("the arguments {one} and {other} name different actions"), None)
            }
            Ambiguity::NotAString { key } => {
                (format!("the argument {} is not a string", escaped(key)), Some(key))
            }
            Ambiguity::CaseVariant { argument, key } => {
                let argument = escaped(&brief(argument));
                let differs = format!("differs from {} only in case", escaped(key));
                (format!("the argument {argument} {differs}"), Some(key))
            }
            Ambiguity::Missing => match self.keys.as_slice() {
                [one] => (format!("the argument {} must name the action", escaped(one)), None),
                several => {
                    (format!("{} must name the action", listed(several, "one of ", " and ")), None)
                }
            },
        }
    }
}

/// The action key that the arguments have.
fn sent_under(call: &Call<'_>, keys: &[Box<str>]) -> Option<String> {
    let mut first = None;
    call.arguments?.members(&mut |name, _| {
        let place = keys.iter().position(|key| **key == *name);
        first = place.into_iter().chain(first).min();
    });
    first.and_then(|place: usize| keys.get(place)).map(|key| key.to_string())
}

/// "one of a, b and c".
fn listed(keys: &[String], before: &str, last: &str) -> String {
    let keys: Vec<Cow<'_, str>> = keys.iter().map(|key| escaped(key).into()).collect();
    match keys.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{before}{}{last}{end}", rest.join(", ")),
        _ => format!("{before}{}", keys.concat()),
    }
}
