//! Which agent a credential names. What a client merely says of itself never decides.
//!
//! A caller can show a token or a JWT, come in by a connection that says who it is (a user on a unix
//! socket, a certificate), or both: then both must name the same agent. What is shown and wrong is never
//! "no name", and whatever cannot be found out, such as keys that cannot be fetched, names nobody.

mod certificate;
mod claims;
mod issuer;
mod jwk;
mod jwt;
mod keys;
mod tokens;

use std::sync::Arc;

use hashbrown::HashMap;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

pub(crate) use self::certificate::ends;
pub use self::certificate::{Certificate, Mark};
use self::claims::Named;
pub use self::claims::Wanted;
pub use self::issuer::{Issuer, Settings};
use self::issuer::{Remembered, Valid};
pub use self::jwk::Algorithm;
pub use self::keys::Source;
pub use self::tokens::Tokens;
use crate::client::{Caller, Claims};
use crate::clock;

/// The credentials of all agents.
#[derive(Default)]
pub struct Identities {
    pub tokens: Tokens,
    /// Users whose processes are an agent, on a unix socket.
    pub uids: HashMap<u32, Arc<str>>,
    /// Agents by the marks of their clients' certificates.
    certificates: HashMap<Mark, Vec<Arc<str>>>,
    /// Who issues JWTs.
    pub issuer: Option<Issuer>,
    /// The claims by which a JWT is an agent.
    pub claims: Vec<Wanted>,
    /// Rules or hooks read claims.
    pub show_claims: bool,
    /// Callers without a name are turned away.
    pub required: bool,
    known: Remembered<Bearer>,
}

/// What a request and its connection show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown<'a> {
    pub authorization: Option<&'a str>,
    /// The path that is asked for.
    pub path: &'a str,
    /// The user at the other end of a unix socket.
    pub uid: Option<u32>,
    /// The client's certificate, which an authority has signed.
    pub certificate: Option<&'a Certificate>,
}

/// A caller who may go on.
#[derive(Debug)]
pub struct Known {
    pub caller: Caller,
    /// When its credential ends, in seconds since 1970.
    pub until: Option<u64>,
}

/// Whoever holds a good JWT.
#[derive(Debug)]
struct Bearer {
    named: Named,
    claims: Arc<Claims>,
}

/// Why a caller is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unidentified {
    /// There is no credential, and one is needed.
    Missing,
    /// There is a good one that is no agent's, and a name is needed.
    Nobody,
    /// There is one that must not be believed.
    Wrong(Wrong),
    /// It would be an agent's with these scopes.
    Lacks(String),
}

/// What is wrong with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    NotBearer,
    Unknown,
    TooLong,
    Malformed,
    Algorithm,
    Issuer,
    Audience,
    Expired,
    NotYet,
    NoKeys,
    UnknownKey,
    AmbiguousKey,
    Signature,
    SeveralAgents,
    Disagree,
    Certificate,
}

impl Wrong {
    /// In a few words, for the record and for whoever showed it.
    pub fn words(self) -> &'static str {
        match self {
            Wrong::NotBearer => "the credential is not a bearer token",
            Wrong::Unknown => "the token is not known",
            Wrong::TooLong => "the token is too long",
            Wrong::Malformed => "the token is malformed",
            Wrong::Algorithm => "the token is signed by an algorithm that is not accepted",
            Wrong::Issuer => "the token is from another issuer",
            Wrong::Audience => "the token is for another audience",
            Wrong::Expired => "the token has expired",
            Wrong::NotYet => "the token is not valid yet",
            Wrong::NoKeys => "the keys of the token's issuer cannot be read",
            Wrong::UnknownKey => "the token is signed by a key that its issuer does not have",
            Wrong::AmbiguousKey => "the token does not say by which key it is signed",
            Wrong::Signature => "the token's signature is wrong",
            Wrong::SeveralAgents => "the credential matches two agents",
            Wrong::Disagree => "two credentials name different agents",
            Wrong::Certificate => "the client's certificate is not valid any more",
        }
    }
}

