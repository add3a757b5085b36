//! Calls of names that an agent does not see, by name: hidden and nonexistent alike. Whoever looks
//! later asks the policy what it says of them.

use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::HashMap;

use crate::client::Scope;
use crate::lock::LockUnpoisoned;

/// So many names of an agent are told apart; agents are those of the configuration.
const MOST_NAMES: usize = 64;
const MOST_AGENTS: usize = 1024;
/// Longer names are none of a tool.
const LONGEST: usize = 256;

#[derive(Debug, Default)]
pub struct Unseen(Mutex<HashMap<Option<Arc<str>>, Names>>);

#[derive(Debug, Default)]
struct Names {
    counts: HashMap<(Scope, Box<str>), u64>,
    others: u64,
}

/// How often an agent called a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub agent: Option<Arc<str>>,
    /// At which address, and the name that it used there; `None`: names beyond those that are kept.
    pub name: Option<(Scope, Box<str>)>,
    pub calls: u64,
}

impl Unseen {
    fn all(&self) -> MutexGuard<'_, HashMap<Option<Arc<str>>, Names>> {
        self.0.locked()
    }

    /// An agent called a name that it does not see, whether there is such a tool or not.
    pub(crate) fn count(&self, agent: Option<&Arc<str>>, scope: Scope, name: &str) {
        let mut all = self.all();
        let room = all.len() < MOST_AGENTS;
        let names = match all.get_mut(&agent.cloned()) {
            Some(names) => names,
            None if room => all.entry(agent.cloned()).or_default(),
            None => return,
        };
        let key = (scope, Box::from(name));
        let room = names.counts.len() < MOST_NAMES && name.len() <= LONGEST;
        match names.counts.get_mut(&key) {
            Some(count) => *count += 1,
            None if room => drop(names.counts.insert(key, 1)),
            None => names.others += 1,
        }
    }

    /// Everything that was counted, most often first.
    pub fn called(&self) -> Vec<Called> {
        let mut called = Vec::new();
        for (agent, names) in self.all().iter() {
            let one = |(name, calls): (&(Scope, Box<str>), &u64)| Called {
                agent: agent.clone(),
                name: Some(name.clone()),
                calls: *calls,
            };
            called.extend(names.counts.iter().map(one));
            if names.others > 0 {
                called.push(Called { agent: agent.clone(), name: None, calls: names.others });
            }
        }
        let name = |one: &Called| one.name.as_ref().map(|(_, name)| name.clone());
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
        let (unseen, one, other) = (Unseen::default(), Arc::from("one"), Arc::from("other"));
        for _ in 0..3 {
            unseen.count(Some(&one), Scope::All, "a");
        }
        unseen.count(Some(&other), Scope::All, "a");
        unseen.count(Some(&other), Scope::One(ServerId::new(1)), "a");
        unseen.count(None, Scope::All, &"x".repeat(LONGEST + 1));
        let called = unseen.called();
        let first = (called[0].agent.clone(), called[0].calls);
        assert_eq!(first, (Some(one.clone()), 3));
        assert_eq!((called.len(), unseen.total()), (4, 6));
        assert!(called.iter().any(|one| one.agent.is_none() && one.name.is_none()));
        for number in 0..10 * MOST_NAMES {
            unseen.count(Some(&one), Scope::All, &format!("tool_{number}"));
        }
        // What one agent asks for takes no room from another.
        unseen.count(Some(&other), Scope::All, "b");
        let called = unseen.called();
        let of_one = called.iter().filter(|called| called.agent.as_ref() == Some(&one));
        assert_eq!(of_one.count(), MOST_NAMES + 1);
        let b = Some((Scope::All, Box::from("b")));
        assert!(called.iter().any(|called| called.name == b));
        assert_eq!(unseen.total(), 7 + 10 * MOST_NAMES as u64);
    }
}
