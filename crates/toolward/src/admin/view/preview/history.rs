//! Past calls that a candidate would decide differently.

use toolward_gateway::clock::micros;
use toolward_policy::{Catalogue, Policy};

use crate::active_config::ActiveConfig;
use crate::audit_log::dir::look;
use crate::replay::report::{CallGroup, Report, why_open};
use crate::replay::{Period, Rules, replay};

/// How far back calls are compared, in microseconds.
const WEEK: u64 = 7 * 86_400 * 1_000_000;
/// The maximum number of records that are read for a view.
const MAX_RECORDS: u64 = 1_000_000;
/// The maximum number of groups shown.
const MAX_ROWS: usize = 100;

/// The calls of the last week that would change.
pub(super) struct PastChanges {
    pub(super) summary: String,
    pub(super) rows: Vec<PastRow>,
    pub(super) more: usize,
    pub(super) not_compared: Vec<String>,
}

pub(super) struct PastRow {
    pub(super) word: &'static str,
    pub(super) agent: Option<String>,
    pub(super) call: String,
    pub(super) before: &'static str,
    pub(super) after: &'static str,
    pub(super) calls: u64,
    pub(super) last: String,
    pub(super) note: String,
}

impl PastChanges {
    pub(super) fn new(
        in_force: &ActiveConfig,
        (old, new): (&Policy, &Policy),
        catalogue: &Catalogue,
    ) -> Result<PastChanges, String> {
        let config = &in_force.loaded.config;
        let found = look(&config.audit.dir).map_err(|_| "The audit log cannot be read.")?;
        let since = Some(micros().saturating_sub(WEEK));
        let period = Period { since, until: None, max_records: Some(MAX_RECORDS) };
        let rules =
            Rules { policy: new, catalogue, naming: Some(old), separator: &config.separator };
        let report = replay(found, period, rules, None);
        let report = report.map_err(|_| "The audit log cannot be read.")?;
        Ok(PastChanges::of(&report, new))
    }

    fn of(report: &Report, policy: &Policy) -> PastChanges {
        let groups = || report.changes.iter().chain(&report.undecided);
        let rows: Vec<PastRow> = groups().take(MAX_ROWS).map(|one| row(one, policy)).collect();
        let mut not_compared: Vec<String> = report
            .skipped
            .reasons()
            .into_iter()
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        if report.skipped.cut {
            not_compared.push(format!("records after the first {MAX_RECORDS} of the week"));
        }
        PastChanges {
            summary: report.summary(),
            more: groups().count().saturating_sub(rows.len()),
            rows,
            not_compared,
        }
    }
}

fn row(group: &CallGroup, policy: &Policy) -> PastRow {
    let note = match group.why_open {
        Some(why) => why_open(why).into(),
        None => match group.rule(policy) {
            Some(rule) => format!("{} {}", rule.written(), rule.path),
            None => group.after.step.as_str().into(),
        },
    };
    PastRow {
        word: group.direction(),
        agent: group.agent.clone(),
        call: group.subject(),
        before: group.before.as_str(),
        after: group.after.verdict.as_str(),
        calls: group.calls,
        last: group.last.get(..16).unwrap_or(&group.last).replace('T', " "),
        note,
    }
}