impl Unidentified {
    pub fn words(&self) -> &'static str {
        match self {
            Unidentified::Missing => "there is no credential",
            Unidentified::Nobody => "the credential names no agent",
            Unidentified::Wrong(wrong) => wrong.words(),
            Unidentified::Lacks(_) => "the token lacks a scope",
        }
    }
}

impl From<Wrong> for Unidentified {
    fn from(wrong: Wrong) -> Unidentified {
        Unidentified::Wrong(wrong)
    }
}

impl Identities {
    /// `required`: callers without a name are turned away. `show_claims`: rules or hooks read claims.
    pub fn new(required: bool, show_claims: bool) -> Identities {
        Identities { required, show_claims, ..Identities::default() }
    }

    /// Adds a token in plain text. The error is another agent that has the same token.
    pub fn add(&mut self, token: &str, agent: &Arc<str>) -> Result<(), Arc<str>> {
        self.tokens.add(Sha256::digest(token).into(), agent)
    }

    /// Adds a mark by which the certificate of an agent is recognized.
    pub fn add_certificate(&mut self, mark: Mark, agent: &Arc<str>) {
        let agents = self.certificates.entry(mark).or_default();
        if !agents.contains(agent) {
            agents.push(agent.clone());
        }
    }

    /// Scopes that agents' claims ask for: those of any, and those of all.
    pub fn scopes(&self) -> (Vec<String>, Vec<String>) {
        claims::scopes(&self.claims)
    }

    /// Whether some caller over a socket can have a name.
    pub fn can_name(&self) -> bool {
        let by_claims = self.issuer.is_some() && !self.claims.is_empty();
        let listed = self.tokens.len() + self.uids.len() + self.certificates.len();
        by_claims || listed > 0
    }

    /// Tells whenever the issuer's keys were read anew.
    pub(crate) fn keys_read(&self) -> Option<watch::Receiver<u64>> {
        Some(self.issuer.as_ref()?.keys_read())
    }

    /// The agent that a listed token names.
    pub fn of_token(&self, token: &str) -> Option<Arc<str>> {
        self.tokens.agent(token).cloned()
    }

    /// The caller behind a request.
    pub async fn identify(&self, shown: &Shown<'_>) -> Result<Known, Unidentified> {
        let connection = self.by_connection(shown)?;
        let Some(authorization) = shown.authorization else {
            return match connection {
                Some((agent, how)) => {
                    Ok(Known { caller: Caller::new(Some(agent.clone()), how), until: None })
                }
                None if self.required => Err(Unidentified::Missing),
                None => Ok(Known { caller: Caller::new(None, "none"), until: None }),
            };
        };
        let known = self.by_header(authorization, shown.path).await?;
        match connection {
            // A connection may say nothing of who it is; a token that is no agent's says so.
            Some((agent, _)) if known.caller.agent.as_ref() != Some(agent) => {
                Err(Wrong::Disagree.into())
            }
            _ if known.caller.agent.is_none() && self.required => Err(Unidentified::Nobody),
            _ => Ok(known),
        }
    }

    /// The agent that the connection itself names.
    fn by_connection(&self, shown: &Shown<'_>) -> Result<Option<(&Arc<str>, &'static str)>, Wrong> {
        if let Some(uid) = shown.uid {
            return Ok(self.uids.get(&uid).map(|agent| (agent, "uid")));
        }
        let Some(certificate) = shown.certificate else { return Ok(None) };
        let mut found: Option<&Arc<str>> = None;
        let marks = certificate.marks();
        for agent in marks.filter_map(|mark| self.certificates.get(&mark)).flatten() {
            if found.replace(agent).is_some_and(|other| other != agent) {
                return Err(Wrong::SeveralAgents);
            }
        }
        Ok(found.map(|agent| (agent, "certificate")))
    }

