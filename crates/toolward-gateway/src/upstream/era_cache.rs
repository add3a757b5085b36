//! Cache of the protocol versions that a server supports.
//!
//! A rejection is cached for long. A timeout is cached only briefly: the server may have been slow. A
//! rejection that was remembered from an earlier run is as good as one that was just received, until
//! the server turns out not to support the other protocol version.

use std::time::Duration;

use tokio::time::Instant;
use toolward_wire::Era;

use super::era_memory::MAX_AGE;

/// How long a server over HTTP that rejected a protocol version is not tried in it again.
const REJECTION_TTL: Duration = Duration::from_secs(3600);
/// The same for a server on stdio, where it would need another process.
const STDIO_REJECTION_TTL: Duration = MAX_AGE;
/// How long a server that did not respond is not tried again; doubles each time.
const TIMEOUT_TTL: Duration = Duration::from_secs(60);

/// The cached knowledge of a protocol version when a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EraSupport {
    Supported,
    /// It was never tried, or the cached result is void.
    Unknown,
    /// It is not supported, but the cache entry is stale.
    Stale,
    /// It is not supported.
    Unsupported,
}

#[derive(Debug)]
pub(super) struct Eras {
    legacy: CachedAnswer,
    modern: CachedAnswer,
    rejection_ttl: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct CachedAnswer {
    answer: Answer,
    /// The number of consecutive timeouts.
    silences: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Unknown,
    Yes,
    /// The server ended when it was tried, perhaps because of the protocol version.
    Ended,
    Refused {
        until: Instant,
        /// By an earlier run of the gateway.
        remembered: bool,
    },
    Silent {
        until: Instant,
    },
    /// The server supports it, but its process serves the other one, which it was asked last.
    Displaced {
        until: Instant,
    },
}

impl Eras {
    /// `only`: the only protocol version that the server supports, as remembered for this long.
    pub(super) fn new(is_stdio: bool, only: Option<(Era, Duration)>) -> Eras {
        let rejection_ttl = if is_stdio { STDIO_REJECTION_TTL } else { REJECTION_TTL };
        let (legacy, modern) = Default::default();
        let mut eras = Eras { legacy, modern, rejection_ttl };
        if let Some((only, age)) = only {
            let until = Instant::now() + rejection_ttl.saturating_sub(age);
            eras.of_mut(other(only)).answer = Answer::Refused { until, remembered: true };
        }
        eras
    }

    /// The only protocol version that the server supports, if there is only one.
    pub(super) fn only(&self) -> Option<Era> {
        let is_only = |era: &Era| {
            let rejected = matches!(self.of(other(*era)).answer, Answer::Refused { .. });
            rejected && self.of(*era).answer == Answer::Yes
        };
        [Era::Legacy, Era::Modern].into_iter().find(is_only)
    }

    /// Discards what was remembered, because it may be wrong; returns whether there was anything.
    pub(super) fn doubt(&mut self) -> bool {
        let mut any = false;
        for cached in [&mut self.legacy, &mut self.modern] {
            if matches!(cached.answer, Answer::Refused { remembered: true, .. }) {
                cached.answer = Answer::Unknown;
                any = true;
            }
        }
        any
    }

    pub(super) fn known(&self, era: Era, now: Instant) -> EraSupport {
        match self.of(era).answer {
            Answer::Unknown | Answer::Ended => EraSupport::Unknown,
            Answer::Yes => EraSupport::Supported,
            Answer::Refused { until, .. }
            | Answer::Silent { until }
            | Answer::Displaced { until }
                if now < until =>
            {
                EraSupport::Unsupported
            }
            Answer::Refused { .. } | Answer::Silent { .. } | Answer::Displaced { .. } => {
                EraSupport::Stale
            }
        }
    }

    pub(super) fn speaks(&mut self, era: Era, now: Instant) {
        *self.of_mut(era) = CachedAnswer { answer: Answer::Yes, silences: 0 };
        if self.of(other(era)).answer == Answer::Ended {
            self.refused(other(era), now);
        }
    }

    /// The server ended when it was tried in a protocol version. That is a rejection if it supports
    /// the other.
    pub(super) fn ended(&mut self, era: Era, now: Instant) {
        match (self.of(era).answer, self.of(other(era)).answer) {
            (Answer::Unknown | Answer::Ended, Answer::Yes) => self.refused(era, now),
            (Answer::Unknown, _) => self.of_mut(era).answer = Answer::Ended,
            // It failed for another reason.
            _ => {}
        }
    }

    /// The server rejected a protocol version.
    pub(super) fn refused(&mut self, era: Era, now: Instant) {
        let refused = |until| Answer::Refused { until, remembered: false };
        self.of_mut(era).answer = refused(now + self.rejection_ttl);
        let other = self.of_mut(other(era));
        match other.answer {
            // The server is running, and must support some protocol version.
            Answer::Silent { .. } | Answer::Refused { remembered: true, .. } => {
                other.answer = Answer::Unknown;
            }
            // A server that rejects both is tried again soon.
            Answer::Refused { .. } => {
                other.answer = refused(now + TIMEOUT_TTL);
                self.of_mut(era).answer = refused(now + TIMEOUT_TTL);
            }
            Answer::Displaced { .. } => other.answer = Answer::Unknown,
            Answer::Unknown | Answer::Yes | Answer::Ended => {}
        }
    }

