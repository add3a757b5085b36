//! Past calls by subject, each decided once.

use std::collections::HashMap;
use std::fmt::Write;

use toolward_policy::recorded::{RecordedAction, RecordedCall, RecordedSubject, Unrecorded};
use toolward_policy::source::DEFAULT_ACTION_KEYS;
use toolward_policy::{Decision, Family, Verdict};

use super::Rules;
use super::record::PastCall;

/// The maximum number of subjects; calls of further ones are counted and not compared.
const MAX_SUBJECTS: usize = 50_000;
/// The maximum number of subjects whose policy is kept because calls decide; others are evaluated again.
const MAX_KEPT: usize = 2048;
/// The maximum number of actions of a subject whose decisions are kept.
const MAX_ACTIONS: usize = 256;
/// The maximum number of examples of a group.
pub(super) const MAX_EXAMPLES: usize = 3;

/// Counts of past calls.
pub(super) struct Subjects<'a> {
    rules: Rules<'a>,
    /// The index of each subject, by its parts.
    places: HashMap<String, usize>,
    subjects: Vec<PastSubject>,
    /// How many subjects keep their policy.
    kept: usize,
    /// Calls of subjects beyond the maximum.
    pub(super) beyond: u64,
    pub(super) calls: u64,
    /// The key of the current call.
    key: String,
}

/// The calls of one agent to one tool, prompt or resource.
pub(super) struct PastSubject {
    pub(super) agent: Option<String>,
    pub(super) server: String,
    pub(super) family: Family,
    pub(super) name: String,
    /// The result for a call of which only the name is known.
    plain: Outcome,
    /// The policy, if a call's action or arguments decide.
    policy: Option<RecordedSubject>,
    by_action: Vec<(Option<String>, Outcome)>,
    /// Calls that change, or that may change.
    pub(super) groups: Vec<Group>,
}

/// A decision, and why it is open.
type Outcome = (Decision, Option<Unrecorded>);

/// Calls of a subject that are decided alike.
pub(super) struct Group {
    pub(super) action: Option<String>,
    pub(super) before: Verdict,
    pub(super) after: Decision,
    /// Why the verdict is not known.
    pub(super) open: Option<Unrecorded>,
    pub(super) calls: u64,
    /// The time of the last call.
    pub(super) last: String,
    /// Ids of the first calls.
    pub(super) examples: Vec<String>,
}

impl<'a> Subjects<'a> {
    pub(super) fn new(rules: Rules<'a>) -> Subjects<'a> {
        Subjects {
            rules,
            places: HashMap::new(),
            subjects: Vec::new(),
            kept: 0,
            beyond: 0,
            calls: 0,
            key: String::new(),
        }
    }

    pub(super) fn into_subjects(self) -> Vec<PastSubject> {
        self.subjects
    }

    pub(super) fn add(&mut self, call: &PastCall<'_>, time: &str, id: &str) {
        self.calls += 1;
        let Some(at) = self.place(call) else {
            self.beyond += 1;
            return;
        };
        let rules = self.rules;
        let Some(subject) = self.subjects.get_mut(at) else { return };
        let (decision, open) = subject.decide(rules, call);
        if open.is_none() && decision.verdict == call.verdict {
            return;
        }
        subject.count(call, (decision, open), time, id);
    }

    /// The index of the call's subject, which is decided if it is new.
    fn place(&mut self, call: &PastCall<'_>) -> Option<usize> {
        let family = match call.family {
            Family::Tools => 't',
            Family::Prompts => 'p',
            Family::Resources => 'r',
        };
        self.key.clear();
        self.key.push(family);
        self.key.push(if call.agent.is_some() { '+' } else { '-' });
        for part in [call.agent.unwrap_or_default(), call.server, call.name] {
            // With its length, because a name can contain any character.
            let _ = write!(self.key, "{}:{part}", part.len());
        }
        if let Some(at) = self.places.get(&self.key) {
            return Some(*at);
        }
        if self.subjects.len() >= MAX_SUBJECTS {
            return None;
        }
        let policy = evaluated(self.rules, call);
        let plain = policy.decide(&RecordedCall { agent: call.agent, ..RecordedCall::default() });
        let keep = plain.1.is_some() && self.kept < MAX_KEPT;
        self.kept += usize::from(keep);
        self.places.insert(self.key.clone(), self.subjects.len());
        self.subjects.push(PastSubject {
            agent: call.agent.map(String::from),
            server: call.server.into(),
            family: call.family,
            name: call.name.into(),
            plain,
            policy: keep.then_some(policy),
            by_action: Vec::new(),
            groups: Vec::new(),
        });
        self.subjects.len().checked_sub(1)
    }
}

fn evaluated(rules: Rules<'_>, call: &PastCall<'_>) -> RecordedSubject {
    let what = (call.family, call.name);
    rules.policy.recorded_subject(call.agent, call.server, what, rules.catalogue)
}

impl PastSubject {
    fn decide(&mut self, rules: Rules<'_>, call: &PastCall<'_>) -> Outcome {
        if self.plain.1.is_none() {
            return self.plain;
        }
        let action = match call.action {
            // The action was looked up under the keys of that time.
            RecordedAction::None if !has_default_keys(rules, call) => RecordedAction::Unknown,
            action => action,
        };
        let recorded = RecordedCall {
            agent: call.agent,
            action,
            arguments: call.arguments.map(|arguments| arguments as _),
        };
        let stated = match action {
            RecordedAction::Unknown if call.arguments.is_none() => return self.plain,
            RecordedAction::Is(action) => Some(action),
            _ => None,
        };
        let known = |(of, _): &&(Option<String>, Outcome)| of.as_deref() == stated;
        if call.arguments.is_none()
            && let Some((_, outcome)) = self.by_action.iter().find(known)
        {
            return *outcome;
        }
        let outcome = match &self.policy {
            Some(policy) => policy.decide(&recorded),
            None => evaluated(rules, call).decide(&recorded),
        };
        if call.arguments.is_none() && self.by_action.len() < MAX_ACTIONS {
            self.by_action.push((stated.map(String::from), outcome));
        }
        outcome
    }

    fn count(&mut self, call: &PastCall<'_>, (after, open): Outcome, time: &str, id: &str) {
        // An action that does not matter may be any text.
        let matters = self.policy.as_ref().is_some_and(RecordedSubject::reads_action);
        let action = match call.action {
            RecordedAction::Is(action) if matters => Some(action),
            _ => None,
        };
        let same = |group: &Group| {
            group.before == call.verdict && group.after == after && group.open == open
        };
        let mut groups = self.groups.iter();
        let own = groups.position(|group| same(group) && group.action.as_deref() == action);
        // Beyond the maximum, actions are counted together.
        let full = self.groups.len() >= MAX_ACTIONS;
        let shared = || self.groups.iter().position(same).filter(|_| full);
        let at = own.or_else(shared).unwrap_or(self.groups.len());
        if at == self.groups.len() {
            self.groups.push(Group {
                action: action.map(String::from),
                before: call.verdict,
                after,
                open,
                calls: 0,
                last: String::new(),
                examples: Vec::new(),
            });
        }
        let Some(group) = self.groups.get_mut(at) else { return };
        group.calls += 1;
        if group.examples.len() < MAX_EXAMPLES {
            group.examples.push(id.into());
        }
        if *group.last < *time {
            group.last = time.into();
        }
    }
}

fn has_default_keys(rules: Rules<'_>, call: &PastCall<'_>) -> bool {
    let keys = rules.policy.action_keys(call.server, call.name);
    keys.iter().map(|key| &**key).eq(DEFAULT_ACTION_KEYS)
}
