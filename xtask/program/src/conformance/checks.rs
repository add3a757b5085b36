//! The results of one run of the suite, and how two runs differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::Result;

/// The length of `-2026-11-18T10-21-30-340Z`, with which the suite ends the name of each results directory.
const TIMESTAMP: usize = 25;

/// Messages may contain whole responses.
const MAX_MESSAGE: usize = 200;

/// The outcome of each check by name: `SCENARIO/CHECK`, with `#2` and so on if a scenario repeats a check.
pub(super) struct Checks(BTreeMap<String, Outcome>);

#[derive(Clone)]
struct Outcome {
    /// `SUCCESS`, `FAILURE`, `WARNING` or `SKIPPED`.
    status: String,
    message: String,
}

/// A check whose outcome depends on the gateway.
pub(super) struct Difference {
    pub(super) check: String,
    direct: Option<Outcome>,
    through: Option<Outcome>,
}

impl Checks {
    /// Reads the results that the suite has saved, one directory per scenario.
    pub(super) fn read(folder: &Path) -> Result<Checks> {
        let wrong = |error: std::io::Error| format!("the suite's results: {error}");
        let mut checks = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix("server-"));
            let scenario = name.and_then(|name| name.get(..name.len().checked_sub(TIMESTAMP)?));
            let scenario = scenario.ok_or_else(|| format!("unexpected results: {entry:?}"))?;
            add_scenario(&mut checks, scenario, &entry.path().join("checks.json"));
        }
        match checks.is_empty() {
            true => Err("the suite ran no scenario".into()),
            false => Ok(Checks(checks)),
        }
    }

    /// The checks whose outcome is not the same in both.
    pub(super) fn compare(&self, through: &Checks) -> Vec<Difference> {
        let names: BTreeSet<&String> = self.0.keys().chain(through.0.keys()).collect();
        let differences = names.into_iter().map(|check| Difference {
            check: check.clone(),
            direct: self.0.get(check).cloned(),
            through: through.0.get(check).cloned(),
        });
        differences.filter(|one| status(&one.direct) != status(&one.through)).collect()
    }

    fn count(&self, status: &str) -> usize {
        self.0.values().filter(|outcome| outcome.status == status).count()
    }
}

/// Adds the checks of one scenario. One that has saved none has failed as a whole.
fn add_scenario(checks: &mut BTreeMap<String, Outcome>, scenario: &str, file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let Ok(Value::Array(results)) = serde_json::from_str(&text) else {
        let (status, message) = ("FAILURE".into(), "the scenario saved no results".into());
        checks.insert(format!("{scenario}/results"), Outcome { status, message });
        return;
    };
    let mut repeated: BTreeMap<String, usize> = BTreeMap::new();
    for result in &results {
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_string();
        let count = repeated.entry(text("id")).or_default();
        *count += 1;
        let name = match *count {
            1 => format!("{scenario}/{}", text("id")),
            count => format!("{scenario}/{}#{count}", text("id")),
        };
        // Recorded traffic and remarks, not checks.
        if text("status") != "INFO" {
            let outcome = Outcome { status: text("status"), message: text("errorMessage") };
            checks.insert(name, outcome);
        }
    }
}

fn status(outcome: &Option<Outcome>) -> &str {
    outcome.as_ref().map_or("not checked", |outcome| &outcome.status)
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.count("SUCCESS"), self.count("FAILURE"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (direct, through) = (status(&self.direct), status(&self.through));
        write!(f, "{}: {direct} directly, {through} through the gateway", self.check)?;
        let outcomes = [&self.through, &self.direct].into_iter().flatten();
        match outcomes.map(|outcome| &outcome.message).find(|message| !message.is_empty()) {
            Some(message) => {
                let short: String = message.chars().take(MAX_MESSAGE).collect();
                write!(f, " ({})", short.lines().next().unwrap_or_default())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn checks(results: &str) -> Checks {
        let folder = tempfile::tempdir().unwrap();
        let scenario = folder.path().join("server-tools-list-2026-11-18T10-21-30-340Z");
        std::fs::create_dir(&scenario).unwrap();
        std::fs::write(scenario.join("checks.json"), results).unwrap();
        Checks::read(folder.path()).unwrap()
    }

    #[test]
    fn checks_that_differ_are_named_with_both_outcomes() {
        let direct = checks(
            r#"[{"id": "a", "status": "SUCCESS"}, {"id": "a", "status": "SUCCESS"},
                {"id": "traffic", "status": "INFO"}]"#,
        );
        let through = checks(
            r#"[{"id": "a", "status": "SUCCESS"}, {"id": "a", "status": "FAILURE", "errorMessage": "why"},
                {"id": "b", "status": "SKIPPED"}]"#,
        );
        let lines: Vec<String> = direct.compare(&through).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "tools-list/a#2: SUCCESS directly, FAILURE through the gateway (why)",
                "tools-list/b: not checked directly, SKIPPED through the gateway",
            ]
        );
        assert_eq!(direct.to_string(), "2 passed, 0 failed");
        assert!(direct.compare(&direct).is_empty());
    }

    #[test]
    fn a_scenario_without_results_has_failed() {
        assert_eq!(checks("").to_string(), "0 passed, 1 failed");
    }
}
