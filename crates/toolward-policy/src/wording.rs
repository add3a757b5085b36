//! The operator's settings for refusals: `explain_to_agent`, and `message` of the file or an agent.

use hashbrown::HashMap;

use crate::fnmatch::{fnmatch, is_pattern};
use crate::source::{RefusalsSource, Wording};

/// The wording of all agents, compiled.
#[derive(Debug, Default)]
pub(crate) struct Wordings {
    pub(crate) everyone: Wording,
    pub(crate) agents: HashMap<Box<str>, Wording>,
    /// Names in `agents` that are patterns.
    patterns: Vec<Box<str>>,
}

impl Wordings {
    /// Several files may have settings for the same agent: the first message wins, and any
    /// `explain_to_agent: false`.
    pub(crate) fn new(source: RefusalsSource) -> Wordings {
        let mut agents: HashMap<Box<str>, Wording> = HashMap::new();
        for (name, wording) in source.agents {
            let known = agents.entry(name.into()).or_default();
            known.add(wording);
        }
        let patterns = agents.keys().filter(|name| is_pattern(name)).cloned().collect();
        Wordings { everyone: source.everyone, agents, patterns }
    }
}

impl Wordings {
    /// The pattern that matches an agent without settings under its own name.
    pub(crate) fn pattern_of(&self, agent: &str) -> Option<&str> {
        if self.patterns.is_empty() || self.agents.contains_key(agent) {
            return None;
        }
        let found = self.patterns.iter().find(|pattern| fnmatch(pattern, agent));
        found.map(|pattern| &**pattern)
    }
}

impl Wording {
    /// Merges the settings of another file: the first message wins, and the strictest setting.
    pub fn add(&mut self, other: Wording) {
        self.explain_to_agent = match (self.explain_to_agent, other.explain_to_agent) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
        if self.message.is_none() {
            self.message = other.message;
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Wording::default()
    }
}
