//! The checked-in list of checks that may differ through the gateway.
//!
//! One entry per line: server, revision, transport (`*` for any), check, and the reason.

use std::path::Path;

use super::{Combination, Result};

pub(super) const FILE: &str = "xtask/program/conformance/differences.txt";

pub(super) struct Differences(Vec<Entry>);

struct Entry {
    server: String,
    revision: String,
    transport: String,
    check: String,
    reason: String,
    used: bool,
}

impl Differences {
    pub(super) fn read() -> Result<Differences> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FILE);
        let text = std::fs::read_to_string(file).map_err(|error| format!("{FILE}: {error}"))?;
        Differences::parse(&text)
    }

    fn parse(text: &str) -> Result<Differences> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let entries = entries.map(|(at, line)| {
            let why = || {
                format!("{FILE}:{at}: an entry is `SERVER REVISION TRANSPORT CHECK REASON`: {line}")
            };
            Entry::parse(line).ok_or_else(why)
        });
        entries.collect::<Result<_>>().map(Differences)
    }

    /// Why this check may differ in this combination, if it may.
    pub(super) fn reason(&mut self, combination: Combination, check: &str) -> Option<&str> {
        let entry = self.0.iter_mut().find(|entry| entry.covers(combination, check))?;
        entry.used = true;
        Some(&entry.reason)
    }

    /// The entries whose checks did not differ.
    pub(super) fn stale(&self) -> Vec<String> {
        let stale = self.0.iter().filter(|entry| !entry.used);
        stale
            .map(|Entry { server, revision, transport, check, .. }| {
                format!("{server} {revision} {transport} {check}")
            })
            .collect()
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let mut words = line.split_whitespace().map(String::from);
        let (server, revision) = (words.next()?, words.next()?);
        let (transport, check) = (words.next()?, words.next()?);
        let reason = words.collect::<Vec<_>>().join(" ");
        let entry = Entry { server, revision, transport, check, reason, used: false };
        Some(entry).filter(|entry| !entry.reason.is_empty())
    }

    fn covers(&self, combination: Combination, check: &str) -> bool {
        let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        fits(&self.server, combination.server.name())
            && fits(&self.revision, combination.revision)
            && fits(&self.transport, combination.transport.name())
            && self.check == check
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{Server, Transport};
    use super::*;

    const OVER_HTTP: Combination =
        Combination { server: Server::Python, revision: "2026-07-28", transport: Transport::Http };

    #[test]
    fn an_entry_covers_its_check_and_has_a_reason() {
        let text = "# comment\n\npython 2026-07-28 * tools-list/a it is known\n\
                    * * stdio tools-list/b as well\n";
        let mut differences = Differences::parse(text).unwrap();
        assert_eq!(differences.reason(OVER_HTTP, "tools-list/a"), Some("it is known"));
        assert_eq!(differences.reason(OVER_HTTP, "tools-list/b"), None);
        let other = Combination { server: Server::Rust, ..OVER_HTTP };
        assert_eq!(differences.reason(other, "tools-list/a"), None);
        assert_eq!(differences.stale(), ["* * stdio tools-list/b"]);
    }

    #[test]
    fn an_entry_without_a_reason_is_an_error_with_its_line() {
        let error = Differences::parse("\npython * * tools-list/a").err().unwrap();
        assert!(error.starts_with(&format!("{FILE}:2: ")), "{error}");
    }
}
