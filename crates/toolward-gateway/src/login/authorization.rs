//! The authorization code flow with PKCE (RFC 7636): the address for the browser, and the checks of its response.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;

use super::error::{LoginError, known_code};
use super::form::{form, parameters};
use super::secret::Secret;
use crate::random;

const STEP: &str = "authorization";
/// The maximum length of a response's query.
pub(crate) const MAX_QUERY: usize = 8 << 10;

/// An authorization that a person has to give. It is used once.
#[derive(Debug)]
pub(crate) struct Authorization {
    state: Secret,
    pub(crate) verifier: Secret,
    issuer: String,
    /// Its responses must have `iss`.
    needs_issuer: bool,
}

/// Why a response is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It does not belong to this login; the right one may still come.
    Foreign,
    /// The login failed.
    Failed(LoginError),
}

impl Authorization {
    pub(crate) fn new(issuer: &str, needs_issuer: bool) -> std::io::Result<Authorization> {
        let (state, verifier) = (random_text()?, random_text()?);
        Ok(Authorization { state, verifier, issuer: issuer.into(), needs_issuer })
    }

    pub(crate) fn state(&self) -> &str {
        self.state.expose()
    }

    /// The address that the person has to open.
    pub(crate) fn url(
        &self,
        endpoint: &str,
        (client, redirect): (&str, &str),
        (scope, resource): (Option<&str>, Option<&str>),
    ) -> String {
        let challenge = digest::digest(&digest::SHA256, self.verifier.expose().as_bytes());
        let challenge = URL_SAFE_NO_PAD.encode(challenge);
        let mut all = vec![
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", redirect),
            ("state", self.state()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        all.extend(scope.map(|scope| ("scope", scope)));
        all.extend(resource.map(|resource| ("resource", resource)));
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        format!("{endpoint}{separator}{}", form(&all))
    }

    /// The code of a response, which is the query of the redirect address.
    pub(crate) fn code(&self, query: &str) -> Result<Secret, Refused> {
        let all = Some(query).filter(|query| query.len() <= MAX_QUERY).and_then(parameters);
        let all = all.ok_or(Refused::Foreign)?;
        let value = |name: &str| {
            let found = all.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        if !value("state").is_some_and(|state| same(state, self.state())) {
            return Err(Refused::Foreign);
        }
        let failed = |why: String| Refused::Failed(LoginError::new(STEP, why));
        match value("iss") {
            Some(issuer) if issuer == self.issuer => {}
            Some(_) => {
                let why = "the response comes from another authorization server (`iss` differs)";
                return Err(failed(why.into()));
            }
            None if self.needs_issuer => {
                return Err(failed("the response does not name its issuer (`iss`)".into()));
            }
            None => {}
        }
        if let Some(code) = value("error") {
            return Err(failed(match known_code(code) {
                "access_denied" => "access was denied at the provider".into(),
                code => format!("the provider returned `{code}`"),
            }));
        }
        match value("code").filter(|code| !code.is_empty()) {
            Some(code) => Ok(Secret::new(code)),
            None => Err(failed("the response has no code".into())),
        }
    }
}

/// Compares in constant time.
fn same(one: &str, other: &str) -> bool {
    let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    digest(one).as_ref() == digest(other).as_ref()
}

/// 256 random bits.
fn random_text() -> std::io::Result<Secret> {
    let mut bytes = [0; 32];
    random::fill(&mut bytes)?;
    Ok(Secret::new(URL_SAFE_NO_PAD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_accepted_only_with_its_state_and_issuer() {
        let issuer = "https://id.example";
        let own = Authorization::new(issuer, true).unwrap();
        let query = |all: &[(&str, &str)]| form(all);
        let state = own.state();
        let good = query(&[("code", "c"), ("state", state), ("iss", issuer)]);
        assert_eq!(own.code(&good).unwrap().expose(), "c");
        for foreign in [
            query(&[("code", "c"), ("iss", issuer)]),
            query(&[("code", "c"), ("state", "x"), ("iss", issuer)]),
            query(&[("code", "c"), ("state", ""), ("iss", issuer)]),
            format!("{good}&code=injected"),
            format!("{good}&state={state}"),
            format!("{good}&x={}", "x".repeat(MAX_QUERY)),
            String::new(),
        ] {
            assert_eq!(own.code(&foreign), Err(Refused::Foreign), "{foreign}");
        }
        for (all, why) in [
            (vec![("code", "c"), ("state", state)], "does not name its issuer"),
            (vec![("code", "c"), ("state", state), ("iss", "https://id.example/")], "differs"),
            (vec![("code", "c"), ("state", state), ("iss", "https://evil.example")], "differs"),
            (vec![("error", "access_denied"), ("state", state), ("iss", issuer)], "denied"),
            (vec![("error", "<b>tok</b>"), ("state", state), ("iss", issuer)], "unknown"),
            (vec![("state", state), ("iss", issuer)], "no code"),
        ] {
            let refused = own.code(&query(&all)).unwrap_err();
            let Refused::Failed(error) = refused else { panic!("{all:?}") };
            assert!(error.to_string().contains(why), "{error}");
            assert!(!error.to_string().contains("tok"), "{error}");
        }
    }

    #[test]
    fn the_address_has_a_challenge_and_no_verifier() {
        let own = Authorization::new("https://id.example", false).unwrap();
        let url =
            own.url("https://id.example/a?x=1", ("c", "http://127.0.0.1/"), (None, Some("r")));
        assert!(url.starts_with("https://id.example/a?x=1&response_type=code&client_id=c&"));
        assert!(url.contains("&code_challenge_method=S256&resource=r"));
        assert!(!url.contains(own.verifier.expose()) && !url.contains("scope="));
        let other = Authorization::new("https://id.example", false).unwrap();
        assert_ne!(own.state(), other.state());
    }
}
