//! Rate limits: `100/min`, `5/s burst 10`. The policy only defines them and reports which entries
//! allowed a call; the gateway counts.

use std::fmt;
use std::time::Duration;

/// A rate limit: a number of calls per period, and a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: u64,
    pub per: Per,
    /// The burst size; `None`: the number of calls per period.
    pub burst: Option<u64>,
}

/// A period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    Second,
    Minute,
    Hour,
    Day,
}

impl Per {
    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Per::Second => 1,
            Per::Minute => 60,
            Per::Hour => 3_600,
            Per::Day => 86_400,
        })
    }
}

impl Rate {
    /// The burst size.
    pub fn at_once(self) -> u64 {
        self.burst.unwrap_or(self.count).max(1)
    }

    /// The interval between two calls at the sustained rate. At least a nanosecond.
    pub fn interval_ns(self) -> u64 {
        let stretch = self.per.duration().as_secs() * 1_000_000_000;
        (stretch / self.count.max(1)).max(1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => "s",
            Per::Minute => "min",
            Per::Hour => "h",
            Per::Day => "day",
        };
        write!(f, "{}/{per}", self.count)?;
        match self.burst {
            Some(burst) => write!(f, " burst {burst}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_reads_as_it_was_written_and_never_divides_to_nothing() {
        let rate = Rate { count: 5, per: Per::Second, burst: Some(10) };
        assert_eq!((rate.to_string().as_str(), rate.at_once()), ("5/s burst 10", 10));
        assert_eq!(rate.interval_ns(), 200_000_000);
        let day = Rate { count: 1000, per: Per::Day, burst: None };
        assert_eq!((day.to_string().as_str(), day.at_once()), ("1000/day", 1000));
        let often = Rate { count: u64::MAX, per: Per::Second, burst: None };
        assert_eq!(often.interval_ns(), 1);
    }
}
