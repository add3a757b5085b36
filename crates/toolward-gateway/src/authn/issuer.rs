//! The issuer of JSON Web Tokens, and the validation of its tokens.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::Wrong;
use super::jwk::{Algorithm, NoKey};
use super::jwt::ParsedToken;
use super::keys::{CachedKeys, Keys, Need, Source};
use crate::lock::LockUnpoisoned;

/// Maximum number of validated tokens in the cache.
const MAX_CACHED_TOKENS: usize = 4096;

/// How tokens are validated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The exact value of the `iss` claim.
    pub issuer: String,
    pub keys: Source,
    /// Accepted `aud` claims. If empty, the audience must be the URL of the requested endpoint.
    pub audience: Vec<String>,
    /// The public base URL, before the endpoint's path.
    pub base: String,
    pub algorithms: Vec<Algorithm>,
    pub leeway: Duration,
    /// The claim that names the agent of a JWT that matches no agent's claims.
    pub agent_claim: Option<Box<str>>,
}

pub struct Issuer {
    settings: Settings,
    keys: Arc<Keys>,
}

/// A token with a valid signature and valid claims. Its audience is checked per request, because it
/// depends on the path.
#[derive(Debug)]
pub(super) struct ValidToken<T> {
    pub(super) what: T,
    /// The position of its issuer.
    pub(super) issuer: usize,
    audience: Vec<String>,
    /// In seconds since the Unix epoch.
    pub(super) until: u64,
    generation: u64,
}

impl<T> ValidToken<T> {
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> ValidToken<U> {
        let ValidToken { what, issuer, audience, until, generation } = self;
        ValidToken { what: with(what), issuer, audience, until, generation }
    }
}

impl Issuer {
    pub fn new(settings: Settings) -> Issuer {
        let keys = Arc::new(Keys::new(settings.keys.clone()));
        Issuer { settings, keys }
    }

    /// Shares the keys of another issuer if both have the same source, so that a reload keeps fetched
    /// keys.
    pub fn sharing(mut self, other: &Issuer) -> Issuer {
        if *self.keys.source() == *other.keys.source() {
            self.keys = other.keys.clone();
        }
        self
    }

    /// Whether both read their keys from the same source.
    pub(super) fn has_keys_of(&self, other: &Issuer) -> bool {
        *self.keys.source() == *other.keys.source()
    }

    /// Changes after every fetch of the keys.
    pub(super) fn keys_read(&self) -> watch::Receiver<u64> {
        self.keys.fetches()
    }

    pub fn name(&self) -> &str {
        &self.settings.issuer
    }

    pub(super) fn agent_claim(&self) -> Option<&str> {
        self.settings.agent_claim.as_deref()
    }

    pub(super) fn accepts(&self, algorithm: Algorithm) -> bool {
        self.settings.algorithms.contains(&algorithm)
    }

    /// Fetches the keys before the first token, so that a misconfiguration is logged at startup.
    pub async fn prepare(&self) {
        self.keys.fetch(Need::First).await;
    }

    /// Validates a token. Waits for the keys to be fetched if that could help. `position` is that of the
    /// issuer.
    pub(super) async fn check(
        &self,
        parts: ParsedToken<'_>,
        position: usize,
        now: u64,
    ) -> Result<ValidToken<Map<String, Value>>, Wrong> {
        // These checks need no keys.
        if !self.accepts(parts.algorithm) {
            return Err(Wrong::Algorithm);
        }
        if parts.claims.get("iss").and_then(Value::as_str) != Some(&self.settings.issuer) {
            return Err(Wrong::Issuer);
        }
        let audience = parts.audience()?;
        let wanted = &self.settings.audience;
        if !wanted.is_empty() && !audience.iter().any(|one| wanted.contains(one)) {
            return Err(Wrong::Audience);
        }
        let until = parts.until(now, self.settings.leeway.as_secs())?;
        let (_, need) = self.keys.held();
        self.keys.fetch(need).await;
        let mut signed = self.signed(&parts);
        if signed == Err(Wrong::UnknownKey) && self.keys.fetch_unknown().await {
            signed = self.signed(&parts);
        }
        let generation = signed?;
        Ok(ValidToken { what: parts.claims, issuer: position, audience, until, generation })
    }

    /// Verifies the signature. Returns the generation of the keys that verified it.
    fn signed(&self, parts: &ParsedToken<'_>) -> Result<u64, Wrong> {
        let (held, _) = self.keys.held();
        let CachedKeys { set, generation } = held.ok_or(Wrong::NoKeys)?;
        let key = set.find(parts.key.as_deref(), parts.algorithm).map_err(|why| match why {
            NoKey::Unknown => Wrong::UnknownKey,
            NoKey::Ambiguous => Wrong::AmbiguousKey,
        })?;
        match key.verifies(parts.algorithm, parts.signed, &parts.signature) {
            true => Ok(generation),
            false => Err(Wrong::Signature),
        }
    }

    /// Whether the token's audience covers this path. A token for `/mcp` covers every server.
    pub(super) fn is_for<T>(&self, valid: &ValidToken<T>, path: &str) -> bool {
        let base = self.settings.base.as_str();
        let fits = |audience: &String| {
            let asked = audience.strip_prefix(base).filter(|_| !base.is_empty());
            asked.is_some_and(|asked| asked == path || asked == "/mcp")
        };
        !self.settings.audience.is_empty() || valid.audience.iter().any(fits)
    }
}

/// A cache of validated tokens by their hash, until they expire or the keys change.
pub(super) struct TokenCache<T>(Mutex<HashMap<[u8; 32], Arc<ValidToken<T>>>>);

impl<T> Default for TokenCache<T> {
    fn default() -> Self {
        TokenCache(Mutex::default())
    }
}

impl<T> TokenCache<T> {
    fn all(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<ValidToken<T>>>> {
        self.0.locked()
    }

    pub(super) fn find(
        &self,
        issuers: &[Issuer],
        hash: &[u8; 32],
        now: u64,
    ) -> Option<Arc<ValidToken<T>>> {
        let found = self.all().get(hash)?.clone();
        let (held, need) = issuers.get(found.issuer)?.keys.held();
        let same = held.is_some_and(|held| held.generation == found.generation);
        // Stale keys are refreshed before a token that they verified is accepted again.
        (now < found.until && same && need == Need::Nothing).then_some(found)
    }

    pub(super) fn keep(
        &self,
        hash: [u8; 32],
        valid: ValidToken<T>,
        now: u64,
    ) -> Arc<ValidToken<T>> {
        let valid = Arc::new(valid);
        let mut all = self.all();
        if all.len() >= MAX_CACHED_TOKENS {
            let stale = |one: &ValidToken<T>| {
                one.issuer == valid.issuer && one.generation != valid.generation
            };
            all.retain(|_, one| now < one.until && !stale(one));
            if all.len() >= MAX_CACHED_TOKENS {
                all.clear();
            }
        }
        all.insert(hash, valid.clone());
        valid
    }
}
