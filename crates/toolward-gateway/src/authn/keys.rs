//! Cache of the issuer's keys: fetched on demand, refreshed when stale or when a token names an unknown
//! key, by one task at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::jwk::KeySet;
use crate::http_client::Address;
use crate::http_client::fetch::{self, Document, Request};
use crate::lock::LockUnpoisoned;
use crate::login::discovery::server_metadata;
use crate::login::network::Network;

/// Maximum size of a key set.
const MAX_KEY_SET_BYTES: usize = 256 << 10;
/// Timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a caller waits for stale keys to be refreshed before the cached ones are used.
const REFRESH_WAIT: Duration = Duration::from_secs(1);
/// Keys are fresh as long as the issuer's `Cache-Control` allows, within these bounds.
const MIN_FRESH: Duration = Duration::from_secs(30);
const MAX_FRESH: Duration = Duration::from_secs(300);
/// Keys from a file are fresh for this long, because a file is cheap to read.
const FILE_FRESH: Duration = Duration::from_secs(2);
/// How long cached keys are used while the issuer is unreachable.
const MAX_STALE: Duration = Duration::from_secs(3600);
/// Interval between attempts after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum interval between fetches for unknown keys, so that invented key ids cannot cause requests to
/// the issuer.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(10);

/// How long the address of an issuer's keys is used before its metadata is read again.
const MAX_DISCOVERED: Duration = Duration::from_secs(3600);

/// The source of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The address in the metadata of this issuer.
    Issuer(String),
    Url(Address),
    File(PathBuf),
}

pub(super) struct Keys {
    source: Source,
    state: Mutex<KeyState>,
    /// The number of completed fetches.
    fetched: watch::Sender<u64>,
}

#[derive(Default)]
struct KeyState {
    set: Option<Arc<KeySet>>,
    /// Incremented when the set changes.
    generation: u64,
    /// The last successful fetch.
    since: Option<Instant>,
    fresh_until: Option<Instant>,
    fetching: bool,
    /// When the last fetch failed; reset by a successful one.
    failed: Option<Instant>,
    /// The last fetch for an unknown key.
    missed: Option<Instant>,
    /// The address of the keys in the issuer's metadata, and when it was read. Reset by a failed fetch.
    discovered: Option<(Discovered, Instant)>,
}

/// The location of an issuer's keys, from its metadata.
#[derive(Clone)]
struct Discovered {
    network: Network,
    url: String,
}

/// The current keys.
pub(super) struct CachedKeys {
    pub(super) set: Arc<KeySet>,
    pub(super) generation: u64,
}

/// Whether a fetch would help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The keys are fresh, or a fetch has just failed.
    Nothing,
    /// The keys are stale.
    Renewal,
    /// There are no keys.
    First,
}

impl Keys {
    pub(super) fn new(source: Source) -> Keys {
        Keys { source, state: Mutex::default(), fetched: watch::Sender::new(0) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Changes after every fetch.
    pub(super) fn fetches(&self) -> watch::Receiver<u64> {
        self.fetched.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.locked()
    }

    /// The keys that may be used now, and whether they should be fetched.
    pub(super) fn held(&self) -> (Option<CachedKeys>, Need) {
        let state = self.state();
        let now = Instant::now();
        let usable = state.since.is_some_and(|since| now < since + MAX_STALE);
        let held = state.set.clone().filter(|_| usable);
        let held = held.map(|set| CachedKeys { set, generation: state.generation });
        let fresh = state.fresh_until.is_some_and(|until| now < until);
        let paused = state.failed.is_some_and(|failed| now < failed + RETRY_INTERVAL);
        let need = match &held {
            Some(_) if fresh => Need::Nothing,
            _ if paused && !state.fetching => Need::Nothing,
            Some(_) => Need::Renewal,
            None => Need::First,
        };
        (held, need)
    }

    /// Fetches the keys if needed, and waits for them as long as it makes sense.
    pub(super) async fn fetch(self: &Arc<Self>, need: Need) {
        let failing = self.state().failed.is_some();
        let wait = match need {
            Need::Nothing => return,
            // While the issuer is failing, keys are refreshed in the background.
            Need::Renewal if failing => Duration::ZERO,
            Need::Renewal => REFRESH_WAIT,
            Need::First => FETCH_TIMEOUT,
        };
        self.fetched_within(wait).await;
    }

    /// Fetches the keys because a token names an unknown key. False if that was done recently.
    pub(super) async fn fetch_unknown(self: &Arc<Self>) -> bool {
        {
            let mut state = self.state();
            let now = Instant::now();
            if !state.fetching
                && state.missed.is_some_and(|missed| now < missed + UNKNOWN_KEY_INTERVAL)
            {
                return false;
            }
            state.missed = Some(now);
        }
        self.fetched_within(FETCH_TIMEOUT).await;
        true
    }

    async fn fetched_within(self: &Arc<Self>, wait: Duration) {
        let mut fetched = self.fetched.subscribe();
        if !std::mem::replace(&mut self.state().fetching, true) {
            // In a separate task, because the waiting caller may disconnect.
            tokio::spawn(self.clone().renew());
        }
        let _ = tokio::time::timeout(wait, fetched.changed()).await;
    }

    async fn renew(self: Arc<Self>) {
        let fetched = match tokio::time::timeout(FETCH_TIMEOUT, self.read()).await {
            Ok(fetched) => fetched,
            Err(_) => Err("the request timed out".into()),
        };
        let mut state = self.state();
        state.fetching = false;
        match fetched {
            Ok((set, fresh)) => {
                let now = Instant::now();
                if state.failed.take().is_some() {
                    tracing::info!(target: "authn", "identity.jwt: the issuer's keys are available again");
                }
                if state.set.as_deref() != Some(&set) {
                    if set.is_empty() {
                        let why = "the issuer has no key; no JWT is accepted";
                        tracing::error!(target: "authn", "identity.jwt: {why}");
                    }
                    state.set = Some(Arc::new(set));
                    state.generation += 1;
                }
                state.since = Some(now);
                state.fresh_until = Some(now + fresh);
            }
            Err(why) => {
                if state.failed.is_none() {
                    let then = match state.set {
                        Some(_) => "the cached keys are used for up to one hour",
                        None => "no JWT is accepted",
                    };
                    let failed = "the issuer's keys cannot be fetched";
                    tracing::error!(target: "authn", "identity.jwt: {failed}: {why}; {then}");
                }
                state.failed = Some(Instant::now());
                state.discovered = None;
            }
        }
        drop(state);
        self.fetched.send_modify(|count| *count += 1);
    }

    async fn read(&self) -> Result<(KeySet, Duration), String> {
        match &self.source {
            Source::Issuer(issuer) => {
                let Discovered { network, url } = self.discover(issuer).await?;
                key_document(network.send(&url, Request::get(MAX_KEY_SET_BYTES)).await?)
            }
            Source::Url(address) => {
                let fetched = fetch::get(address, MAX_KEY_SET_BYTES).await;
                key_document(fetched.map_err(|error| error.to_string())?)
            }
            Source::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || key_file(&path)).await;
                Ok((read.map_err(|error| error.to_string())??, FILE_FRESH))
            }
        }
    }
}

