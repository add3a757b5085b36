//! Enumerates all rules of a policy.

use crate::decision::{Kind, LimitedRule, RuleRef, Side};
use crate::layer::{List, Lists, Rules};
use crate::policy::Policy;
use crate::rate::Rate;

impl Policy {
    /// The rules that can decide a call, by layer, in file order.
    pub fn rules(&self) -> Vec<(u16, RuleRef)> {
        let mut all = Vec::new();
        for (layer, rules) in self.layers.iter().enumerate() {
            let layer = layer as u16;
            match &rules.rules {
                Rules::ReadOnly => {}
                Rules::Allowlist(list) => {
                    let entries = 0..list.tools.rules.len() as u32;
                    all.extend(entries.map(|entry| (layer, RuleRef::in_allowlist(entry))));
                }
                Rules::Agents(agents) => {
                    for (agent, rules) in agents.agents.iter().enumerate() {
                        let mut add = |side: Side, lists: &Lists| {
                            let found = of_side(side, agent as u32, lists);
                            all.extend(found.into_iter().map(|rule| (layer, rule)));
                        };
                        add(Side::Allow, &rules.allow);
                        add(Side::Deny, &rules.deny);
                    }
                }
            }
        }
        all
    }

    /// The agent whose rules include a limited entry, as written; `None` in an allowlist.
    pub fn agent_of(&self, limited: LimitedRule) -> Option<&str> {
        match &self.layers.get(usize::from(limited.layer))?.rules {
            Rules::Agents(layer) => {
                layer.agents.get(limited.rule.agent as usize).map(|agent| &*agent.name)
            }
            _ => None,
        }
    }

    /// All entries with a `limit`, in layer and file order.
    pub fn limits(&self) -> Vec<(LimitedRule, Rate)> {
        let mut limits = Vec::new();
        for (layer, rules) in self.layers.iter().enumerate() {
            let mut add = |list: &List, at: &dyn Fn(u32) -> RuleRef| {
                for (entry, rule) in list.rules.iter().enumerate() {
                    if let Some(rate) = rule.limit {
                        let at = LimitedRule { layer: layer as u16, rule: at(entry as u32) };
                        limits.push((at, rate));
                    }
                }
            };
            match &rules.rules {
                Rules::ReadOnly => {}
                Rules::Allowlist(list) => add(&list.tools, &RuleRef::in_allowlist),
                Rules::Agents(layer) => {
                    for (agent, rules) in layer.agents.iter().enumerate() {
                        for (key, list) in rules.allow.tools.iter().enumerate() {
                            add(list, &|entry| {
                                RuleRef::allowed_tool(agent as u32, key as u32, entry)
                            });
                        }
                    }
                }
            }
        }
        limits
    }
}

fn of_side(side: Side, agent: u32, lists: &Lists) -> Vec<RuleRef> {
    let servers = 0..lists.servers.len() as u32;
    let kind = Kind::Servers;
    let mut all: Vec<RuleRef> =
        servers.map(|entry| RuleRef { side, kind, agent, key: 0, entry }).collect();
    for (key, list) in lists.tools.iter().enumerate() {
        let (kind, key) = (Kind::Tools, key as u32);
        let entries = 0..list.rules.len() as u32;
        all.extend(entries.map(|entry| RuleRef { side, kind, agent, key, entry }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{
        AgentSource, AgentsSource, AllowlistSource, Case, Entry, KeyedList, LayerSource,
        RulesSource, SideSource, Source,
    };

    #[test]
    fn every_rule_has_an_address_that_leads_to_it() {
        let list = |key: &str, entries: &[&str]| KeyedList {
            key: key.into(),
            entries: entries.iter().map(|entry| Entry::new(*entry)).collect(),
            ..KeyedList::default()
        };
        let agent = AgentSource {
            allow: SideSource {
                servers: vec!["*".into()],
                tools: vec![list("a", &["x", "y_*"]), list("b", &["hint:read-only"])],
                ..SideSource::default()
            },
            deny: SideSource { tools: vec![list("*", &["z"])], ..SideSource::default() },
            ..AgentSource::default()
        };
        let agents = AgentsSource { agents: vec![("d".into(), agent)], ..AgentsSource::default() };
        let tools = vec!["x".into(), "z".into()];
        let allowlist = AllowlistSource {
            path: "allowed_tools".into(),
            case: Case::Sensitive,
            tools,
            prompts: None,
            resources: None,
        };
        let layer = |rules| LayerSource { name: "f".into(), rules };
        let layers = vec![
            layer(RulesSource::Agents(agents)),
            layer(RulesSource::ReadOnly),
            layer(RulesSource::Allowlist(allowlist)),
        ];
        let policy = Policy::compile(Source { layers, ..Source::default() }).unwrap();
        let paths: Vec<String> = policy
            .rules()
            .into_iter()
            .map(|(layer, rule)| policy.rule_at(layer, rule).unwrap().path)
            .collect();
        assert_eq!(
            paths,
            [
                "agents.d.allow.servers[0]",
                "agents.d.allow.tools.a[0]",
                "agents.d.allow.tools.a[1]",
                "agents.d.allow.tools.b[0]",
                "agents.d.deny.tools[\"*\"][0]",
                "allowed_tools[0]",
                "allowed_tools[1]",
            ]
        );
    }
}
