//! The recorded calls of an agent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use serde_json::{Map, Value};
use toolward_policy::fnmatch::{Pattern, is_pattern};
use toolward_policy::recorded::RecordedAction;
use toolward_policy::{Family, Policy};

use crate::commands::history::History;
use crate::exit::Failure;
use crate::replay::each_record;
use crate::replay::record::{Past, PastCall};
use crate::replay::report::Skipped;

/// The maximum number of distinct subjects.
const MAX_SUBJECTS: usize = 20_000;
/// The maximum number of actions of a tool that are distinguished.
const MAX_ACTIONS: usize = 64;
/// The maximum number of calls whose arguments are kept for tests, for each subject.
const MAX_SAMPLES: usize = 2;
/// The maximum number of agents that a message about a pattern names.
const MAX_MATCHING: usize = 5;
/// Larger arguments are not used in tests.
const MAX_SAMPLE_BYTES: usize = 1024;

/// The subject of calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) server: String,
    pub(super) family: Family,
    pub(super) name: String,
    /// The action, if the tool's calls are distinguished by it.
    pub(super) action: Option<String>,
}

impl Target {
    /// `tracker/get_issue`, with the action.
    pub(super) fn text(&self) -> String {
        let noun = match self.family {
            Family::Tools => "",
            Family::Prompts => "prompt ",
            Family::Resources => "resource ",
        };
        let action = self.action.as_ref().map_or_else(String::new, |action| format!(".{action}"));
        format!("{noun}{}/{}{action}", self.server, self.name)
    }
}

/// The calls of one target.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses {
    /// Calls that were forwarded.
    pub(super) made: u64,
    /// Calls that the policy refused.
    pub(super) refused: u64,
    /// The time of the last call.
    pub(super) last: String,
    /// Arguments of forwarded calls.
    pub(super) samples: Vec<Map<String, Value>>,
}

impl Uses {
    pub(super) fn add(&mut self, other: &Uses) {
        self.made += other.made;
        self.refused += other.refused;
        if self.last < other.last {
            self.last.clone_from(&other.last);
        }
    }
}

/// All recorded calls of an agent.
#[derive(Default)]
pub(super) struct SeenCalls {
    pub(super) uses: BTreeMap<Target, Uses>,
    pub(super) skipped: Skipped,
    /// Other agents with calls whose names the given one matches as a pattern, the first few.
    pub(super) matching: BTreeSet<String>,
    /// The times of the first and the last call.
    pub(super) first: Option<String>,
    pub(super) last: Option<String>,
}

impl SeenCalls {
    pub(super) fn read(history: &mut History, agent: &str) -> Result<SeenCalls, Failure> {
        let found = std::mem::take(&mut history.found);
        let (mut seen, mut not_compared) = (SeenCalls::default(), Skipped::default());
        let mut actions = ActionKeys::default();
        let pattern = is_pattern(agent).then(|| Pattern::new(agent));
        let current = &history.current;
        let skipped = each_record(found, history.period, |record| {
            match Past::of(record) {
                Past::Call(call) if call.agent == Some(agent) => {
                    let by_action = actions.of(&current.policy, &current.catalogue, &call);
                    let time = record["time"].as_str().unwrap_or_default();
                    seen.add(&call, by_action, time, &mut not_compared);
                }
                Past::Call(PastCall { agent: Some(other), .. })
                    if seen.matching.len() < MAX_MATCHING
                        && pattern.as_ref().is_some_and(|pattern| pattern.matches(other)) =>
                {
                    seen.matching.insert(other.to_string());
                }
                Past::NotCompared(why) if record["agent"].as_str() == Some(agent) => {
                    not_compared.add(why);
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let Skipped { records, unreadable, torn, .. } = skipped;
        seen.skipped = Skipped { records, unreadable, torn, ..not_compared };
        Ok(seen)
    }

    fn add(&mut self, call: &PastCall<'_>, by_action: bool, time: &str, skipped: &mut Skipped) {
        let action = match call.action {
            RecordedAction::Is(action) if by_action => Some(action.to_string()),
            _ => None,
        };
        let (server, name) = (call.server.to_string(), call.name.to_string());
        let mut target = Target { server, family: call.family, name, action };
        if !self.uses.contains_key(&target) {
            if target.action.is_some() && self.actions_of(&target) >= MAX_ACTIONS {
                target.action = None;
            }
            if self.uses.len() >= MAX_SUBJECTS {
                skipped.beyond += 1;
                return;
            }
        }
        let uses = self.uses.entry(target).or_default();
        match call.made {
            true => uses.made += 1,
            false => uses.refused += 1,
        }
        if *uses.last < *time {
            uses.last = time.into();
        }
        if let Some(arguments) = call.arguments.filter(|_| call.made)
            && uses.samples.len() < MAX_SAMPLES
            && !uses.samples.contains(arguments)
            && Value::from(arguments.clone()).to_string().len() <= MAX_SAMPLE_BYTES
        {
            uses.samples.push(arguments.clone());
        }
        if self.first.as_deref().is_none_or(|first| time < first) {
            self.first = Some(time.into());
        }
        if self.last.as_deref().is_none_or(|last| last < time) {
            self.last = Some(time.into());
        }
    }

    fn actions_of(&self, target: &Target) -> usize {
        let first = Target { action: None, ..target.clone() };
        let same = |one: &Target| {
            (&one.server, one.family, &one.name) == (&target.server, target.family, &target.name)
        };
        self.uses.range(first..).take_while(|(one, _)| same(one)).count()
    }

    pub(super) fn calls(&self) -> u64 {
        self.uses.values().map(|uses| uses.made + uses.refused).sum()
    }
}

/// Tools whose calls are distinguished by their action.
#[derive(Default)]
struct ActionKeys(HashMap<(String, String), bool>);

impl ActionKeys {
    /// Whether the tool's schema lists its actions, or a rule names one.
    fn of(
        &mut self,
        policy: &Policy,
        catalogue: &toolward_policy::Catalogue,
        call: &PastCall<'_>,
    ) -> bool {
        if call.family != Family::Tools || call.action == RecordedAction::None {
            return false;
        }
        let key = (call.server.to_string(), call.name.to_string());
        *self.0.entry(key).or_insert_with(|| {
            let what = (Family::Tools, call.name);
            let subject = policy.recorded_subject(call.agent, call.server, what, catalogue);
            subject.reads_action() || {
                let known = catalogue.tools(call.server);
                let tool = known.and_then(|_| catalogue.tool(call.server, call.name));
                let keys = policy.action_keys(call.server, call.name);
                tool.is_some_and(|tool| lists_actions(tool.definition(), keys))
            }
        })
    }
}

fn lists_actions(definition: &str, keys: &[Box<str>]) -> bool {
    let definition: Value = serde_json::from_str(definition).unwrap_or_default();
    let properties = &definition["inputSchema"]["properties"];
    keys.iter().any(|key| properties[&**key]["enum"].is_array())
}
