//! The state of the authorization server: clients, codes, grants and tokens.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::http::Exchanged;
use super::signing::{self, Key};
use super::switches::{Refresh, Switches};

pub(super) struct State {
    /// The issuer: the address with the path.
    pub(super) issuer: String,
    pub(super) origin: String,
    pub(super) path: String,
    pub(super) key: Key,
    pub(super) switches: watch::Sender<Switches>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) clients: HashMap<String, Client>,
    pub(super) codes: HashMap<String, Code>,
    pub(super) devices: HashMap<String, DeviceRequest>,
    pub(super) grants: Vec<Grant>,
    /// Access tokens.
    pub(super) access: HashMap<String, AccessToken>,
    /// Refresh tokens, each with its grant and whether it is the newest one.
    pub(super) refresh: HashMap<String, (usize, bool)>,
    pub(super) seen: Vec<Exchanged>,
    /// Everything that must not be visible anywhere: tokens, codes and secrets.
    pub(super) secrets: Vec<String>,
    pub(super) counts: Counts,
    /// Token requests that wait because of the switch `hold`.
    pub(super) held: usize,
}

/// Counts of uses of refresh tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Successful refreshes.
    pub refreshes: usize,
    /// Refreshes that began while another one of the same grant was in progress.
    pub overlapping: usize,
    /// Uses of a refresh token that had been replaced.
    pub reused: usize,
    /// Grants that exist and are not revoked.
    pub live_grants: usize,
    /// Revoked grants.
    pub revoked_grants: usize,
    /// Registered clients.
    pub clients: usize,
    /// Exchanged tokens (RFC 8693).
    pub exchanges: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) secret: Option<String>,
    pub(super) redirect_uris: Vec<String>,
    pub(super) grant_types: Vec<String>,
    pub(super) name: String,
    /// Its id is the address of its metadata document.
    pub(super) document: bool,
}

pub(super) struct Code {
    pub(super) client: String,
    pub(super) redirect_uri: String,
    pub(super) challenge: Option<String>,
    pub(super) nonce: Option<String>,
    pub(super) subject: String,
    pub(super) scope: String,
    pub(super) resource: Option<String>,
    /// The grant, after the code was used.
    pub(super) used: Option<usize>,
}

pub(super) struct DeviceRequest {
    pub(super) client: String,
    pub(super) user_code: String,
    pub(super) scope: String,
    pub(super) resource: Option<String>,
    pub(super) polls: usize,
    /// The person who approved the device.
    pub(super) approved: Option<String>,
}

/// Access that a person granted to a client.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) client: String,
    pub(super) subject: String,
    pub(super) scope: String,
    pub(super) resource: Option<String>,
    pub(super) alive: bool,
    pub(super) refreshing: usize,
    /// Tokens of this grant are rejected by the protected server.
    pub(super) rejected: bool,
}

/// An access token, as the protected server sees it.
#[derive(Debug, Clone)]
pub struct AccessToken {
    pub subject: String,
    pub client: String,
    pub scope: String,
    /// The `resource` or `audience` that it was requested for.
    pub audience: Option<String>,
    pub(super) grant: Option<usize>,
    pub(super) until: Instant,
    pub(super) rejected: bool,
}

impl State {
    pub(super) fn new(origin: String, switches: Switches, key: Key) -> State {
        let path = switches.path.clone();
        let issuer = format!("{origin}{path}");
        let (switches, _) = watch::channel(switches);
        State { issuer, origin, path, key, switches, inner: Mutex::default() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn switches(&self) -> Switches {
        self.switches.borrow().clone()
    }

    /// The client of an id: registered, or known without registration.
    pub(super) fn client(&self, id: &str) -> Option<Client> {
        let switches = self.switches.borrow();
        let known = switches.clients.iter().find(|client| client.id == id);
        known
            .map(|client| Client {
                secret: client.secret.clone(),
                redirect_uris: client.redirect_uris.clone(),
                grant_types: vec!["authorization_code".into(), "refresh_token".into()],
                name: id.into(),
                document: false,
            })
            .or_else(|| self.inner().clients.get(id).cloned())
    }

    /// The token of an `Authorization` header, if it is valid.
    pub(super) fn valid(&self, authorization: &str) -> Option<AccessToken> {
        let token = authorization.strip_prefix("Bearer ")?;
        let inner = self.inner();
        let access = inner.access.get(token)?;
        let alive = access.grant.is_none_or(|grant| inner.grants[grant].alive);
        (alive && !access.rejected && Instant::now() < access.until).then(|| access.clone())
    }

    pub(super) fn counts(&self) -> Counts {
        let inner = self.inner();
        let live = inner.grants.iter().filter(|grant| grant.alive).count();
        Counts {
            live_grants: live,
            revoked_grants: inner.grants.len() - live,
            clients: inner.clients.len(),
            ..inner.counts
        }
    }

    /// A new access token, and the members of the response that describe it.
    pub(super) fn issue(&self, mut access: AccessToken) -> (String, Value) {
        let switches = self.switches();
        access.until = Instant::now() + Duration::from_secs_f64(switches.lifetime.max(0.0));
        if let Some(scope) = &switches.granted_scope {
            access.scope.clone_from(scope);
        }
        let token = match switches.jwt {
            true => {
                let audience = access.audience.as_ref().unwrap_or(&access.client);
                let more = json!({"scope": access.scope, "client_id": access.client});
                self.jwt("at+jwt", &access.subject, audience, &more)
            }
            false => signing::random("access-"),
        };
        let mut answer = json!({"access_token": token, "token_type": switches.token_type});
        if !access.scope.is_empty() {
            answer["scope"] = json!(access.scope);
        }
        #[allow(clippy::cast_possible_truncation)]
        let seconds = switches.expires_in.unwrap_or_else(|| json!(switches.lifetime as i64));
        if !seconds.is_null() {
            answer["expires_in"] = seconds;
        }
        if let Some(other) = switches.access_token {
            answer["access_token"] = other;
        }
        let mut inner = self.inner();
        inner.secrets.push(token.clone());
        inner.access.insert(token.clone(), access);
        (token, answer)
    }

    /// A new refresh token of a grant, which replaces the last one.
    pub(super) fn issue_refresh(&self, grant: usize) -> Option<String> {
        let refresh = self.switches.borrow().refresh;
        let mut inner = self.inner();
        if refresh == Refresh::Never {
            return None;
        }
        for (known, newest) in inner.refresh.values_mut() {
            *newest &= *known != grant;
        }
        let token = signing::random("refresh-");
        inner.secrets.push(token.clone());
        inner.refresh.insert(token.clone(), (grant, true));
        Some(token)
    }

    pub(super) fn jwt(&self, kind: &str, subject: &str, audience: &str, more: &Value) -> String {
        let switches = self.switches();
        let now = signing::now();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let lifetime = switches.lifetime.max(0.0) as u64;
        let mut claims = json!({"iss": self.issuer, "sub": subject, "aud": audience, "iat": now,
            "exp": now + lifetime, "jti": signing::random("")});
        let more = more.as_object().into_iter().flatten();
        for (name, value) in switches.claims.iter().chain(more) {
            claims[name] = value.clone();
        }
        self.key.sign(kind, &claims)
    }
}

impl Inner {
    /// Requests by path and count, for messages of failed assertions.
    pub(super) fn summary(&self) -> BTreeMap<String, usize> {
        let mut paths = BTreeMap::new();
        for one in &self.seen {
            *paths.entry(format!("{} {} {}", one.method, one.path, one.status)).or_default() += 1;
        }
        paths
    }
}
