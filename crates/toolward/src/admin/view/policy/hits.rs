//! Hit counts of rules, including calls to unlisted names.

use toolward_gateway::active::Active;
use toolward_gateway::client::Scope;
use toolward_policy::RuleRef;
use toolward_policy::reason::RuleText;

use crate::admin::AdminUi;

/// The maximum number of unlisted names shown.
const MAX_NAMES: usize = 200;

pub(super) struct Hits {
    pub(super) rules: Vec<(RuleText, Hit)>,
    pub(super) names: Vec<Name>,
}

/// The count of one rule.
#[derive(Clone)]
pub(super) struct Hit {
    /// Its index among all rules, used in element ids.
    pub(super) number: usize,
    pub(super) path: String,
    pub(super) written: String,
    pub(super) calls: u64,
    /// Calls to names that it hides.
    pub(super) unseen: u64,
    /// It is sent alone and swapped into an open view.
    pub(super) alone: bool,
}

impl Hit {
    pub(super) fn is_zero(&self) -> bool {
        self.calls == 0 && self.unseen == 0
    }
}

/// An unlisted name that an agent called.
pub(super) struct Name {
    pub(super) agent: Option<String>,
    /// `None`: further names.
    pub(super) name: Option<String>,
    /// The server at whose address it was called.
    pub(super) at: Option<String>,
    pub(super) calls: u64,
    pub(super) reason: String,
}

impl Hits {
    /// The counts of all rules, or of those with at least one hit.
    pub(super) fn count(page: &AdminUi, active: &Active, all: bool) -> Hits {
        let gateway = page.gateway();
        let in_force = page.reloader.state().in_force.clone();
        let known = in_force.map(|in_force| in_force.names(gateway, active));
        let mut names = Vec::new();
        for called in active.unlisted.called().into_iter().take(MAX_NAMES) {
            let agent = called.agent.as_deref();
            let said = called.name.as_ref().and_then(|(scope, name)| {
                Some(known.as_ref()?.say(active, agent, Some(*scope), name))
            });
            let scope = called.name.as_ref().map(|(scope, _)| *scope);
            names.push(Name {
                agent: agent.map(String::from),
                at: scope.and_then(|scope| address(active, scope)),
                name: called.name.map(|(_, name)| name.into()),
                calls: called.calls,
                reason: said.map_or("further names".into(), |said| said.reason),
            });
        }
        let rule = |(number, (layer, rule)): (usize, (u16, RuleRef))| {
            let calls = active.hits.of_rule(layer, rule);
            let unseen = active.hits.unlisted_of_rule(layer, rule);
            if !all && calls == 0 && unseen == 0 {
                return None;
            }
            let text = active.policy.rule_at(layer, rule)?;
            let hit = Hit {
                number,
                path: text.path.clone(),
                written: text.written(),
                calls,
                unseen,
                alone: !all,
            };
            Some((text, hit))
        };
        let rules = active.policy.rules().into_iter().enumerate().filter_map(rule).collect();
        Hits { rules, names }
    }

    pub(super) fn into_list(self) -> Vec<Hit> {
        self.rules.into_iter().map(|(_, hit)| hit).collect()
    }
}

fn address(active: &Active, scope: Scope) -> Option<String> {
    match scope {
        Scope::One(id) => {
            let server = active.servers.iter().find(|server| server.id == id);
            server.map(|server| format!("/mcp/{}", server.name()))
        }
        Scope::All => None,
        Scope::Discovery => Some("execute_tool".into()),
    }
}
