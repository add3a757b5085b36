//! Calls of names that are not listed for an agent, by name: hidden and nonexistent alike. How the
//! policy decides about them is evaluated when the counts are read.

use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::HashMap;

use crate::client::Scope;
use crate::lock::LockUnpoisoned;

/// The maximum number of names per agent, and of agents.
const MAX_NAMES: usize = 64;
const MAX_AGENTS: usize = 1024;
/// Longer names are not names of tools.
const MAX_NAME_BYTES: usize = 256;

#[derive(Debug, Default)]
pub struct UnlistedCalls(Mutex<HashMap<Option<Arc<str>>, Names>>);

#[derive(Debug, Default)]
struct Names {
    counts: HashMap<(Scope, Box<str>), u64>,
    others: u64,
}

/// The number of calls of a name by an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCount {
    pub agent: Option<Arc<str>>,
    /// The scope and the name; `None`: names beyond the maximum.
    pub name: Option<(Scope, Box<str>)>,
    pub calls: u64,
}

impl UnlistedCalls {
    fn all(&self) -> MutexGuard<'_, HashMap<Option<Arc<str>>, Names>> {
        self.0.locked()
    }

    /// Counts a call of an unlisted name, whether such a tool exists or not.
    pub(crate) fn count(&self, agent: Option<&Arc<str>>, scope: Scope, name: &str) {
        let mut all = self.all();
        let room = all.len() < MAX_AGENTS;
        let names = match all.get_mut(&agent.cloned()) {
            Some(names) => names,
            None if room => all.entry(agent.cloned()).or_default(),
            None => return,
        };
        let key = (scope, Box::from(name));
        let room = names.counts.len() < MAX_NAMES && name.len() <= MAX_NAME_BYTES;
        match names.counts.get_mut(&key) {
            Some(count) => *count += 1,
            None if room => drop(names.counts.insert(key, 1)),
            None => names.others += 1,
        }
    }

    /// All counts, the highest first.
    pub fn called(&self) -> Vec<CallCount> {
        let mut called = Vec::new();
        for (agent, names) in self.all().iter() {
            let one = |(name, calls): (&(Scope, Box<str>), &u64)| CallCount {
                agent: agent.clone(),
                name: Some(name.clone()),
                calls: *calls,
            };
            called.extend(names.counts.iter().map(one));
            if names.others > 0 {
                called.push(CallCount { agent: agent.clone(), name: None, calls: names.others });
            }
        }
        let name = |one: &CallCount| one.name.as_ref().map(|(_, name)| name.clone());
        called.sort_by_key(|one| (u64::MAX - one.calls, one.agent.clone(), name(one)));
        called
    }

    pub fn total(&self) -> u64 {
        let all = self.all();
        all.values().map(|names| names.counts.values().sum::<u64>() + names.others).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ServerId;

    #[test]
    fn names_are_counted_by_agent_and_not_without_end() {
        let (unseen, one, other) = (UnlistedCalls::default(), Arc::from("one"), Arc::from("other"));
        for _ in 0..3 {
            unseen.count(Some(&one), Scope::All, "a");
        }
        unseen.count(Some(&other), Scope::All, "a");
        unseen.count(Some(&other), Scope::One(ServerId::new(1)), "a");
        unseen.count(None, Scope::All, &"x".repeat(MAX_NAME_BYTES + 1));
        let called = unseen.called();
        let first = (called[0].agent.clone(), called[0].calls);
        assert_eq!(first, (Some(one.clone()), 3));
        assert_eq!((called.len(), unseen.total()), (4, 6));
        assert!(called.iter().any(|one| one.agent.is_none() && one.name.is_none()));
        for number in 0..10 * MAX_NAMES {
            unseen.count(Some(&one), Scope::All, &format!("tool_{number}"));
        }
        // Names of one agent do not evict those of another.
        unseen.count(Some(&other), Scope::All, "b");
        let called = unseen.called();
        let of_one = called.iter().filter(|called| called.agent.as_ref() == Some(&one));
        assert_eq!(of_one.count(), MAX_NAMES + 1);
        let b = Some((Scope::All, Box::from("b")));
        assert!(called.iter().any(|called| called.name == b));
        assert_eq!(unseen.total(), 7 + 10 * MAX_NAMES as u64);
    }
}
