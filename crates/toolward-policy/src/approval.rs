//! The entries that ask, for the part of the gateway that waits for a person.

use crate::decision::AskingRule;
use crate::policy::Policy;
use crate::reason::RuleText;
use crate::source::Ask;

/// An entry that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskText {
    pub rule: RuleText,
    pub ask: Ask,
    /// Equal for the same entry in two policies, wherever it is in its list. An approval that was given for one
    /// entry is not valid for another.
    pub identity: String,
}

impl Policy {
    /// The entry at an address, if it asks.
    pub fn ask_at(&self, at: AskingRule) -> Option<AskText> {
        let rule = self.rule_at(at.layer, at.rule)?;
        let ask = self.layers.get(usize::from(at.layer))?.rule(at.rule)?.ask.as_deref()?.clone();
        let list = rule.path.rsplit_once('[').map_or(&*rule.path, |(list, _)| list);
        // Gateways that share approvals may have the file in different directories.
        let file = rule.layer.rsplit('/').next().unwrap_or_default();
        let identity = format!("{file}\n{list}\n{}\n{ask:?}", rule.written());
        Some(AskText { rule, ask, identity })
    }

    /// Whether an admin may approve calls of a tool, prompt or resource.
    pub fn may_approve(&self, admin: &str, server: &str, name: &str) -> bool {
        self.approvers.may_approve(admin, server, name)
    }

    /// Whether the client of an agent shows requests for approval to a person.
    pub fn trusts_ui(&self, agent: Option<&str>) -> bool {
        self.approvers.trusts_ui(agent)
    }

    /// Denies calls of callers without a name if an entry asks: no one could tell whose call it is.
    pub fn ask_for_named_callers_only(&mut self) {
        self.approvers.named_only = true;
    }

    /// Whether any entry asks.
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// All entries that ask.
    pub fn all_asks(&self) -> Vec<AskText> {
        let layers = self.layers.iter().enumerate();
        let asking = layers.flat_map(|(layer, rules)| {
            let at = move |rule| AskingRule { layer: layer as u16, rule };
            rules.asking().into_iter().map(at)
        });
        asking.filter_map(|at| self.ask_at(at)).collect()
    }

    /// Whether there are admins. Without them, the user who runs the gateway approves.
    pub fn has_admins(&self) -> bool {
        self.approvers.has_admins()
    }
}
