//! The two Lua scripts: their requests and replies.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value, cmd};

use super::{ConsumedUnits, Outcome, Unreachable};
use crate::guard::store::counters::{Full, Pace};

const TAKE: &str = include_str!("take.lua");
const GIVE_BACK: &str = include_str!("give_back.lua");
/// A script and its SHA-1, by which a server caches it.
pub(super) struct NamedScript {
    text: &'static str,
    hash: String,
}

pub(super) static TAKE_SCRIPT: LazyLock<NamedScript> = LazyLock::new(|| NamedScript::new(TAKE));
pub(super) static GIVE_BACK_SCRIPT: LazyLock<NamedScript> =
    LazyLock::new(|| NamedScript::new(GIVE_BACK));

impl NamedScript {
    fn new(text: &'static str) -> NamedScript {
        NamedScript { text, hash: Script::new(text).get_hash().into() }
    }

    /// Loads the script into a server, or into all servers of a cluster.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }

    /// Runs the script, by its hash or with its source.
    pub(super) fn run(&self, whole: bool, arguments: &Arguments) -> Cmd {
        let (verb, script) =
            if whole { ("EVAL", self.text) } else { ("EVALSHA", self.hash.as_str()) };
        let mut run = cmd(verb);
        run.arg(script).arg(arguments.keys.len());
        for key in &arguments.keys {
            run.arg(&**key);
        }
        run.arg(&arguments.numbers);
        run
    }
}

pub(super) struct Arguments {
    keys: Vec<Arc<str>>,
    numbers: Vec<u64>,
}

/// Arguments to consume one unit of each limit, unless the server's time is past `valid_until` (0:
/// unknown).
pub(super) fn take(wanted: &[(Arc<str>, Pace)], valid_until: u64) -> Arguments {
    let paces = wanted.iter().flat_map(|(_, pace)| micros(*pace));
    Arguments {
        keys: wanted.iter().map(|(key, _)| key.clone()).collect(),
        numbers: paces.chain([valid_until]).collect(),
    }
}

pub(super) fn give_back(ConsumedUnits(taken): &ConsumedUnits) -> Arguments {
    Arguments {
        keys: taken.iter().map(|(key, ..)| key.clone()).collect(),
        numbers: taken.iter().flat_map(|(_, each, until)| [*each, *until]).collect(),
    }
}

/// Interval and tolerance in microseconds: Lua numbers are not exact in nanoseconds.
fn micros(pace: Pace) -> [u64; 2] {
    let interval = pace.interval.div_ceil(1_000);
    let at_once = pace.tolerance / pace.interval.max(1);
    // Lua numbers are exact up to 2^53.
    [interval, interval.saturating_mul(at_once).min(1 << 52)]
}

/// An estimate of the server's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// In microseconds, at or before `at`; 0 if unknown.
    time: u64,
    at: Instant,
    /// The duration of the round trip that measured it.
    slack: Duration,
}

impl Clock {
    /// Reads the clock from the reply to `TIME`.
    pub(super) fn of(reply: &Value, sent: Instant) -> Clock {
        let time = match numbers(reply).as_deref() {
            Some([seconds, micros]) => seconds.saturating_mul(1_000_000).saturating_add(*micros),
            _ => 0,
        };
        Clock::new(time, sent)
    }

    fn new(time: u64, sent: Instant) -> Clock {
        let at = Instant::now();
        Clock { time, at, slack: at.saturating_duration_since(sent) }
    }

    /// Updates the clock from a reply to [`take`].
    pub(super) fn learn(&mut self, reply: &Value, sent: Instant) {
        if let Some([_, time, ..]) = numbers(reply).as_deref() {
            *self = Clock::new(*time, sent);
        }
    }

    /// The server's time after `wait`; 0 if unknown.
    pub(super) fn after(&self, wait: Duration) -> u64 {
        let ahead = self.at.elapsed() + self.slack + wait;
        match self.time {
            0 => 0,
            time => time.saturating_add(u64::try_from(ahead.as_micros()).unwrap_or(u64::MAX / 2)),
        }
    }
}

/// Parses the reply to [`take`].
pub(super) fn outcome(wanted: Vec<(Arc<str>, Pace)>, reply: &Value) -> Outcome {
    let unexpected = || Unreachable("unexpected reply from Redis".into());
    match numbers(reply).ok_or_else(unexpected)?.as_slice() {
        [2, _] => Err(Unreachable("it was too slow".into())),
        [1, _, until @ ..] if until.len() == wanted.len() => {
            let taken = wanted.into_iter().zip(until);
            let taken = taken.map(|((key, pace), until)| (key, micros(pace)[0], *until));
            Ok(Ok(ConsumedUnits(taken.collect())))
        }
        [0, _, which, wait] if *which > 0 => {
            let which = usize::try_from(which - 1).unwrap_or(usize::MAX);
            Ok(Err(Full { which, wait: wait.saturating_mul(1_000) }))
        }
        _ => Err(unexpected()),
    }
}

/// The numbers of a list; scripts return large ones as strings.
fn numbers(reply: &Value) -> Option<Vec<u64>> {
    let Value::Array(parts) = reply else { return None };
    let number = |part: &Value| match part {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    };
    parts.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_in_microseconds_is_never_faster() {
        let pace = Pace { interval: 142_857_142, tolerance: 142_857_142 * 7 };
        assert_eq!(micros(pace), [142_858, 142_858 * 7]);
        let huge = Pace { interval: u64::MAX / 2, tolerance: u64::MAX };
        assert!(micros(huge)[1] <= 1 << 52);
    }

    #[test]
    fn only_the_answer_that_was_asked_for_counts() {
        let wanted = || vec![("k".into(), Pace { interval: 1_000, tolerance: 5_000 })];
        let list = |numbers: &[i64]| Value::Array(numbers.iter().map(|n| Value::Int(*n)).collect());
        assert!(outcome(wanted(), &list(&[1, 5, 99])).unwrap().is_ok());
        let text = |text: &str| Value::BulkString(text.into());
        let as_text = Value::Array(vec![Value::Int(1), text("5"), text("99")]);
        assert!(outcome(wanted(), &as_text).unwrap().is_ok());
        let full = outcome(wanted(), &list(&[0, 5, 1, 7])).unwrap().unwrap_err();
        assert_eq!(full, Full { which: 0, wait: 7_000 });
        for strange in [
            list(&[1]),
            list(&[1, 5]),
            list(&[1, 5, 2, 3]),
            list(&[]),
            list(&[2, 1]),
            list(&[1, 5, -1]),
            Value::Okay,
            Value::Nil,
        ] {
            assert!(outcome(wanted(), &strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn the_clock_is_unknown_until_a_reply_has_it() {
        let now = Instant::now();
        let mut clock = Clock::of(&Value::Okay, now);
        assert_eq!(clock.after(Duration::from_secs(1)), 0);
        clock.learn(&Value::Array(vec![Value::Int(2), Value::Int(7_000_000)]), now);
        assert!(clock.after(Duration::from_secs(1)) >= 8_000_000);
        let time = Value::Array(vec![Value::BulkString("3".into()), Value::BulkString("5".into())]);
        assert!(Clock::of(&time, now).after(Duration::ZERO) >= 3_000_005);
    }
}
