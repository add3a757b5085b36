//! An issuer of JSON Web Tokens, and what it must have said for a token to be believed.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::Wrong;
use super::jwk::{Algorithm, NoKey};
use super::jwt::Parts;
use super::keys::{Held, Keys, Need, Source};
use crate::lock::LockUnpoisoned;

/// So many tokens that were found good are remembered.
const MOST_REMEMBERED: usize = 4096;

/// How tokens are checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `iss` claim, to the letter.
    pub issuer: String,
    pub keys: Source,
    /// Accepted `aud` claims; without any, the address that was asked.
    pub audience: Vec<String>,
    /// What stands before the path in an address, as clients write it.
    pub base: String,
    pub algorithms: Vec<Algorithm>,
    pub leeway: Duration,
}

pub struct Issuer {
    settings: Settings,
    keys: Arc<Keys>,
}

/// A token whose signature and claims are right. Whom it is for depends on the address.
#[derive(Debug)]
pub(super) struct Valid<T> {
    pub(super) what: T,
    audience: Vec<String>,
    /// In seconds since 1970.
    pub(super) until: u64,
    generation: u64,
}

impl<T> Valid<T> {
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Valid<U> {
        let Valid { what, audience, until, generation } = self;
        Valid { what: with(what), audience, until, generation }
    }
}

impl Issuer {
    pub fn new(settings: Settings) -> Issuer {
        let keys = Arc::new(Keys::new(settings.keys.clone()));
        Issuer { settings, keys }
    }

    /// The same keys as another issuer's, where both have them from one place: what was fetched stays
    /// known when the configuration is loaded again.
    pub fn sharing(mut self, other: &Issuer) -> Issuer {
        if *self.keys.source() == *other.keys.source() {
            self.keys = other.keys.clone();
        }
        self
    }

    /// Tells whenever the keys were read anew.
    pub(super) fn keys_read(&self) -> watch::Receiver<u64> {
        self.keys.read_anew()
    }

    pub fn name(&self) -> &str {
        &self.settings.issuer
    }

    /// Fetches the keys ahead of the first token, so that a mistake is told at the start.
    pub async fn prepare(&self) {
        self.keys.fetch(Need::First).await;
    }

    /// Checks a token. Keys are fetched where that could help, and waited for.
    pub(super) async fn check(
        &self,
        token: &str,
        now: u64,
    ) -> Result<Valid<Map<String, Value>>, Wrong> {
        let parts = Parts::read(token)?;
        // What is wrong in any case needs no keys.
        if !self.settings.algorithms.contains(&parts.algorithm) {
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
        Ok(Valid { what: parts.claims, audience, until, generation })
    }

    /// Whether the signature is right; gives the generation of the keys that said so.
    fn signed(&self, parts: &Parts<'_>) -> Result<u64, Wrong> {
        let (held, _) = self.keys.held();
        let Held { set, generation } = held.ok_or(Wrong::NoKeys)?;
        let key = set.find(parts.key.as_deref(), parts.algorithm).map_err(|why| match why {
            NoKey::Unknown => Wrong::UnknownKey,
            NoKey::Ambiguous => Wrong::AmbiguousKey,
        })?;
        match key.verifies(parts.algorithm, parts.signed, &parts.signature) {
            true => Ok(generation),
            false => Err(Wrong::Signature),
        }
    }

    /// Whether a token is for this path. One for all servers is for each of them.
    pub(super) fn is_for<T>(&self, valid: &Valid<T>, path: &str) -> bool {
        let base = self.settings.base.as_str();
        let fits = |audience: &String| {
            let asked = audience.strip_prefix(base).filter(|_| !base.is_empty());
            asked.is_some_and(|asked| asked == path || asked == "/mcp")
        };
        !self.settings.audience.is_empty() || valid.audience.iter().any(fits)
    }
}

/// Tokens that were found good, by their hash, until they end or the keys change.
pub(super) struct Remembered<T>(Mutex<HashMap<[u8; 32], Arc<Valid<T>>>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Remembered(Mutex::default())
    }
}

impl<T> Remembered<T> {
    fn all(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<Valid<T>>>> {
        self.0.locked()
    }

    pub(super) fn find(&self, issuer: &Issuer, hash: &[u8; 32], now: u64) -> Option<Arc<Valid<T>>> {
        let found = self.all().get(hash)?.clone();
        let (held, need) = issuer.keys.held();
        let same = held.is_some_and(|held| held.generation == found.generation);
        // Keys whose time is over are looked at again before anything they said is believed.
        (now < found.until && same && need == Need::Nothing).then_some(found)
    }

    pub(super) fn keep(&self, hash: [u8; 32], valid: Valid<T>, now: u64) -> Arc<Valid<T>> {
        let valid = Arc::new(valid);
        let mut all = self.all();
        if all.len() >= MOST_REMEMBERED {
            all.retain(|_, one| now < one.until && one.generation == valid.generation);
            if all.len() >= MOST_REMEMBERED {
                all.clear();
            }
        }
        all.insert(hash, valid.clone());
        valid
    }
}
