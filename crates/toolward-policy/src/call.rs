//! The caller and the content of a call.

use serde_json::{Map, Value};

use crate::source::DEFAULT_ACTION_KEYS;

/// The caller. Its name is established by the gateway, never claimed by the caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller<'a> {
    /// `None` for an unnamed caller.
    pub agent: Option<&'a str>,
    /// Claims of the credential that established the name.
    pub claims: Option<&'a Map<String, Value>>,
}

impl<'a> Caller<'a> {
    pub fn named(agent: &'a str) -> Caller<'a> {
        Caller { agent: Some(agent), claims: None }
    }
}

/// A call's arguments. The parser of the request implements this trait, so the policy never parses
/// a request a second time.
pub trait Arguments: Sync {
    /// Visits each top-level member: its name, and its value if that is a string.
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>));

    /// The whole object. Called only if a condition reads `args`.
    fn to_json(&self) -> Value;

    /// Visits every number at or below a path of keys, as written. Called only if a condition reads
    /// `args`. `to_json` is not enough: it loses digits that a double cannot hold.
    fn numbers(&self, path: &[Box<str>], show: &mut dyn FnMut(&str));
}

impl Arguments for Map<String, Value> {
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>)) {
        for (name, value) in self {
            show(name, value.as_str());
        }
    }

    fn to_json(&self) -> Value {
        Value::Object(self.clone())
    }

    fn numbers(&self, path: &[Box<str>], show: &mut dyn FnMut(&str)) {
        let Some((first, rest)) = path.split_first() else {
            self.values().for_each(|value| numbers(value, show));
            return;
        };
        let found = self.get(&**first);
        let found = rest.iter().try_fold(found, |value, key| Some(value?.get(&**key)));
        if let Some(value) = found.flatten() {
            numbers(value, show);
        }
    }
}

fn numbers(value: &Value, show: &mut dyn FnMut(&str)) {
    match value {
        Value::Number(number) => show(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| numbers(item, show)),
        Value::Object(members) => members.values().for_each(|member| numbers(member, show)),
        _ => {}
    }
}

/// The content of a call, apart from the tool's name.
#[derive(Clone, Copy, Default)]
pub struct Call<'a> {
    /// If set, this is the action, and the arguments are not searched for one.
    pub action: Option<&'a str>,
    pub arguments: Option<&'a dyn Arguments>,
}

impl<'a> Call<'a> {
    pub fn with(arguments: &'a dyn Arguments) -> Call<'a> {
        Call { action: None, arguments: Some(arguments) }
    }
}

/// The action of a call, as found in its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// There is no action key.
    Missing,
    Is(Box<str>),
    Ambiguous(Ambiguity),
}

/// Why a call's action is ambiguous. Servers interpret such arguments differently, so any guess
/// could differ from the action that is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ambiguity {
    /// Two action keys have different strings.
    TwoActions { keys: [String; 2], first: String, second: String },
    /// The value under this key is not a string.
    NotAString { key: String },
    /// This argument equals an action key only after case folding.
    CaseVariant { argument: String, key: String },
    /// There is no action key, but a deny rule depends on the action.
    Missing,
}

impl std::fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TwoActions { keys: [one, other], first, second } => {
                write!(f, "`{one}` names the action `{first}`, and `{other}` names `{second}`")
            }
            Self::NotAString { key } => write!(f, "the argument `{key}` is not a string"),
            Self::CaseVariant { argument, key } => {
                write!(f, "the argument `{argument}` differs from `{key}` only in case")
            }
            Self::Missing => write!(f, "the call has no action"),
        }
    }
}

impl Action {
    /// Looks the action up under the tool's action keys.
    pub(crate) fn of(call: &Call<'_>, keys: &[Box<str>]) -> Action {
        if let Some(action) = call.action {
            return Action::Is(action.into());
        }
        let Some(arguments) = call.arguments else {
            return Action::Missing;
        };
        let mut found: Vec<Option<String>> = vec![None; keys.len()];
        let mut problem = None;
        arguments.members(&mut |name, text| {
            for (at, key) in keys.iter().enumerate() {
                if **key == *name {
                    match text {
                        Some(text) => found[at] = Some(text.into()),
                        None => {
                            problem.get_or_insert(Ambiguity::NotAString { key: name.into() });
                        }
                    }
                } else if !keys.iter().any(|key| **key == *name) && equal_folded(name, key) {
                    problem.get_or_insert(Ambiguity::CaseVariant {
                        argument: name.into(),
                        key: key.to_string(),
                    });
                }
            }
        });
        if let Some(problem) = problem {
            return Action::Ambiguous(problem);
        }
        let mut strings = keys.iter().zip(found).filter_map(|(key, text)| Some((key, text?)));
        let Some((one, first)) = strings.next() else {
            return Action::Missing;
        };
        match strings.find(|(_, second)| *second != first) {
            Some((other, second)) => {
                let keys = [one.to_string(), other.to_string()];
                Action::Ambiguous(Ambiguity::TwoActions { keys, first, second })
            }
            None => Action::Is(first.into()),
        }
    }
}

/// Equality for a server that ignores case. Uses Unicode folding, because some servers do (`ſ`
/// equals `s` for them). Being too strict is harmless here.
fn equal_folded(a: &str, b: &str) -> bool {
    fn folded(text: &str) -> impl Iterator<Item = char> {
        text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
    }
    a.eq_ignore_ascii_case(b) || (!(a.is_ascii() && b.is_ascii()) && folded(a).eq(folded(b)))
}

/// The action that the refusal of an unlisted name contains: the first string under the default action
/// keys. Using a tool's own keys would show that a hidden tool exists. For a listed tool, see
/// [`Cell::stated_action`](crate::Cell::stated_action).
pub fn stated_action(call: &Call<'_>) -> Option<String> {
    first_string(call, &DEFAULT_ACTION_KEYS)
}

/// The first string under these keys, in the order of the keys.
pub(crate) fn first_string<K: AsRef<str>>(call: &Call<'_>, keys: &[K]) -> Option<String> {
    if let Some(action) = call.action {
        return Some(action.into());
    }
    let mut found: Option<(usize, String)> = None;
    call.arguments?.members(&mut |name, text| {
        let place = keys.iter().position(|key| key.as_ref() == name);
        if let (Some(place), Some(text)) = (place, text)
            && found.as_ref().is_none_or(|(first, _)| place < *first)
        {
            found = Some((place, text.into()));
        }
    });
    found.map(|(_, text)| text)
}
