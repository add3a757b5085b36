//! Authentication: maps credentials to agents. Unverified client info never identifies an agent.
//!
//! A caller can present a token or a JWT, use a connection that identifies it (a user id on a unix
//! socket, a client certificate), or both; then both must identify the same agent. An invalid credential
//! is always rejected, never treated as an unnamed caller. If something cannot be determined, such as
//! keys that cannot be fetched, the caller is rejected.

mod certificate;
mod claims;
mod issuer;
mod jwk;
mod jwt;
mod keys;
mod tokens;

use std::sync::Arc;

use hashbrown::HashMap;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

pub(crate) use self::certificate::ends;
pub use self::certificate::{Certificate, Mark};
use self::claims::ClaimMatch;
pub use self::claims::ClaimRule;
pub use self::issuer::{Issuer, Settings};
use self::issuer::{TokenCache, ValidToken};
pub use self::jwk::Algorithm;
use self::jwt::ParsedToken;
pub use self::keys::{Source, check_key_file};
pub use self::tokens::Tokens;
use crate::client::{Caller, Claims, SubjectTokens};
use crate::clock;

/// The credentials of all agents.
#[derive(Default)]
pub struct Identities {
    pub tokens: Tokens,
    /// Agents by the user id of their process, on a unix socket.
    pub uids: HashMap<u32, Arc<str>>,
    /// Agents by the marks of their client certificates.
    certificates: HashMap<Mark, Vec<Arc<str>>>,
    /// The issuers of JWTs, each with another name.
    pub issuers: Vec<Issuer>,
    /// The claims that map a JWT to an agent.
    pub claims: Vec<ClaimRule>,
    /// Rules or hooks read claims.
    pub show_claims: bool,
    /// Unnamed callers are rejected.
    pub required: bool,
    /// Servers get tokens that are exchanged for callers' JWTs.
    pub keep_tokens: bool,
    subject_tokens: Arc<SubjectTokens>,
    known: TokenCache<Bearer>,
}

/// The credentials that a request and its connection present.
#[derive(Debug, Clone, Copy, Default)]
pub struct PresentedCredentials<'a> {
    pub authorization: Option<&'a str>,
    /// The requested path.
    pub path: &'a str,
    /// The user id of the peer of a unix socket.
    pub uid: Option<u32>,
    /// The verified client certificate.
    pub certificate: Option<&'a Certificate>,
}

/// A caller that passed authentication.
#[derive(Debug)]
pub struct AuthenticatedCaller {
    pub caller: Caller,
    /// When its credential expires, in seconds since the Unix epoch.
    pub until: Option<u64>,
}

/// The holder of a valid JWT.
#[derive(Debug)]
struct Bearer {
    named: ClaimMatch,
    claims: Arc<Claims>,
}

/// Why a caller is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unidentified {
    /// There is no credential, and one is required.
    Missing,
    /// The credential is valid but matches no agent, and an agent is required.
    Nobody,
    /// The credential is invalid.
    Wrong(Wrong),
    /// The credential would match an agent if it had these scopes.
    Lacks(String),
}