    async fn by_header(&self, authorization: &str, path: &str) -> Result<Known, Unidentified> {
        let (scheme, token) = authorization.split_once(' ').ok_or(Wrong::NotBearer)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Wrong::NotBearer.into());
        }
        let token = token.trim_start_matches(' ');
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(agent) = self.tokens.find(&hash) {
            return Ok(Known { caller: Caller::new(Some(agent.clone()), "token"), until: None });
        }
        let Some(issuer) = self.issuer.as_ref().filter(|_| token.contains('.')) else {
            return Err(Wrong::Unknown.into());
        };
        let now = clock::seconds();
        let bearer = match self.known.find(issuer, &hash, now) {
            Some(bearer) => bearer,
            // Rare and large: it must not make every request's future larger.
            None => Box::pin(self.check(issuer, token, hash, now)).await?,
        };
        if !issuer.is_for(&bearer, path) {
            return Err(Wrong::Audience.into());
        }
        let agent = match &bearer.what.named {
            Named::Agent(agent) => Some(agent.clone()),
            Named::Nobody => None,
            Named::Several => return Err(Wrong::SeveralAgents.into()),
            Named::Lacks(scopes) => return Err(Unidentified::Lacks(scopes.clone())),
        };
        let claims = Some(bearer.what.claims.clone());
        Ok(Known { caller: Caller { agent, identity: "jwt", claims }, until: Some(bearer.until) })
    }

    async fn check(
        &self,
        issuer: &Issuer,
        token: &str,
        hash: [u8; 32],
        now: u64,
    ) -> Result<Arc<Valid<Bearer>>, Wrong> {
        let valid = issuer.check(token, now).await?.map(|claims| Bearer {
            named: claims::name(&self.claims, &claims),
            claims: Arc::new(Claims::new(claims, self.show_claims, &hash)),
        });
        Ok(self.known.keep(hash, valid, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(identities: &Identities, shown: Shown<'_>) -> Result<Option<Arc<str>>, Unidentified> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(identities.identify(&shown)).map(|known| known.caller.agent)
    }

    fn header(value: &str) -> Shown<'_> {
        Shown { authorization: Some(value), path: "/mcp", ..Shown::default() }
    }

    #[test]
    fn a_token_names_its_agent_and_anything_else_nobody() {
        let mut identities = Identities { required: true, ..Identities::default() };
        identities.add("secret-a", &"a".into()).unwrap();
        identities.add("secret-b", &"b".into()).unwrap();
        assert_eq!(who(&identities, header("Bearer secret-b")), Ok(Some("b".into())));
        assert_eq!(who(&identities, header("bearer secret-a")), Ok(Some("a".into())));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer secret-",
            "Basic secret-a",
            "secret-a",
            "Bearer secret-a ",
            "Bearer a.b.c",
        ] {
            let told = who(&identities, header(wrong));
            assert!(matches!(told, Err(Unidentified::Wrong(_))), "{wrong}");
        }
        assert_eq!(who(&identities, Shown::default()), Err(Unidentified::Missing));
        identities.required = false;
        assert_eq!(who(&identities, Shown::default()), Ok(None));
        // A wrong token is never "no name".
        assert_eq!(who(&identities, header("Bearer x")), Err(Wrong::Unknown.into()));
    }

    #[test]
    fn a_connection_and_a_token_must_agree() {
        let mut identities = Identities { required: true, ..Identities::default() };
        identities.add("secret-a", &"a".into()).unwrap();
        identities.uids = [(7, "a".into()), (8, "b".into())].into();
        let on = |uid, value| Shown { uid: Some(uid), authorization: value, ..Shown::default() };
        assert_eq!(who(&identities, on(7, None)), Ok(Some("a".into())));
        assert_eq!(who(&identities, on(9, None)), Err(Unidentified::Missing));
        let token = Some("Bearer secret-a");
        assert_eq!(who(&identities, on(7, token)), Ok(Some("a".into())));
        assert_eq!(who(&identities, on(9, token)), Ok(Some("a".into())));
        assert_eq!(who(&identities, on(8, token)), Err(Wrong::Disagree.into()));
        assert_eq!(who(&identities, on(7, Some("Bearer x"))), Err(Wrong::Unknown.into()));
    }
}