    /// The server's process supports both protocol versions and serves the other one. Clients use that, too: this one
    /// would need a second process, of a server that takes long to start. It is not remembered for later runs, in
    /// which the server may start faster.
    pub(super) fn displaced(&mut self, era: Era, now: Instant) {
        self.of_mut(era).answer = Answer::Displaced { until: now + self.rejection_ttl };
    }

    /// The server did not respond in a protocol version within the time that the other one took. A
    /// server that responded in it before is only slow, and an earlier response takes precedence.
    pub(super) fn silent(&mut self, era: Era, now: Instant) {
        let found = self.of_mut(era);
        match found.answer {
            Answer::Yes => return,
            Answer::Refused { until, .. } | Answer::Displaced { until } if now < until => return,
            _ => {}
        }
        let longer = TIMEOUT_TTL * (1 << found.silences.min(6));
        found.answer = Answer::Silent { until: now + longer.min(REJECTION_TTL) };
        found.silences += 1;
    }

    fn of(&self, era: Era) -> &CachedAnswer {
        match era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }

    fn of_mut(&mut self, era: Era) -> &mut CachedAnswer {
        match era {
            Era::Legacy => &mut self.legacy,
            Era::Modern => &mut self.modern,
        }
    }
}

pub(super) fn other(era: Era) -> Era {
    match era {
        Era::Legacy => Era::Modern,
        Era::Modern => Era::Legacy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_rejection_is_cached_longer_than_a_timeout() {
        let (mut eras, now) = (Eras::new(false, None), Instant::now());
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unknown);
        eras.silent(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unsupported);
        assert_eq!(eras.known(Era::Modern, now + MINUTE), EraSupport::Stale);
        eras.refused(Era::Modern, now);
        eras.silent(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now + 59 * MINUTE), EraSupport::Unsupported);
        assert_eq!(eras.known(Era::Modern, now + 60 * MINUTE), EraSupport::Stale);
    }

    #[test]
    fn a_server_that_never_responds_is_tried_with_backoff() {
        let (mut eras, now) = (Eras::new(false, None), Instant::now());
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            eras.silent(Era::Modern, now);
            assert_eq!(eras.known(Era::Modern, now + minutes * MINUTE), EraSupport::Stale);
            let before = now + minutes * MINUTE - Duration::from_secs(1);
            assert_eq!(eras.known(Era::Modern, before), EraSupport::Unsupported);
        }
        eras.speaks(Era::Modern, now);
        eras.silent(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Supported, "the server is only slow");
    }

    #[test]
    fn a_displaced_era_is_not_used_and_not_remembered_as_rejected() {
        let (mut eras, now) = (Eras::new(true, None), Instant::now());
        eras.displaced(Era::Modern, now);
        eras.speaks(Era::Legacy, now);
        assert_eq!(eras.known(Era::Modern, now + 60 * MINUTE), EraSupport::Unsupported);
        assert_eq!(eras.only(), None);
        // The process no longer serves the other.
        eras.refused(Era::Legacy, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unknown);
    }

    #[test]
    fn a_response_in_one_era_clears_a_timeout_in_the_other() {
        let (mut eras, now) = (Eras::new(false, None), Instant::now());
        eras.silent(Era::Modern, now);
        eras.refused(Era::Legacy, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unknown);
        assert_eq!(eras.known(Era::Legacy, now), EraSupport::Unsupported);
    }

    #[test]
    fn a_server_that_rejects_both_is_tried_again_soon() {
        let (mut eras, now) = (Eras::new(false, None), Instant::now());
        eras.refused(Era::Modern, now);
        eras.refused(Era::Legacy, now);
        for era in [Era::Modern, Era::Legacy] {
            assert_eq!(eras.known(era, now), EraSupport::Unsupported);
            assert_eq!(eras.known(era, now + MINUTE), EraSupport::Stale);
        }
    }

    #[test]
    fn a_remembered_rejection_is_void_if_the_other_era_is_rejected() {
        let (mut eras, now) = (Eras::new(true, Some((Era::Legacy, MINUTE))), Instant::now());
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unsupported);
        assert_eq!(eras.only(), None, "it is not confirmed");
        eras.refused(Era::Legacy, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unknown);
        eras.speaks(Era::Modern, now);
        assert_eq!(eras.only(), Some(Era::Modern));
    }

    #[test]
    fn a_remembered_rejection_can_be_doubted_once() {
        let mut eras = Eras::new(true, Some((Era::Modern, MINUTE)));
        assert!(eras.doubt() && !eras.doubt());
        assert_eq!(eras.known(Era::Legacy, Instant::now()), EraSupport::Unknown);
    }

    #[test]
    fn a_server_that_ends_in_one_era_and_responds_in_the_other_rejects_the_first() {
        let (mut eras, now) = (Eras::new(true, None), Instant::now());
        eras.ended(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unknown);
        eras.speaks(Era::Legacy, now);
        assert_eq!(eras.known(Era::Modern, now), EraSupport::Unsupported);
        assert_eq!(eras.only(), Some(Era::Legacy));
    }
}
