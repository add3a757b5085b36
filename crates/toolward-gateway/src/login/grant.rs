//! A grant: the result of a login, with everything that a refresh needs.
//!
//! A refresh uses exactly the issuer, client, scopes and resource of the login, whatever the configuration or the
//! metadata of the server say by then.

use serde_json::{Value, json};

use super::network::Zone;
use super::secret::Secret;
use crate::clock;

/// A token is refreshed this long before it expires, or after three quarters of its lifetime if that is later.
const REFRESH_AHEAD: u64 = 30;
/// The maximum lifetime of an access token that is accepted, in seconds.
pub(crate) const MAX_LIFETIME: u64 = 366 * 86_400;

/// The client of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) secret: Option<Secret>,
    pub(crate) method: AuthMethod,
}

impl Client {
    pub(super) fn to_json(&self) -> Value {
        let secret = self.secret.as_ref().map(Secret::expose);
        json!({"id": self.id, "secret": secret, "method": self.method.as_str()})
    }

    pub(super) fn from_json(value: &Value) -> Option<Client> {
        let method = match value["method"].as_str()? {
            "none" => AuthMethod::None,
            "basic" => AuthMethod::Basic,
            "post" => AuthMethod::Post,
            _ => return None,
        };
        let secret = value["secret"].as_str().map(Secret::new);
        Some(Client { id: value["id"].as_str()?.into(), secret, method })
    }
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    None,
    Basic,
    Post,
}

impl AuthMethod {
    /// The method for a client with a secret. Without metadata, RFC 8414 means `client_secret_basic`.
    pub(crate) fn preferred(supported: &[String]) -> AuthMethod {
        let has = |method: &str| supported.iter().any(|one| one == method);
        match has("client_secret_post") && !has("client_secret_basic") {
            true => AuthMethod::Post,
            false => AuthMethod::Basic,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            AuthMethod::None => "none",
            AuthMethod::Basic => "basic",
            AuthMethod::Post => "post",
        }
    }
}

/// The tokens of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) access: Secret,
    pub(crate) refresh: Option<Secret>,
    /// Seconds since 1970.
    pub(crate) issued: u64,
    /// `None`: it is not known, and the token is used until the server rejects it.
    pub(crate) expires: Option<u64>,
}

impl Tokens {
    /// Seconds until the token should be refreshed, and until it expires.
    pub(crate) fn remaining(&self, now: u64) -> (u64, u64) {
        let Some(expires) = self.expires else { return (u64::MAX, u64::MAX) };
        let lifetime = expires.saturating_sub(self.issued);
        // Times are whole seconds, so that a token of few seconds needs one of them.
        let refresh = expires.saturating_sub(REFRESH_AHEAD.min((lifetime / 4).max(1)));
        // A clock that was set back must not keep a token alive for longer than its lifetime.
        let left = |until: u64| until.saturating_sub(now).min(lifetime);
        (left(refresh), left(expires))
    }
}

/// The result of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Random: another login has another one.
    pub(crate) id: String,
    pub(crate) server: String,
    /// The agent whose login it is; `None`: the gateway's.
    pub(crate) owner: Option<String>,
    /// The origin of the server, which is the only one that gets the token.
    pub(crate) origin: String,
    pub(crate) zone: Zone,
    pub(crate) issuer: String,
    pub(crate) token_endpoint: String,
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) client: Client,
    pub(crate) redirect: String,
    pub(crate) resource: Option<String>,
    pub(crate) scope: Option<String>,
    /// `None`: the login is lost.
    pub(crate) tokens: Option<Tokens>,
    /// The number of refreshes.
    pub(crate) refreshes: u64,
    /// Why the login is lost.
    pub(crate) lost: Option<String>,
}

impl Grant {
    pub fn server(&self) -> &str {
        &self.server
    }

    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    pub fn refreshes(&self) -> u64 {
        self.refreshes
    }

    /// Why the login is lost, if it is.
    pub fn lost(&self) -> Option<&str> {
        match &self.tokens {
            Some(_) => None,
            None => Some(self.lost.as_deref().unwrap_or("it was revoked")),
        }
    }

