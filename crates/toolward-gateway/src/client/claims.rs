//! Claims of a JWT, and the identity of its holder.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::subject_tokens::SubjectTokens;

/// Claims that differ in every token. Rules do not see them: a renewed token belongs to the same caller.
const PER_TOKEN: [&str; 5] = ["exp", "iat", "nbf", "jti", "auth_time"];
/// The holder of a token, beyond the agent's name.
#[derive(Debug)]
pub struct Claims {
    subject: Option<Box<str>>,
    /// Only if rules or hooks read them.
    shown: Option<Map<String, Value>>,
    digest: [u8; 32],
    /// Where the holder's newest JWT is, if servers need it.
    tokens: Option<Arc<SubjectTokens>>,
}

impl Claims {
    /// `shown`: rules read claims, so callers with different claims are different callers. `token` is the
    /// hash of the token itself.
    pub fn new(mut claims: Map<String, Value>, shown: bool, token: &[u8; 32]) -> Claims {
        claims.retain(|name, _| !PER_TOKEN.contains(&name.as_str()));
        let subject = claims.get("sub").and_then(Value::as_str).map(Box::from);
        let mut digest = Sha256::new();
        match holder(&claims) {
            Some(holder) => digest.update(holder.to_string()),
            None => digest.update(token),
        }
        if shown {
            let mut sorted = Value::Object(claims.clone());
            sorted.sort_all_objects();
            digest.update(sorted.to_string());
        }
        Claims {
            subject,
            shown: shown.then_some(claims),
            digest: digest.finalize().into(),
            tokens: None,
        }
    }

    /// Keeps the JWT itself, so that it can be exchanged for tokens of servers. `until` is when it expires.
    pub(crate) fn with_token(
        mut self,
        tokens: &Arc<SubjectTokens>,
        jwt: &str,
        until: u64,
    ) -> Claims {
        tokens.keep(self.digest, jwt, until);
        self.tokens = Some(tokens.clone());
        self
    }

    /// The holder's newest JWT.
    pub(crate) fn token(&self) -> Option<Box<str>> {
        self.tokens.as_ref()?.of(&self.digest)
    }

    /// The `sub` claim.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// The claims that conditions may read; `None` if no condition does.
    pub(crate) fn for_policy(&self) -> Option<&Map<String, Value>> {
        self.shown.as_ref()
    }

    /// A digest that identifies the holder.
    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// The owner of a token: a subject of its issuer, or else the client it was issued to. `None` if it names
/// neither: then the token itself identifies its holder.
fn holder(claims: &Map<String, Value>) -> Option<Value> {
    let stated = |name: &str| claims.get(name).filter(|value| value.as_str() != Some(""));
    let issuer = claims.get("iss");
    if let Some(subject) = stated("sub") {
        return Some(json!(["sub", issuer, subject]));
    }
    let program = (stated("client_id"), stated("azp"));
    (program != (None, None)).then(|| json!(["client", issuer, program]))
}

impl PartialEq for Claims {
    fn eq(&self, other: &Claims) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Claims {}

impl Hash for Claims {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_token_is_the_same_holder_and_another_subject_is_not() {
        let by = |text: Value, shown, token: u8| {
            Claims::new(text.as_object().unwrap().clone(), shown, &[token; 32])
        };
        let claims = |text: Value, shown| by(text, shown, 0);
        let first = json!({"sub": "a", "exp": 1, "jti": "x", "groups": ["g"]});
        let renewed = json!({"groups": ["g"], "exp": 2, "jti": "y", "sub": "a"});
        let regrouped = json!({"sub": "a", "groups": ["g", "h"]});
        assert_eq!(claims(first.clone(), true), claims(renewed.clone(), true));
        assert_ne!(claims(first.clone(), true), claims(regrouped.clone(), true));
        assert_eq!(claims(first.clone(), false), claims(regrouped, false));
        assert_ne!(claims(first.clone(), false), claims(json!({"sub": "b"}), false));
        assert!(claims(first, true).for_policy().unwrap().get("jti").is_none());
        // Without a subject, `azp` identifies the holder; without that, the token itself.
        for shown in [true, false] {
            let of = |azp: &str, token| by(json!({"azp": azp, "groups": ["g"]}), shown, token);
            assert_eq!(of("one", 1), of("one", 2));
            assert_ne!(of("one", 1), of("two", 1));
            let nobody = |token| by(json!({"groups": ["g"], "sub": ""}), shown, token);
            assert_eq!(nobody(1), nobody(1));
            assert_ne!(nobody(1), nobody(2));
            assert_ne!(by(json!({"sub": "x"}), shown, 1), by(json!({"azp": "x"}), shown, 1));
        }
    }
}
