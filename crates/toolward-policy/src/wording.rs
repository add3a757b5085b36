//! What operators configure for refusals: `explain_to_agent`, and `message` on the file or an agent.

use hashbrown::HashMap;

use crate::source::{RefusalsSource, Wording};

/// The wording of all agents, compiled.
#[derive(Debug, Default)]
pub(crate) struct Wordings {
    pub(crate) everyone: Wording,
    pub(crate) agents: HashMap<Box<str>, Wording>,
}

impl Wordings {
    /// Several files may have the same agent: the first message counts, and a single
    /// `explain_to_agent: false`.
    pub(crate) fn new(source: RefusalsSource) -> Wordings {
        let mut agents: HashMap<Box<str>, Wording> = HashMap::new();
        for (name, wording) in source.agents {
            let known = agents.entry(name.into()).or_default();
            known.add(wording);
        }
        Wordings { everyone: source.everyone, agents }
    }
}

impl Wording {
    /// Adds what another file has: the first message counts, and the strictest setting.
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
