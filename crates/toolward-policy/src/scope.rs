//! `scope` of an entry: OAuth scopes that the caller's token must have.
//!
//! The option is a condition on the caller, `"issues:write" in scopes`, in front of the entry's `when`.
//! It differs from a condition that is written as such in two ways: a tool whose scope is missing stays
//! listed, and a call that fails only for scopes is refused with all scopes that it needs, so that the
//! client can ask for them.

use serde_json::{Map, Value};

use crate::call::Caller;

/// The claims that contain scopes: a string with spaces between them, or a list.
const CLAIMS: [&str; 2] = ["scope", "scp"];

/// Scopes that an entry requires. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequiredScopes(Box<[Box<str>]>);

impl RequiredScopes {
    /// Scopes separated by spaces. `None` if the text is empty, or a scope has characters that RFC 6749 excludes.
    pub(crate) fn parse(written: &str) -> Option<RequiredScopes> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let scopes: Box<[Box<str>]> =
            written.split(' ').filter(|one| !one.is_empty()).map(Box::from).collect();
        let valid = scopes.iter().all(|scope| scope.bytes().all(allowed));
        (valid && !scopes.is_empty()).then_some(RequiredScopes(scopes))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|scope| &**scope)
    }

    pub(crate) fn held_by(&self, caller: Caller<'_>) -> bool {
        let granted = granted(caller.claims);
        self.iter().all(|scope| granted.contains(&scope))
    }

    /// The option as a condition, together with the entry's own.
    pub(crate) fn as_condition(&self, when: Option<&str>) -> String {
        let scopes = self.iter().map(|scope| format!("{} in scopes", Value::from(scope)));
        let scopes = scopes.collect::<Vec<_>>().join(" && ");
        when.map_or_else(|| scopes.clone(), |when| format!("{scopes} && ({when})"))
    }
}

/// Whether `scope` of an entry can be used: it has scopes, of characters that a scope can have.
pub fn is_valid(written: &str) -> bool {
    RequiredScopes::parse(written).is_some()
}

/// The claims of a token with these scopes and nothing else, for questions about one.
pub fn claims_with(scope: &str) -> Map<String, Value> {
    [("scope".to_string(), Value::from(scope))].into_iter().collect()
}

/// The scopes in the claims of a token.
pub(crate) fn granted(claims: Option<&Map<String, Value>>) -> Vec<&str> {
    let values = CLAIMS.iter().filter_map(|name| claims?.get(*name));
    values.flat_map(texts).filter(|scope| !scope.is_empty()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split(' ').collect(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scopes_are_separated_by_spaces_and_have_no_quotes() {
        let scopes = RequiredScopes::parse("issues:write  read").unwrap();
        assert_eq!(scopes.iter().collect::<Vec<_>>(), ["issues:write", "read"]);
        let both = r#""issues:write" in scopes && "read" in scopes"#;
        assert_eq!(scopes.as_condition(None), both);
        assert_eq!(scopes.as_condition(Some("a || b")), format!("{both} && (a || b)"));
        for bad in ["", " ", "a\"b", "a\\b", "a\nb", "ä"] {
            assert_eq!(RequiredScopes::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_caller_has_the_scopes_of_its_token() {
        let required = RequiredScopes::parse("a b").unwrap();
        for (claims, held) in [
            (json!({"scope": "b c a"}), true),
            (json!({"scp": ["a", "b"]}), true),
            (json!({"scope": "a", "scp": "b"}), true),
            (json!({"scope": "a"}), false),
            (json!({"scope": "ab"}), false),
            (json!({"scope": {"a": 1}}), false),
            (json!({"scopes": "a b"}), false),
        ] {
            let caller = Caller { agent: None, claims: claims.as_object() };
            assert_eq!(required.held_by(caller), held, "{claims}");
        }
        assert!(!required.held_by(Caller::default()));
    }
}