impl Keys {
    /// The location of the keys, from the issuer's metadata. The metadata is trusted as far as the issuer: it
    /// cannot refer to a network that is closer to the gateway than the issuer itself.
    async fn discover(&self, issuer: &str) -> Result<Discovered, String> {
        let known = self.state().discovered.clone();
        if let Some((known, _)) = known.filter(|(_, since)| since.elapsed() < MAX_DISCOVERED) {
            return Ok(known);
        }
        let address = Address::parse(issuer)?;
        let network = Network::unlimited(&address, None).limited_to(&address).await?;
        let metadata = server_metadata(&network, issuer).await.map_err(|error| error.why)?;
        let url = metadata.jwks_uri.ok_or("the issuer's metadata has no `jwks_uri`")?;
        let found = Discovered { network, url };
        self.state().discovered = Some((found.clone(), Instant::now()));
        Ok(found)
    }
}

fn key_document(fetched: Document) -> Result<(KeySet, Duration), String> {
    let Document { status, headers, body } = fetched;
    if status != 200 {
        return Err(format!("the response has status {status}"));
    }
    Ok((KeySet::parse(&body, MAX_KEY_SET_BYTES)?, fresh_for(headers.get("cache-control"))))
}

/// Reads a key set from a file.
fn key_file(path: &Path) -> Result<KeySet, String> {
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if found.len() > MAX_KEY_SET_BYTES as u64 {
        return Err("the file is too large".into());
    }
    // Reading a pipe could block.
    if !found.is_file() {
        return Err("it is not a regular file".into());
    }
    let body = std::fs::read(path).map_err(|error| error.to_string())?;
    KeySet::parse(&body, MAX_KEY_SET_BYTES)
}

/// Checks that a file is a key set. It may be empty.
pub fn check_key_file(path: &Path) -> Result<(), String> {
    key_file(path).map(drop)
}

/// How long keys are fresh according to `Cache-Control`.
fn fresh_for(cache_control: Option<&str>) -> Duration {
    let Some(said) = cache_control else { return MAX_FRESH };
    let mut fresh = MAX_FRESH;
    for part in said.split(',').map(str::trim) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return MIN_FRESH;
        }
        if name.eq_ignore_ascii_case("max-age")
            && let Ok(seconds) = value.trim_matches('"').parse()
        {
            fresh = Duration::from_secs(seconds);
        }
    }
    fresh.clamp(MIN_FRESH, MAX_FRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_for_an_hour_where_the_issuer_is_away_and_no_longer() {
        let keys = Keys::new(Source::File("missing".into()));
        assert_eq!(keys.held().1, Need::First);
        let set = KeySet::parse(b"{\"keys\":[]}", 100).unwrap();
        let now = Instant::now();
        // As if it had been fetched in the past.
        let ago = |minutes: u64| {
            let then = now.checked_sub(Duration::from_secs(60 * minutes));
            let mut state = keys.state();
            state.since = then;
            state.fresh_until = then.map(|then| then + MAX_FRESH);
            then.is_some()
        };
        keys.state().set = Some(Arc::new(set));
        for (minutes, held, need) in
            [(1, true, Need::Nothing), (6, true, Need::Renewal), (61, false, Need::First)]
        {
            // A machine that has just booted has no such past.
            if ago(minutes) {
                let (found, needed) = keys.held();
                assert_eq!((found.is_some(), needed), (held, need), "after {minutes} minutes");
            }
        }
        // Right after a failure, no caller waits for another fetch.
        keys.state().failed = Some(Instant::now());
        assert_eq!(keys.held().1, Need::Nothing);
    }

    #[test]
    fn keys_are_cached_for_the_issuers_lifetime_within_bounds() {
        for (said, seconds) in [
            (None, 300),
            (Some("public, max-age=120"), 120),
            (Some("MAX-AGE=\"90\""), 90),
            (Some("max-age=0"), 30),
            (Some("no-store"), 30),
            (Some("max-age=120, no-cache"), 30),
            (Some("max-age=999999"), 300),
            (Some("max-age=-5"), 300),
            (Some("private"), 300),
        ] {
            assert_eq!(fresh_for(said), Duration::from_secs(seconds), "{said:?}");
        }
    }
}
