//! Records as sinks need them.

use serde_json::Value;

use crate::audit::line::{hash, hex};
use crate::audit::read::opening;
use crate::audit::segment::Head;

/// Whole lines of one stream, in order.
#[derive(Debug)]
pub(super) struct Records {
    bytes: Vec<u8>,
    end: Head,
    /// The name of the stream.
    pub(super) stream: String,
}

/// One record. Text of a file that was tampered with is still delivered: a sink is a copy.
#[derive(Debug)]
pub(super) struct Record<'r> {
    pub(super) text: &'r str,
    pub(super) id: String,
    /// Microseconds since 1970.
    pub(super) micros: u64,
    pub(super) kind: &'r str,
}

impl Records {
    pub(super) fn new(bytes: Vec<u8>, end: Head, stream: String) -> Records {
        // The log contains only ASCII, unless something else wrote to it.
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => text.into_bytes(),
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into_bytes(),
        };
        Records { bytes, end, stream }
    }

    pub(super) fn end(&self) -> Head {
        self.end
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The lines with their newlines.
    pub(super) fn text(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        memchr::memchr_iter(b'\n', &self.bytes).count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        let text = std::str::from_utf8(&self.bytes).unwrap_or_default();
        text.lines().map(Record::new)
    }

    /// When the first record was written.
    pub(super) fn written_micros(&self) -> u64 {
        self.iter().next().map_or(0, |record| record.micros)
    }
}

impl<'r> Record<'r> {
    fn new(text: &'r str) -> Record<'r> {
        match opening(text.as_bytes()) {
            Some(opening) => {
                let micros = micros_of(opening.time).unwrap_or(0);
                Record { text, id: opening.id.into(), micros, kind: opening.kind }
            }
            // Its hash identifies a line that is not a record.
            None => {
                let id = format!("line-{}", hex(&hash(text.as_bytes())));
                Record { text, id, micros: 0, kind: "unknown" }
            }
        }
    }

    /// The members, if the line is valid JSON.
    pub(super) fn members(&self) -> Value {
        serde_json::from_str(self.text).unwrap_or_default()
    }

    /// Whether it reports something that did not pass: a refusal, a rejection or a gap in the log.
    pub(super) fn is_notable(&self) -> bool {
        matches!(
            self.kind,
            "refusal"
                | "refusals"
                | "turned-away"
                | "gap"
                | "repair"
                | "head"
                | "pin-change"
                | "recovery"
                | "unavailable"
        )
    }
}

/// The microseconds of `2026-07-28T09:30:00.000000Z`.
pub(super) fn micros_of(time: &str) -> Option<u64> {
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<u64>().ok();
    if time.len() != 27 || !time.ends_with('Z') {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fraction = number(20, 26)?;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years are counted from March, so that a leap day is the last day of its year.
    let (from_march, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = 365 * from_march + from_march / 4 - from_march / 100 + from_march / 400 + of_year;
    let days = days.checked_sub(719_468)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::line::time;

    #[test]
    fn times_are_read_back() {
        for micros in [0, 951_782_400_000_001, 1_709_251_199_999_999, 4_107_542_400_000_000] {
            assert_eq!(micros_of(&time(micros)), Some(micros), "{}", time(micros));
        }
        for bad in ["", "2026-11-18", "2026-13-01T00:00:00.000000Z", "x026-11-18T00:00:00.000000Z"]
        {
            assert_eq!(micros_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_line_that_is_not_a_record_has_an_id_of_its_own() {
        let good = r#"{"id":"a-1","time":"2026-11-18T00:00:00.000000Z","kind":"refusal","x":1}"#;
        let text = format!("{good}\nnot json \u{0}\n");
        let records = Records::new(text.into_bytes(), Head::NOTHING, "audit".into());
        let all: Vec<Record<'_>> = records.iter().collect();
        assert_eq!(records.len(), 2);
        assert_eq!((&*all[0].id, all[0].kind, all[0].is_notable()), ("a-1", "refusal", true));
        assert_eq!(all[0].members()["x"], 1);
        assert!(all[1].id.starts_with("line-") && all[1].members().is_null());
    }
}