    /// Whether it has a refresh token.
    pub fn can_refresh(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.refresh.is_some())
    }

    /// When the access token expires, in seconds since 1970.
    pub fn expires(&self) -> Option<u64> {
        self.tokens.as_ref()?.expires
    }

    /// The same grant without its tokens. Its id still names the stored lists of the server.
    pub(crate) fn without_tokens(&self, why: &str) -> Grant {
        Grant { tokens: None, lost: Some(why.into()), ..self.clone() }
    }

    pub(crate) fn to_json(&self) -> Value {
        let secret = |secret: &Option<Secret>| secret.as_ref().map(|s| s.expose().to_owned());
        json!({
            "version": 1,
            "id": self.id,
            "server": self.server,
            "owner": self.owner,
            "origin": self.origin,
            "zone": self.zone.as_str(),
            "issuer": self.issuer,
            "token_endpoint": self.token_endpoint,
            "revocation_endpoint": self.revocation_endpoint,
            "client": self.client.to_json(),
            "redirect": self.redirect,
            "resource": self.resource,
            "scope": self.scope,
            "tokens": self.tokens.as_ref().map(|tokens| json!({
                "access": tokens.access.expose(),
                "refresh": secret(&tokens.refresh),
                "issued": tokens.issued,
                "expires": tokens.expires,
            })),
            "refreshes": self.refreshes,
            "lost": self.lost,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Grant> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let secret = |value: &Value| value.as_str().map(Secret::new);
        if value["version"] != 1 {
            return None;
        }
        let tokens = match &value["tokens"] {
            Value::Null => None,
            tokens => Some(Tokens {
                access: secret(&tokens["access"])?,
                refresh: secret(&tokens["refresh"]),
                issued: tokens["issued"].as_u64()?,
                expires: tokens["expires"].as_u64(),
            }),
        };
        Some(Grant {
            id: text(&value["id"])?,
            server: text(&value["server"])?,
            owner: text(&value["owner"]),
            origin: text(&value["origin"])?,
            zone: Zone::parse(value["zone"].as_str()?)?,
            issuer: text(&value["issuer"])?,
            token_endpoint: text(&value["token_endpoint"])?,
            // Logins of earlier versions have none.
            revocation_endpoint: text(&value["revocation_endpoint"]),
            client: Client::from_json(&value["client"])?,
            redirect: text(&value["redirect"])?,
            resource: text(&value["resource"]),
            scope: text(&value["scope"]),
            tokens,
            refreshes: value["refreshes"].as_u64()?,
            lost: text(&value["lost"]),
        })
    }

    /// The access token's state in words, for people.
    pub fn state(&self) -> &'static str {
        match &self.tokens {
            None => "needs login",
            Some(tokens) => match tokens.remaining(clock::seconds()) {
                (_, 0) if tokens.refresh.is_none() => "needs login",
                (_, 0) => "expired, refreshed on next use",
                _ => "valid",
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A grant for tests.
    pub(crate) fn grant(access: &str, refresh: Option<&str>, expires: Option<u64>) -> Grant {
        Grant {
            id: "1".into(),
            server: "s".into(),
            owner: None,
            origin: "https://s.example".into(),
            zone: Zone::Local,
            issuer: "https://id.example".into(),
            token_endpoint: "https://id.example/token".into(),
            revocation_endpoint: Some("https://id.example/revoke".into()),
            client: Client {
                id: "c".into(),
                secret: Some(Secret::new("client-secret")),
                method: AuthMethod::Basic,
            },
            redirect: "http://127.0.0.1:7411/oauth/callback".into(),
            resource: Some("https://s.example/mcp".into()),
            scope: Some("a b".into()),
            tokens: Some(Tokens {
                access: Secret::new(access),
                refresh: refresh.map(Secret::new),
                issued: 100,
                expires,
            }),
            refreshes: 3,
            lost: None,
        }
    }

    #[test]
    fn a_grant_is_the_same_after_it_was_stored() {
        let live = grant("token", Some("refresh"), Some(200));
        assert_eq!(Grant::from_json(&live.to_json()), Some(live.clone()));
        let lost = live.without_tokens("revoked");
        assert_eq!(Grant::from_json(&lost.to_json()), Some(lost.clone()));
        assert!(!lost.to_json().to_string().contains("refresh\":\"refresh"));
        let mut other = live.to_json();
        other["version"] = 2.into();
        assert_eq!(Grant::from_json(&other), None);
    }

    #[test]
    fn debug_output_has_no_token() {
        let debug = format!("{:?}", grant("acc-tok", Some("ref-tok"), None));
        for secret in ["acc-tok", "ref-tok", "client-secret"] {
            assert!(!debug.contains(secret), "{debug}");
        }
    }

    #[test]
    fn a_token_is_refreshed_before_it_expires() {
        let tokens = |lifetime: u64| grant("t", None, Some(100 + lifetime)).tokens.unwrap();
        assert_eq!(tokens(3600).remaining(100), (3570, 3600));
        assert_eq!(tokens(16).remaining(100), (12, 16));
        assert_eq!(tokens(16).remaining(113), (0, 3));
        assert_eq!(tokens(16).remaining(200), (0, 0));
        // The clock was set back by an hour.
        let mut late = tokens(60);
        (late.issued, late.expires) = (3700, Some(3760));
        assert_eq!(late.remaining(100).1, 60);
        late.expires = None;
        assert_eq!(late.remaining(100).1, u64::MAX);
    }
}