/// Why a credential is invalid.
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
    /// The reason, for the audit log and for the caller.
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
            Wrong::AmbiguousKey => "the token does not name the key that signed it",
            Wrong::Signature => "the token's signature is wrong",
            Wrong::SeveralAgents => "the credential matches two agents",
            Wrong::Disagree => "two credentials name different agents",
            Wrong::Certificate => "the client's certificate is no longer valid",
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
    /// `required`: unnamed callers are rejected. `show_claims`: rules or hooks read claims.
    pub fn new(required: bool, show_claims: bool) -> Identities {
        Identities { required, show_claims, ..Identities::default() }
    }

    /// Adds a token in plain text. The error is another agent that has the same token.
    pub fn add(&mut self, token: &str, agent: &Arc<str>) -> Result<(), Arc<str>> {
        self.tokens.add(Sha256::digest(token).into(), agent)
    }

    /// Adds a mark that identifies an agent's certificate.
    pub fn add_certificate(&mut self, mark: Mark, agent: &Arc<str>) {
        let agents = self.certificates.entry(mark).or_default();
        if !agents.contains(agent) {
            agents.push(agent.clone());
        }
    }

    /// The scopes that any agent's claims require, and those that all agents' claims require.
    pub(crate) fn scopes(&self) -> (Vec<String>, Vec<String>) {
        claims::scopes(&self.claims)
    }

    /// Whether any caller over a socket can be identified as an agent.
    pub fn can_name(&self) -> bool {
        let by_claims = match self.claims.is_empty() {
            true => self.issuers.iter().any(|issuer| issuer.agent_claim().is_some()),
            false => !self.issuers.is_empty(),
        };
        let listed = self.tokens.len() + self.uids.len() + self.certificates.len();
        by_claims || listed > 0
    }

    /// Changes after every fetch of the keys of a JWT's issuer.
    pub(crate) fn keys_read(&self, authorization: Option<&str>) -> Option<watch::Receiver<u64>> {
        let (_, token) = authorization?.split_once(' ')?;
        let parsed = ParsedToken::read(token.trim_start_matches(' ')).ok()?;
        Some(self.issuer_of(&parsed).ok()?.keys_read())
    }

    /// Continues to use the keys that were fetched under another configuration.
    pub(crate) fn share_keys(&mut self, other: &Identities) {
        let known = |issuer: &Issuer| other.issuers.iter().find(|one| one.has_keys_of(issuer));
        let issuers = std::mem::take(&mut self.issuers).into_iter();
        let shared = issuers.map(|issuer| match known(&issuer) {
            Some(known) => issuer.sharing(known),
            None => issuer,
        });
        self.issuers = shared.collect();
        self.subject_tokens = other.subject_tokens.clone();
    }

    /// The issuer that a token names. Its signature has not been verified.
    fn issuer_of(&self, token: &ParsedToken<'_>) -> Result<&Issuer, Wrong> {
        let named = token.claims.get("iss").and_then(Value::as_str);
        let found = self.issuers.iter().find(|issuer| Some(issuer.name()) == named);
        found.ok_or_else(|| match self.issuers.iter().any(|one| one.accepts(token.algorithm)) {
            true => Wrong::Issuer,
            false => Wrong::Algorithm,
        })
    }

    /// The agent of a configured token.
    pub fn of_token(&self, token: &str) -> Option<Arc<str>> {
        self.tokens.agent(token).cloned()
    }

    /// Whether a caller that was identified under an earlier configuration could still be: some credential of its kind
    /// names its agent.
    pub(crate) fn still_names(&self, caller: &Caller) -> bool {
        let Some(agent) = &caller.agent else { return !self.required };
        // Over stdio, the operator names the agent.
        let by_operator = !self.required && !self.can_name();
        by_operator
            || match caller.identity {
                "token" => self.tokens.has(agent),
                "uid" => self.uids.values().any(|own| own == agent),
                "certificate" => self.certificates.values().flatten().any(|own| own == agent),
                "jwt" => !self.issuers.is_empty(),
                _ => true,
            }
    }

    /// Authenticates the caller of a request.
    pub async fn identify(
        &self,
        shown: &PresentedCredentials<'_>,
    ) -> Result<AuthenticatedCaller, Unidentified> {
        let connection = self.by_connection(shown)?;
        let Some(authorization) = shown.authorization else {
            return match connection {
                Some((agent, how)) => Ok(AuthenticatedCaller {
                    caller: Caller::new(Some(agent.clone()), how),
                    until: None,
                }),
                None if self.required => Err(Unidentified::Missing),
                None => Ok(AuthenticatedCaller { caller: Caller::new(None, "none"), until: None }),
            };
        };
        let known = self.by_header(authorization, shown.path).await?;
        match connection {
            // The connection need not identify the caller. If it does, a token that matches no agent
            // contradicts it.
            Some((agent, _)) if known.caller.agent.as_ref() != Some(agent) => {
                Err(Wrong::Disagree.into())
            }
            _ if known.caller.agent.is_none() && self.required => Err(Unidentified::Nobody),
            _ => Ok(known),
        }
    }

    /// The agent that the connection itself identifies.
    fn by_connection(
        &self,
        shown: &PresentedCredentials<'_>,
    ) -> Result<Option<(&Arc<str>, &'static str)>, Wrong> {
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

    async fn by_header(
        &self,
        authorization: &str,
        path: &str,
    ) -> Result<AuthenticatedCaller, Unidentified> {
        let (scheme, token) = authorization.split_once(' ').ok_or(Wrong::NotBearer)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Wrong::NotBearer.into());
        }
        let token = token.trim_start_matches(' ');
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(agent) = self.tokens.find(&hash) {
            return Ok(AuthenticatedCaller {
                caller: Caller::new(Some(agent.clone()), "token"),
                until: None,
            });
        }
        if self.issuers.is_empty() || !token.contains('.') {
            return Err(Wrong::Unknown.into());
        }
        let now = clock::seconds();
        let bearer = match self.known.find(&self.issuers, &hash, now) {
            Some(bearer) => bearer,
            // Boxed because it is rare and would otherwise enlarge the future of every request.
            None => Box::pin(self.check(token, hash, now)).await?,
        };
        let issuer = self.issuers.get(bearer.issuer);
        if !issuer.is_some_and(|issuer| issuer.is_for(&bearer, path)) {
            return Err(Wrong::Audience.into());
        }
        let agent = match &bearer.what.named {
            ClaimMatch::Agent(agent) => Some(agent.clone()),
            ClaimMatch::Nobody => None,
            ClaimMatch::Several => return Err(Wrong::SeveralAgents.into()),
            ClaimMatch::Lacks(scopes) => return Err(Unidentified::Lacks(scopes.clone())),
        };
        let claims = Some(bearer.what.claims.clone());
        Ok(AuthenticatedCaller {
            caller: Caller { agent, identity: "jwt", claims },
            until: Some(bearer.until),
        })
    }

    async fn check(
        &self,
        token: &str,
        hash: [u8; 32],
        now: u64,
    ) -> Result<Arc<ValidToken<Bearer>>, Wrong> {
        let parsed = ParsedToken::read(token)?;
        let issuer = self.issuer_of(&parsed)?;
        let at = self.issuers.iter().position(|one| std::ptr::eq(one, issuer)).unwrap_or_default();
        let valid = issuer.check(parsed, at, now).await?;
        let until = valid.until;
        let valid = valid.map(|claims| {
            let named = claims::name(&self.claims, issuer.agent_claim(), &claims);
            let mut claims = Claims::new(claims, self.show_claims, &hash);
            if self.keep_tokens {
                claims = claims.with_token(&self.subject_tokens, token, until);
            }
            Bearer { named, claims: Arc::new(claims) }
        });
        Ok(self.known.keep(hash, valid, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(
        identities: &Identities,
        shown: PresentedCredentials<'_>,
    ) -> Result<Option<Arc<str>>, Unidentified> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(identities.identify(&shown)).map(|known| known.caller.agent)
    }

    fn header(value: &str) -> PresentedCredentials<'_> {
        PresentedCredentials {
            authorization: Some(value),
            path: "/mcp",
            ..PresentedCredentials::default()
        }
    }

    #[test]
    fn only_a_valid_token_identifies_its_agent() {
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
        assert_eq!(who(&identities, PresentedCredentials::default()), Err(Unidentified::Missing));
        identities.required = false;
        assert_eq!(who(&identities, PresentedCredentials::default()), Ok(None));
        // An invalid token never makes an unnamed caller.
        assert_eq!(who(&identities, header("Bearer x")), Err(Wrong::Unknown.into()));
    }

    #[test]
    fn a_connection_and_a_token_must_agree() {
        let mut identities = Identities { required: true, ..Identities::default() };
        identities.add("secret-a", &"a".into()).unwrap();
        identities.uids = [(7, "a".into()), (8, "b".into())].into();
        let on = |uid, value| PresentedCredentials {
            uid: Some(uid),
            authorization: value,
            ..PresentedCredentials::default()
        };
        assert_eq!(who(&identities, on(7, None)), Ok(Some("a".into())));
        assert_eq!(who(&identities, on(9, None)), Err(Unidentified::Missing));
        let token = Some("Bearer secret-a");
        assert_eq!(who(&identities, on(7, token)), Ok(Some("a".into())));
        assert_eq!(who(&identities, on(9, token)), Ok(Some("a".into())));
        assert_eq!(who(&identities, on(8, token)), Err(Wrong::Disagree.into()));
        assert_eq!(who(&identities, on(7, Some("Bearer x"))), Err(Wrong::Unknown.into()));
    }
}
