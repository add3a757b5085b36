//! Parses points in time, as written on the command line.

use toolward_config::sanitize;
use toolward_gateway::clock::micros;

use super::clock::Clock;
use crate::exit::Failure;

/// Microseconds since 1970 of `10m` (ago), `2026-07-28` (its midnight), `2026-07-28T09:30` or
/// `2026-07-28T09:30:00Z`. A time without an offset is in the clock's time zone.
pub(crate) fn point(flag: &str, text: &str, clock: &Clock) -> Result<u64, Failure> {
    let local = || match text.len() {
        10 => date(text),
        _ => date(&format!("{text}Z")),
    };
    let of_zone = || local().and_then(|written| clock.to_utc(written));
    let absolute = || date(text).filter(|_| text.len() > 10);
    ago(text, micros()).or_else(absolute).or_else(of_zone).ok_or_else(|| {
        Failure::usage(format!(
            "error: {flag}: `{}` is not a point in time\n  help: write 10m, 2h or 3d (ago), \
             2026-07-28, 2026-07-28T09:30, or 2026-07-28T09:30:00Z",
            sanitize(text)
        ))
    })
}

fn ago(text: &str, now: u64) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    let micros = number.parse::<u64>().ok()?.checked_mul(seconds)?.checked_mul(1_000_000)?;
    Some(now.saturating_sub(micros))
}

/// Microseconds since 1970 of a date, with or without a time.
pub(crate) fn date(text: &str) -> Option<u64> {
    let (day, time) = match text.split_at_checked(10)? {
        (day, "") => (day, None),
        (day, time) => (day, Some(time.strip_prefix(['T', 't', ' '])?)),
    };
    let seconds = i64::try_from(days(day)?).ok()? * 86_400;
    let (of_day, fraction, offset) = time.map_or(Some((0, 0, 0)), clock)?;
    let seconds = u64::try_from(seconds + of_day - offset).ok()?;
    Some(seconds * 1_000_000 + fraction)
}

/// Days since 1970 of `2026-07-28`.
fn days(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let (year, month, day) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, parts.next()?);
    let day = number(day, 2)?;
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if parts.next().is_some() || day == 0 || day > longest || year < 1970 {
        return None;
    }
    // Years are counted from March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(365 * year + year / 4 - year / 100 + year / 400 + of_year - 719_468)
}

/// Seconds of the day, microseconds, and the offset in seconds of `09:30:00.5+02:00`.
fn clock(text: &str) -> Option<(i64, u64, i64)> {
    let zone = text.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = text.split_at(zone);
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
            let offset = i64::try_from(hours * 3600 + minutes * 60).ok()?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            if zone.starts_with('-') { -offset } else { offset }
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.split(':');
    let (hours, minutes) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let seconds = parts.next().map_or(Some(0), |seconds| number(seconds, 2))?;
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let micros: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let of_day = i64::try_from(hours * 3600 + minutes * 60 + seconds).ok()?;
    Some((of_day, micros.parse().ok()?, offset))
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_gateway::audit::line::time;

    #[test]
    fn points_in_time_are_read_as_they_are_written() {
        for (text, expected) in [
            ("2026-07-28", "2026-07-28T00:00:00.000000Z"),
            ("1970-01-01", "1970-01-01T00:00:00.000000Z"),
            ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59.000000Z"),
            ("2000-03-01 00:30:00.25+02:00", "2000-02-29T22:30:00.250000Z"),
            ("2026-12-31T23:00-01:30", "2027-01-01T00:30:00.000000Z"),
        ] {
            assert_eq!(date(text).map(time).as_deref(), Some(expected), "{text}");
        }
        for wrong in [
            "",
            "2026",
            "2026-7-28",
            "2025-02-29",
            "2026-13-01",
            "2026-07-28T",
            "2026-07-28T25:00Z",
            "2026-07-28T09:30:00+2",
            "yesterday",
            "10",
            "-5m",
            "5 parsecs",
        ] {
            assert!(point("--since", wrong, &Clock::new(true)).is_err(), "{wrong}");
        }
        for (local, absolute) in
            [("2026-07-28T09:30", "2026-07-28T09:30Z"), ("2026-07-28", "2026-07-28T00:00Z")]
        {
            let point = |text| point("--since", text, &Clock::new(true)).ok();
            assert!(point(local).is_some() && point(local) == point(absolute), "{local}");
        }
        assert_eq!(ago("90s", 100_000_000), Some(10_000_000));
        assert_eq!(ago("2h", 10_000_000_000), Some(2_800_000_000));
        assert_eq!(ago("1w", 5), Some(0));
    }
}
