//! Local time, or UTC with `--utc`.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The zone in which times are shown and read.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    zone: TimeZone,
    utc: bool,
}

/// The format of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// `2026-11-17T14:36:32.454+01:00`
    Full,
    /// `14:36:32`, or `11-17 14:36` on another day.
    Short,
}

impl Clock {
    pub(crate) fn new(utc: bool) -> Clock {
        let zone = if utc { TimeZone::UTC } else { TimeZone::system() };
        Clock { zone, utc }
    }

    /// Formats the time of a record. A value that is not a time is returned unchanged.
    pub(crate) fn show(&self, time: &str, precision: Precision) -> String {
        match time.parse::<Timestamp>() {
            Ok(time) => self.format(&time.to_zoned(self.zone.clone()), precision),
            Err(_) => time.into(),
        }
    }

    /// The width of full times. Historical offsets with seconds are wider.
    pub(crate) fn full_width(&self) -> usize {
        if self.utc {
            "2026-11-17T14:36:32.454Z".len()
        } else {
            "2026-11-17T14:36:32.454+01:00".len()
        }
    }

    fn format(&self, time: &Zoned, precision: Precision) -> String {
        let format = match precision {
            Precision::Full if self.utc => "%Y-%m-%dT%H:%M:%S.%3fZ",
            Precision::Full => "%Y-%m-%dT%H:%M:%S.%3f%:z",
            Precision::Short => {
                let today = Timestamp::now().to_zoned(self.zone.clone()).date();
                if time.date() == today { "%H:%M:%S" } else { "%m-%d %H:%M" }
            }
        };
        time.strftime(format).to_string()
    }

    /// Converts a local date and time, given as if it were UTC, to microseconds since 1970.
    pub(crate) fn to_utc(&self, micros: u64) -> Option<u64> {
        let written = Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()?;
        let written = written.to_zoned(TimeZone::UTC).datetime();
        let here = self.zone.to_ambiguous_timestamp(written).compatible().ok()?;
        u64::try_from(here.as_microsecond()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> Clock {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        Clock { zone, utc: false }
    }

    #[test]
    fn times_are_shown_in_the_zone_and_as_short_as_there_is_room() {
        let (summer, winter) = ("2026-07-28T22:30:00.123456Z", "2026-01-01T00:00:00.000000Z");
        let (berlin, utc) = (berlin(), Clock::new(true));
        for (clock, time, precision, shown) in [
            (&berlin, summer, Precision::Full, "2026-07-29T00:30:00.123+02:00"),
            (&utc, summer, Precision::Full, "2026-07-28T22:30:00.123Z"),
            (&berlin, winter, Precision::Full, "2026-01-01T01:00:00.000+01:00"),
            (&berlin, summer, Precision::Short, "07-29 00:30"),
            (&utc, "no time", Precision::Short, "no time"),
        ] {
            assert_eq!(clock.show(time, precision), shown);
        }
    }

    #[test]
    fn a_date_is_one_of_the_zone() {
        let midnight = super::super::time::date("2026-07-28").unwrap();
        let hour = 3_600_000_000;
        assert_eq!(berlin().to_utc(midnight), Some(midnight - 2 * hour));
        assert_eq!(Clock::new(true).to_utc(midnight), Some(midnight));
    }
}
