//! What operators configure for refusals: `explain_to_agent`, and `message` on the file or an agent.

use hashbrown::HashMap;

use crate::decision::RuleRef;
use crate::layer::Rules;
use crate::policy::Policy;
use crate::source::{RefusalsSource, Wording};

/// The wording of all agents, compiled.
#[derive(Debug, Default)]
pub(crate) struct Wordings {
    everyone: Wording,
    agents: HashMap<Box<str>, Wording>,
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

impl Policy {
    /// Whether refusals tell this agent reasons, and the message that all of its refusals carry.
    /// Both depend on agent and policy alone.
    pub fn wording(&self, agent: Option<&str>) -> (bool, Option<&str>) {
        let mut found = Wording::default();
        // The agent itself, and whoever stands in for it in a layer that does not know it.
        let mut names: Vec<&str> = agent.into_iter().collect();
        for layer in &self.layers {
            if let Rules::Agents(agents) = &layer.rules
                && let Some(used) =
                    agents.agent(agent).and_then(|at| agents.agents.get(at as usize))
                && !names.contains(&&*used.name)
            {
                names.push(&used.name);
            }
        }
        let mut message = None;
        for wording in names.iter().filter_map(|name| self.wordings.agents.get(*name)) {
            message = message.or(wording.message.as_deref());
            found.add(Wording { message: None, ..wording.clone() });
        }
        let everyone = &self.wordings.everyone;
        let explain = found.explain_to_agent.or(everyone.explain_to_agent).unwrap_or(true);
        (explain, message.or(everyone.message.as_deref()))
    }

    /// The `message` of an entry.
    pub(crate) fn entry_message(&self, layer: u16, rule: RuleRef) -> Option<&str> {
        self.layers.get(usize::from(layer))?.rule(rule)?.message.as_deref()
    }
}
