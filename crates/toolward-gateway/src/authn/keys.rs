//! The issuer's keys, kept for a while: fetched when they are needed, again when their time is over or
//! a token names one that is not known, and by one task at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::jwk::KeySet;
use crate::http_client::Address;
use crate::http_client::fetch::{self, Document};
use crate::lock::LockUnpoisoned;

/// No set of keys is larger.
const LARGEST: usize = 256 << 10;
/// How long a fetch may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a caller waits for keys whose time is over, before the old ones are used.
const BRIEFLY: Duration = Duration::from_secs(1);
/// Keys are fresh for as long as the issuer says, within these bounds.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(300);
/// A file is cheap to read again.
const OF_FILE: Duration = Duration::from_secs(2);
/// Where the issuer cannot be reached, its keys hold for so long.
const STALE: Duration = Duration::from_secs(3600);
/// After an attempt that failed.
const RETRY: Duration = Duration::from_secs(2);
/// Between two fetches for keys that are not known: whoever makes up key ids must not make us ask.
const PAUSE: Duration = Duration::from_secs(10);

/// Where keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Url(Address),
    File(PathBuf),
}

pub(super) struct Keys {
    source: Source,
    state: Mutex<State>,
    /// Counts the fetches that came to an end.
    fetched: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    set: Option<Arc<KeySet>>,
    /// Grows whenever the set has changed.
    generation: u64,
    /// The latest fetch that succeeded.
    since: Option<Instant>,
    fresh_until: Option<Instant>,
    fetching: bool,
    /// When the latest fetch failed, until one succeeds.
    failed: Option<Instant>,
    /// The latest fetch for a key that was not known.
    missed: Option<Instant>,
}

/// The keys as they are now.
pub(super) struct Held {
    pub(super) set: Arc<KeySet>,
    pub(super) generation: u64,
}

/// Whether a fetch would help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The keys are there and fresh, or a fetch has just failed.
    Nothing,
    /// There are keys, whose time is over.
    Renewal,
    /// There are none.
    First,
}

impl Keys {
    pub(super) fn new(source: Source) -> Keys {
        Keys { source, state: Mutex::default(), fetched: watch::Sender::new(0) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Tells of every fetch that came to an end.
    pub(super) fn read_anew(&self) -> watch::Receiver<u64> {
        self.fetched.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// The keys that may be used now, and whether they should be fetched.
    pub(super) fn held(&self) -> (Option<Held>, Need) {
        let state = self.state();
        let now = Instant::now();
        let usable = state.since.is_some_and(|since| now < since + STALE);
        let held = state.set.clone().filter(|_| usable);
        let held = held.map(|set| Held { set, generation: state.generation });
        let fresh = state.fresh_until.is_some_and(|until| now < until);
        let paused = state.failed.is_some_and(|failed| now < failed + RETRY);
        let need = match &held {
            Some(_) if fresh => Need::Nothing,
            _ if paused && !state.fetching => Need::Nothing,
            Some(_) => Need::Renewal,
            None => Need::First,
        };
        (held, need)
    }

    /// Fetches what is needed, and waits for it as long as it makes sense.
    pub(super) async fn fetch(self: &Arc<Self>, need: Need) {
        let failing = self.state().failed.is_some();
        let wait = match need {
            Need::Nothing => return,
            // An issuer that is away is asked behind the callers' backs.
            Need::Renewal if failing => Duration::ZERO,
            Need::Renewal => BRIEFLY,
            Need::First => PATIENCE,
        };
        self.fetched_within(wait).await;
    }

    /// Fetches because a token names a key that is not known. False where that was done just now.
    pub(super) async fn fetch_unknown(self: &Arc<Self>) -> bool {
        {
            let mut state = self.state();
            let now = Instant::now();
            if !state.fetching && state.missed.is_some_and(|missed| now < missed + PAUSE) {
                return false;
            }
            state.missed = Some(now);
        }
        self.fetched_within(PATIENCE).await;
        true
    }

    async fn fetched_within(self: &Arc<Self>, wait: Duration) {
        let mut fetched = self.fetched.subscribe();
        if !std::mem::replace(&mut self.state().fetching, true) {
            // A task of its own: whoever waits may go away.
            tokio::spawn(self.clone().renew());
        }
        let _ = tokio::time::timeout(wait, fetched.changed()).await;
    }

    async fn renew(self: Arc<Self>) {
        let fetched = match tokio::time::timeout(PATIENCE, self.read()).await {
            Ok(fetched) => fetched,
            Err(_) => Err("there was no answer in time".into()),
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
            }
        }
        drop(state);
        self.fetched.send_modify(|count| *count += 1);
    }

    async fn read(&self) -> Result<(KeySet, Duration), String> {
        match &self.source {
            Source::Url(address) => {
                let Document { status, headers, body } =
                    fetch::get(address, LARGEST).await.map_err(|error| error.to_string())?;
                if status != 200 {
                    return Err(format!("the answer has status {status}"));
                }
                Ok((KeySet::parse(&body, LARGEST)?, fresh_for(headers.get("cache-control"))))
            }
            Source::File(path) => {
                let path = path.clone();
                let read = move || {
                    let found = std::fs::metadata(&path)?;
                    match found.len() > LARGEST as u64 {
                        true => Err(std::io::Error::other("the file is too large")),
                        // A pipe would be waited for.
                        false if !found.is_file() => {
                            Err(std::io::Error::other("it is no regular file"))
                        }
                        false => std::fs::read(&path),
                    }
                };
                let read = tokio::task::spawn_blocking(read).await;
                let body = read.map_err(|error| error.to_string())?.map_err(|e| e.to_string())?;
                Ok((KeySet::parse(&body, LARGEST)?, OF_FILE))
            }
        }
    }
}

/// For how long the issuer says that its keys may be kept.
fn fresh_for(cache_control: Option<&str>) -> Duration {
    let Some(said) = cache_control else { return LONGEST };
    let mut fresh = LONGEST;
    for part in said.split(',').map(str::trim) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return SHORTEST;
        }
        if name.eq_ignore_ascii_case("max-age")
            && let Ok(seconds) = value.trim_matches('"').parse()
        {
            fresh = Duration::from_secs(seconds);
        }
    }
    fresh.clamp(SHORTEST, LONGEST)
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
        // As if it had been fetched in the past, seen from a clock that goes on.
        let ago = |minutes: u64| {
            let then = now.checked_sub(Duration::from_secs(60 * minutes));
            let mut state = keys.state();
            state.since = then;
            state.fresh_until = then.map(|then| then + LONGEST);
            then.is_some()
        };
        keys.state().set = Some(Arc::new(set));
        for (minutes, held, need) in
            [(1, true, Need::Nothing), (6, true, Need::Renewal), (61, false, Need::First)]
        {
            // A machine that has just started has no such past.
            if ago(minutes) {
                let (found, needed) = keys.held();
                assert_eq!((found.is_some(), needed), (held, need), "after {minutes} minutes");
            }
        }
        // Right after a failure nobody waits for another one.
        keys.state().failed = Some(Instant::now());
        assert_eq!(keys.held().1, Need::Nothing);
    }

    #[test]
    fn keys_are_fresh_for_as_long_as_the_issuer_says_within_bounds() {
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
