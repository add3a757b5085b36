//! Which eras a server speaks, as far as that is known. Only what it said is believed for long: one
//! that was silent may have been slow.

use std::time::Duration;

use tokio::time::Instant;
use toolward_wire::Era;

/// For so long a server that refused an era is not asked in it again.
const REFUSED: Duration = Duration::from_secs(3600);
/// For so long one that was silent is not; each time twice as long.
const SILENT: Duration = Duration::from_secs(60);

/// What a search may begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Speaks,
    /// It was never asked, or what was found out means nothing any more.
    Nothing,
    /// It was found not to, a while ago.
    LongAgo,
    /// It was found not to.
    No,
}

#[derive(Debug, Default)]
pub(super) struct Eras([Found; 2]);

#[derive(Debug, Clone, Copy, Default)]
struct Found {
    answer: Answer,
    /// How often in a row it was silent.
    silences: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Unknown,
    Yes,
    Refused {
        until: Instant,
    },
    Silent {
        until: Instant,
    },
}

impl Eras {
    pub(super) fn known(&self, era: Era, now: Instant) -> Known {
        match self.of(era).answer {
            Answer::Unknown => Known::Nothing,
            Answer::Yes => Known::Speaks,
            Answer::Refused { until } | Answer::Silent { until } if now < until => Known::No,
            Answer::Refused { .. } | Answer::Silent { .. } => Known::LongAgo,
        }
    }

    pub(super) fn speaks(&mut self, era: Era) {
        *self.of_mut(era) = Found { answer: Answer::Yes, silences: 0 };
    }

    /// It said that it does not speak an era, or ended when it was asked and speaks the other.
    pub(super) fn refused(&mut self, era: Era, now: Instant) {
        self.of_mut(era).answer = Answer::Refused { until: now + REFUSED };
        let other = self.of_mut(other(era));
        match other.answer {
            // It is there, and must speak something.
            Answer::Silent { .. } => other.answer = Answer::Unknown,
            // What refuses both is asked again before long.
            Answer::Refused { .. } => {
                let soon = Answer::Refused { until: now + SILENT };
                other.answer = soon;
                self.of_mut(era).answer = soon;
            }
            Answer::Unknown | Answer::Yes => {}
        }
    }

    /// It did not answer in an era for as long as it took in the other. One that once did is slow, and
    /// what it said counts for more.
    pub(super) fn silent(&mut self, era: Era, now: Instant) {
        let found = self.of_mut(era);
        match found.answer {
            Answer::Yes => return,
            Answer::Refused { until } if now < until => return,
            _ => {}
        }
        let longer = SILENT * (1 << found.silences.min(6));
        found.answer = Answer::Silent { until: now + longer.min(REFUSED) };
        found.silences += 1;
    }

    fn of(&self, era: Era) -> &Found {
        let [legacy, modern] = &self.0;
        match era {
            Era::Legacy => legacy,
            Era::Modern => modern,
        }
    }

    fn of_mut(&mut self, era: Era) -> &mut Found {
        let [legacy, modern] = &mut self.0;
        match era {
            Era::Legacy => legacy,
            Era::Modern => modern,
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
    fn what_was_refused_is_believed_longer_than_silence() {
        let (mut eras, now) = (Eras::default(), Instant::now());
        assert_eq!(eras.known(Era::Modern, now), Known::Nothing);
        eras.silent(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now), Known::No);
        assert_eq!(eras.known(Era::Modern, now + MINUTE), Known::LongAgo);
        eras.refused(Era::Modern, now);
        eras.silent(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now + 59 * MINUTE), Known::No);
        assert_eq!(eras.known(Era::Modern, now + 60 * MINUTE), Known::LongAgo);
    }

    #[test]
    fn who_is_always_silent_is_asked_less_and_less_often() {
        let (mut eras, now) = (Eras::default(), Instant::now());
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            eras.silent(Era::Modern, now);
            assert_eq!(eras.known(Era::Modern, now + minutes * MINUTE), Known::LongAgo);
            let before = now + minutes * MINUTE - Duration::from_secs(1);
            assert_eq!(eras.known(Era::Modern, before), Known::No);
        }
        eras.speaks(Era::Modern);
        eras.silent(Era::Modern, now);
        assert_eq!(eras.known(Era::Modern, now), Known::Speaks, "it is only slow");
    }

    #[test]
    fn a_sign_of_life_in_one_era_lifts_what_silence_said_of_the_other() {
        let (mut eras, now) = (Eras::default(), Instant::now());
        eras.silent(Era::Modern, now);
        eras.refused(Era::Legacy, now);
        assert_eq!(eras.known(Era::Modern, now), Known::Nothing);
        assert_eq!(eras.known(Era::Legacy, now), Known::No);
    }

    #[test]
    fn what_refuses_both_is_asked_again_before_long() {
        let (mut eras, now) = (Eras::default(), Instant::now());
        eras.refused(Era::Modern, now);
        eras.refused(Era::Legacy, now);
        for era in [Era::Modern, Era::Legacy] {
            assert_eq!(eras.known(era, now), Known::No);
            assert_eq!(eras.known(era, now + MINUTE), Known::LongAgo);
        }
    }
}
