//! Limits and hooks for display in the admin UI. Nothing here makes decisions.

use toolward_policy::{Hints, LimitedRule, Tool};

use super::Guards;
use super::hooks::{Hook, ShownHook};
use super::selection::{CallSubject, Coverage};

/// The guards that a call of one tool has to pass, for one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InFront {
    pub limits: Vec<ShownLimit>,
    /// In the order in which they run.
    pub hooks: Vec<ShownHook>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLimit {
    /// The path in the configuration: `agents.dev.limits.calls`.
    pub name: String,
    pub rate: String,
    /// Only some calls of the tool count, by their action or by the rule that allows them.
    pub partial: bool,
    /// It counts calls of all tools together.
    pub every_tool: bool,
}

impl InFront {
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.hooks.is_empty()
    }
}

impl Guards {
    /// Whether there are no guards at all.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.hooks.is_empty()
    }

    /// The guards in front of a tool. `rules` are the limited rules that can allow a call of it, and
    /// `all_calls` is whether one of them allows every call.
    pub fn in_front(
        &self,
        (agent, server): (Option<&str>, &str),
        (tool, hints): (&Tool, &Hints),
        (rules, all_calls): (&[LimitedRule], bool),
    ) -> InFront {
        let about = CallSubject { agent, server, tool: tool.name(), hints };
        let standing = self.limits.over(about);
        let limits = standing.iter().map(|one| (one.at, is_partial(&one.covers)));
        let limits = limits.chain(self.limits.of_rules(rules).map(|at| (at, !all_calls)));
        let hook = |hook: &Hook| {
            let covers = hook.whom.covers(about)?;
            Some(hook.shown(is_partial(&covers)))
        };
        InFront {
            limits: limits.filter_map(|(at, partial)| self.shown_limit(at, partial)).collect(),
            hooks: self.hooks.iter().filter_map(hook).collect(),
        }
    }

    /// The guards in front of a prompt or resource of a server. Hooks check calls of tools.
    pub fn in_front_of_other(
        &self,
        (agent, server): (Option<&str>, &str),
        (rules, all_calls): (&[LimitedRule], bool),
    ) -> InFront {
        let standing = self.limits.over_other(agent, server);
        let limits = standing.iter().map(|one| (one.at, false));
        let limits = limits.chain(self.limits.of_rules(rules).map(|at| (at, !all_calls)));
        InFront {
            limits: limits.filter_map(|(at, partial)| self.shown_limit(at, partial)).collect(),
            hooks: Vec::new(),
        }
    }

    /// The limits on an agent's listings.
    pub fn limits_of_lists(&self, agent: Option<&str>) -> Vec<ShownLimit> {
        let indices = self.limits.of_lists(agent).into_iter();
        indices.filter_map(|at| self.shown_limit(at, false)).collect()
    }

    /// The limits on an agent's refused calls, beyond which responses are delayed.
    pub fn limits_of_refused(&self, agent: Option<&str>) -> Vec<ShownLimit> {
        let indices = self.limits.of_refused(agent).into_iter();
        indices.filter_map(|at| self.shown_limit(at, false)).collect()
    }

    fn shown_limit(&self, at: usize, partial: bool) -> Option<ShownLimit> {
        let (name, rate) = self.limits.named(at)?;
        let every_tool = self.limits.is_about_every_tool(at);
        Some(ShownLimit { name: name.into(), rate: rate.to_string(), partial, every_tool })
    }
}

fn is_partial(covers: &Coverage) -> bool {
    matches!(covers, Coverage::Actions(_))
}
