//! Maps the claims of a token to an agent.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Claims with space-separated words, or a list of them.
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The claims that identify an agent; a token must have all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRule {
    pub agent: Arc<str>,
    pub claims: Vec<(String, Value)>,
}

/// The result of matching a token's claims.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimMatch {
    Agent(Arc<str>),
    Nobody,
    /// Two agents match, so the token is ambiguous.
    Several,
    /// An agent would match, if the token had these scopes.
    Lacks(String),
}

/// The longest name that a claim can give an agent, in bytes.
const LONGEST_NAME: usize = 256;

/// Finds the agent of a token: the one whose claims it has, otherwise the one that it names in `agent_claim`.
pub(super) fn name(
    wanted: &[ClaimRule],
    agent_claim: Option<&str>,
    claims: &Map<String, Value>,
) -> ClaimMatch {
    match by_rules(wanted, claims) {
        ClaimMatch::Nobody => {}
        found => return found,
    }
    match agent_claim.and_then(|claim| claims.get(claim)).and_then(Value::as_str) {
        // An agent with claims of its own is not identified by its name alone.
        Some(name) if is_name(name) && !wanted.iter().any(|one| *one.agent == *name) => {
            ClaimMatch::Agent(name.into())
        }
        _ => ClaimMatch::Nobody,
    }
}

/// Whether a claim can be an agent's name. `default` is not: it applies to callers without a name. A name
/// with wildcards would read as a pattern wherever agents are listed.
fn is_name(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || matches!(c, '*' | '?' | '[');
    !name.trim().is_empty()
        && name != "default"
        && name.len() <= LONGEST_NAME
        && !name.contains(is_odd)
}

fn by_rules(wanted: &[ClaimRule], claims: &Map<String, Value>) -> ClaimMatch {
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
            // Reports all required scopes at once, so that the client can request them in one new token.
            let all: Vec<&str> = scopes.iter().flat_map(|(_, value)| words(value)).collect();
            lacking.get_or_insert(all.join(" "));
            continue;
        }
        match found {
            Some(other) if **other != *one.agent => {
                return ClaimMatch::Several;
            }
            _ => found = Some(&one.agent),
        }
    }
    match (found, lacking) {
        (Some(agent), _) => ClaimMatch::Agent(agent.clone()),
        (None, Some(scopes)) => ClaimMatch::Lacks(scopes),
        (None, None) => ClaimMatch::Nobody,
    }
}

/// The scopes that any agent's claims require, and those that all agents' claims require.
pub(super) fn scopes(wanted: &[ClaimRule]) -> (Vec<String>, Vec<String>) {
    let of = |one: &ClaimRule| -> Vec<String> {
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

/// Whether a claim is the value, or a list that contains it.
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

    fn wanted(agent: &str, claims: Value) -> ClaimRule {
        let claims = claims.as_object().unwrap().clone();
        ClaimRule { agent: agent.into(), claims: claims.into_iter().collect() }
    }

    fn named(wanted: &[ClaimRule], claims: Value) -> ClaimMatch {
        name(wanted, None, claims.as_object().unwrap())
    }

    #[test]
    fn a_claim_names_an_agent_that_no_claims_identify() {
        let agents = [wanted("dev", json!({"groups": "dev"}))];
        let named = |claims: Value| name(&agents, Some("sub"), claims.as_object().unwrap());
        let agent = |name: &str| ClaimMatch::Agent(name.into());
        assert_eq!(named(json!({"sub": "ci-7"})), agent("ci-7"));
        assert_eq!(named(json!({"sub": "ci-7", "groups": "dev"})), agent("dev"));
        let long = "x".repeat(LONGEST_NAME + 1);
        for nobody in [
            json!({}),
            json!({"sub": 7}),
            json!({"sub": ["ci-7"]}),
            json!({"sub": ""}),
            json!({"sub": " "}),
            json!({"sub": "a\nb"}),
            json!({"sub": "ci-*"}),
            json!({"sub": long}),
            json!({"sub": "default"}),
            // It would have to have the claims of `dev`.
            json!({"sub": "dev"}),
        ] {
            assert_eq!(named(nobody.clone()), ClaimMatch::Nobody, "{nobody}");
        }
    }

    #[test]
    fn all_claims_of_an_agent_must_be_there() {
        let agents = [
            wanted("dev", json!({"groups": "dev", "tenant": 7})),
            wanted("ops", json!({"groups": "ops"})),
        ];
        let agent = |name: &str| ClaimMatch::Agent(name.into());
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
            assert_eq!(named(&agents, nobody.clone()), ClaimMatch::Nobody, "{nobody}");
        }
        let both = json!({"groups": ["dev", "ops"], "tenant": 7});
        assert_eq!(named(&agents, both), ClaimMatch::Several);
    }

    #[test]
    fn scopes_are_words_and_missing_ones_are_reported() {
        let agents = [wanted("w", json!({"sub": "s", "scope": "read write"}))];
        let token = |scope: Value| named(&agents, json!({"sub": "s", "scope": scope}));
        assert_eq!(token(json!("x write read")), ClaimMatch::Agent("w".into()));
        assert_eq!(token(json!(["read", "write"])), ClaimMatch::Agent("w".into()));
        for lacking in [json!("read"), json!("readwrite"), json!("reader write"), json!(1)] {
            assert_eq!(token(lacking), ClaimMatch::Lacks("read write".into()));
        }
        let other = json!({"sub": "t", "scope": "read write"});
        assert_eq!(named(&agents, other), ClaimMatch::Nobody, "scopes alone identify no agent");
        let (all, common) = scopes(&[
            wanted("a", json!({"scope": "b a"})),
            wanted("b", json!({"scope": "b c", "sub": "x"})),
        ]);
        assert_eq!((all.join(" "), common.join(" ")), ("a b c".into(), "b".into()));
    }
}
