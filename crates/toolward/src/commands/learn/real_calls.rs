//! Tests from recorded calls.

use serde_json::{Map, Value, json};
use toolward_policy::source::DEFAULT_ACTION_KEYS;
use toolward_policy::testing::TestOutcome;
use toolward_policy::{Family, Verdict};

use super::current::CurrentPolicy;
use super::proposal::Proposal;
use super::seen::{SeenCalls, Target};

/// The maximum number of tests of each kind.
const MAX_TESTS: usize = 500;

/// Calls with their expected verdicts, as they are written in a policy.
#[derive(Debug, Clone, Default)]
pub(super) struct RealCalls {
    pub(super) allow: Vec<String>,
    pub(super) ask: Vec<String>,
    pub(super) deny: Vec<String>,
}

impl RealCalls {
    /// One call of each target that the proposal covers, and of each that the current policy denies.
    pub(super) fn of(
        current: &CurrentPolicy<'_>,
        seen: &SeenCalls,
        proposal: &Proposal,
    ) -> RealCalls {
        let mut calls = RealCalls::default();
        let lines = proposal.lists.values().flatten();
        let implicit = proposal.servers.iter().flat_map(|line| &line.targets);
        let covered = lines.flat_map(|line| &line.targets).chain(implicit);
        for target in covered {
            let arguments = seen.uses.get(target).and_then(|uses| uses.samples.first().cloned());
            // Without its arguments, the call may be one that a condition excludes.
            let is_open = current.decision(target).verdict == Verdict::Depends;
            if arguments.is_none() && is_open {
                continue;
            }
            let written = written(target, arguments.or_else(|| stated_action(current, target)));
            calls.allow.extend(written.filter(|call| !calls.allow.contains(call)));
        }
        for target in &proposal.denied {
            let written = written(target, stated_action(current, target));
            calls.deny.extend(written.filter(|call| !calls.deny.contains(call)));
        }
        calls.allow.truncate(MAX_TESTS);
        calls.deny.truncate(MAX_TESTS);
        calls
    }

    /// The calls whose tests pass. A call that asks is expected to; others are left out. Returns these.
    pub(super) fn keep_passing(&mut self, outcomes: &[TestOutcome<'_>]) -> Vec<String> {
        let mut left_out = Vec::new();
        for outcome in outcomes.iter().filter(|outcome| !outcome.passed) {
            let written = &outcome.case.written;
            self.allow.retain(|call| call != written);
            self.deny.retain(|call| call != written);
            match outcome.decision.verdict {
                Verdict::Ask => self.ask.push(written.clone()),
                _ => left_out.push(written.clone()),
            }
        }
        left_out
    }
}

/// Arguments that select the target's action.
fn stated_action(current: &CurrentPolicy<'_>, target: &Target) -> Option<Map<String, Value>> {
    let action = target.action.as_ref()?;
    let keys = current.input.policy.action_keys(&target.server, &target.name);
    let (tool, _) = current.tool(&target.server, &target.name);
    let definition: Value = serde_json::from_str(tool.definition()).unwrap_or_default();
    let declared =
        keys.iter().find(|key| !definition["inputSchema"]["properties"][&***key].is_null());
    let key = declared.or(keys.last()).map_or(DEFAULT_ACTION_KEYS[1], |key| &**key);
    json!({ key: action }).as_object().cloned()
}

/// `server/tool {"a": 1}`; `None` for names that a test cannot contain.
fn written(target: &Target, arguments: Option<Map<String, Value>>) -> Option<String> {
    let Target { server, name, .. } = target;
    let prefix = match target.family {
        Family::Tools => "",
        Family::Prompts => "prompt:",
        Family::Resources => "resource:",
    };
    let ambiguous = |text: &str| text.is_empty() || text.contains(char::is_whitespace);
    let is_prefixed = ["prompt:", "resource:"].iter().any(|prefix| server.starts_with(prefix));
    if ambiguous(server) || ambiguous(name) || server.contains('/') || is_prefixed {
        return None;
    }
    Some(match arguments.filter(|_| target.family == Family::Tools) {
        Some(arguments) => format!("{prefix}{server}/{name} {}", Value::from(arguments)),
        None => format!("{prefix}{server}/{name}"),
    })
}
