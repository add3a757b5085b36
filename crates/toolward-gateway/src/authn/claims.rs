//! What a token says of whoever holds it, and which agent that is.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Claims that hold words between spaces, or a list of them.
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The claims that a token must hold to be an agent, all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub agent: Arc<str>,
    pub claims: Vec<(String, Value)>,
}

/// Which agent a token's claims are.
#[derive(Debug, PartialEq)]
pub(super) enum Named {
    Agent(Arc<str>),
    Nobody,
    /// Two agents, which is nobody that anyone could be sure of.
    Several,
    /// An agent but for these scopes.
    Lacks(String),
}

/// Looks for the agent of a token.
pub(super) fn name(wanted: &[Wanted], claims: &Map<String, Value>) -> Named {
    let mut found: Option<&Arc<str>> = None;
    let mut lacking = None;
    for one in wanted {
        let (scopes, others): (Vec<_>, Vec<_>) =
            one.claims.iter().partition(|(name, value)| is_scope(name, value));
        if !others.iter().all(|(name, value)| holds(claims.get(name), value)) {
            continue;
        }
        let missing: Vec<&str> = scopes
            .iter()
            .flat_map(|(name, value)| words(value).map(move |word| (name, word)))
            .filter(|(name, word)| !has_word(claims.get(name.as_str()), word))
            .map(|(_, word)| word)
            .collect();
        if !missing.is_empty() {
            // All that is needed is said at once: whoever asks for a new token asks for all of it.
            let all: Vec<&str> = scopes.iter().flat_map(|(_, value)| words(value)).collect();
            lacking.get_or_insert(all.join(" "));
            continue;
        }
        match found {
            Some(other) if **other != *one.agent => {
                return Named::Several;
            }
            _ => found = Some(&one.agent),
        }
    }
    match (found, lacking) {
        (Some(agent), _) => Named::Agent(agent.clone()),
        (None, Some(scopes)) => Named::Lacks(scopes),
        (None, None) => Named::Nobody,
    }
}

/// All scopes that some agent's claims name, and those that every agent's do.
pub(super) fn scopes(wanted: &[Wanted]) -> (Vec<String>, Vec<String>) {
    let of = |one: &Wanted| -> Vec<String> {
        let scopes = one.claims.iter().filter(|(name, value)| is_scope(name, value));
        scopes.flat_map(|(_, value)| words(value)).map(String::from).collect()
    };
    let mut all: Vec<String> = wanted.iter().flat_map(of).collect();
    all.sort_unstable();
    all.dedup();
    let common = all.iter().filter(|scope| wanted.iter().all(|one| of(one).contains(scope)));
    let common = common.cloned().collect();
    (all, common)
}

fn is_scope(name: &str, value: &Value) -> bool {
    SCOPES.contains(&name) && words(value).next().is_some()
}

fn words(value: &Value) -> impl Iterator<Item = &str> {
    value.as_str().unwrap_or_default().split_ascii_whitespace()
}

/// A claim is the value, or a list that has it.
fn holds(claim: Option<&Value>, value: &Value) -> bool {
    match claim {
        Some(Value::Array(values)) => values.contains(value),
        Some(claim) => claim == value,
        None => false,
    }
}

fn has_word(claim: Option<&Value>, word: &str) -> bool {
    match claim {
        Some(Value::Array(values)) => values.iter().any(|value| value == word),
        Some(value) => words(value).any(|one| one == word),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(agent: &str, claims: Value) -> Wanted {
        let claims = claims.as_object().unwrap().clone();
        Wanted { agent: agent.into(), claims: claims.into_iter().collect() }
    }

    fn named(wanted: &[Wanted], claims: Value) -> Named {
        name(wanted, claims.as_object().unwrap())
    }

    #[test]
    fn all_claims_of_an_agent_must_be_there() {
        let agents = [
            wanted("dev", json!({"groups": "dev", "tenant": 7})),
            wanted("ops", json!({"groups": "ops"})),
        ];
        let agent = |name: &str| Named::Agent(name.into());
        assert_eq!(named(&agents, json!({"groups": "dev", "tenant": 7})), agent("dev"));
        assert_eq!(named(&agents, json!({"groups": ["x", "dev"], "tenant": 7})), agent("dev"));
        assert_eq!(named(&agents, json!({"groups": ["x", "ops"], "tenant": 7})), agent("ops"));
        for nobody in [
            json!({}),
            json!({"groups": "dev"}),
            json!({"groups": "dev", "tenant": "7"}),
            json!({"groups": "dev", "tenant": 7.5}),
            json!({"groups": "dev ops", "tenant": 7}),
            json!({"groups": {"dev": true}, "tenant": 7}),
            json!({"groups": [["dev"]], "tenant": 7}),
            json!({"Groups": "dev", "tenant": 7}),
            json!({"groups": null, "tenant": 7}),
        ] {
            assert_eq!(named(&agents, nobody.clone()), Named::Nobody, "{nobody}");
        }
        let both = json!({"groups": ["dev", "ops"], "tenant": 7});
        assert_eq!(named(&agents, both), Named::Several);
    }

    #[test]
    fn scopes_are_words_and_what_lacks_is_told() {
        let agents = [wanted("w", json!({"sub": "s", "scope": "read write"}))];
        let token = |scope: Value| named(&agents, json!({"sub": "s", "scope": scope}));
        assert_eq!(token(json!("x write read")), Named::Agent("w".into()));
        assert_eq!(token(json!(["read", "write"])), Named::Agent("w".into()));
        for lacking in [json!("read"), json!("readwrite"), json!("reader write"), json!(1)] {
            assert_eq!(token(lacking), Named::Lacks("read write".into()));
        }
        let other = json!({"sub": "t", "scope": "read write"});
        assert_eq!(named(&agents, other), Named::Nobody, "scopes alone are nobody");
        let (all, common) = scopes(&[
            wanted("a", json!({"scope": "b a"})),
            wanted("b", json!({"scope": "b c", "sub": "x"})),
        ]);
        assert_eq!((all.join(" "), common.join(" ")), ("a b c".into(), "b".into()));
    }
}
