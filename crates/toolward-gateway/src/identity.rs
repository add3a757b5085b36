//! Which agent a credential names. What a client merely says of itself never decides.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::client::Caller;

/// The credentials of all agents.
#[derive(Debug, Default)]
pub struct Identities {
    /// Tokens as SHA-256.
    pub tokens: Vec<([u8; 32], Arc<str>)>,
    /// Callers without a credential are turned away.
    pub required: bool,
}

/// Why a caller is turned away: 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unidentified {
    /// There is no credential, and one is needed.
    Missing,
    /// There is one that names no agent.
    Wrong,
}

impl Identities {
    /// Adds a token that is known as it is.
    pub fn add(&mut self, token: &str, agent: &Arc<str>) {
        self.tokens.push((Sha256::digest(token).into(), agent.clone()));
    }

    /// The caller behind an `Authorization` header.
    pub fn identify(&self, authorization: Option<&str>) -> Result<Caller, Unidentified> {
        let Some(authorization) = authorization else {
            return match self.required {
                true => Err(Unidentified::Missing),
                false => Ok(Caller { agent: None, identity: "none" }),
            };
        };
        let (scheme, token) = authorization.split_once(' ').ok_or(Unidentified::Wrong)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Unidentified::Wrong);
        }
        let hash: [u8; 32] = Sha256::digest(token.trim_start_matches(' ')).into();
        // Every token is looked at to its end, so that time does not tell which was nearly right.
        let mut found = None;
        for (known, agent) in &self.tokens {
            let differs = known.iter().zip(&hash).fold(0, |bits, (a, b)| bits | (a ^ b));
            if differs == 0 {
                found = Some(agent);
            }
        }
        let agent = found.ok_or(Unidentified::Wrong)?;
        Ok(Caller { agent: Some(agent.clone()), identity: "token" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_agent_and_anything_else_nobody() {
        let mut identities = Identities { tokens: Vec::new(), required: true };
        identities.add("secret-a", &"a".into());
        identities.add("secret-b", &"b".into());
        let who = |header: &str| identities.identify(Some(header)).map(|caller| caller.agent);
        assert_eq!(who("Bearer secret-b"), Ok(Some("b".into())));
        assert_eq!(who("bearer secret-a"), Ok(Some("a".into())));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer secret-",
            "Basic secret-a",
            "secret-a",
            "Bearer secret-a ",
        ] {
            assert_eq!(who(wrong), Err(Unidentified::Wrong), "{wrong}");
        }
        assert_eq!(identities.identify(None), Err(Unidentified::Missing));
        identities.required = false;
        assert_eq!(identities.identify(None).unwrap().agent, None);
        // A wrong token is never "no name".
        assert_eq!(identities.identify(Some("Bearer x")), Err(Unidentified::Wrong));
    }
}
