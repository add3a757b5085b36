//! A linear scan with fnmatch, as most gateways do it.

use toolward_policy::fnmatch::Pattern;

use super::Contender;
use crate::world::{Request, World};

pub struct Linear {
    name: &'static str,
    /// Deny rules first, so that the first match decides.
    lists: Vec<Vec<Rule>>,
    requests: Vec<(usize, Asked)>,
}

struct Rule {
    agent: String,
    server: Pattern,
    tool: Pattern,
    deny: bool,
}

struct Asked {
    agent: String,
    server: String,
    tool: String,
}

impl Linear {
    /// One list of all rules, in file order.
    pub fn over_all_rules(world: &World, requests: &[Request]) -> Linear {
        let list = rules(world, |_| true);
        let requests = requests.iter().map(|request| (0, asked(world, request))).collect();
        Linear { name: "linear fnmatch scan", lists: vec![list], requests }
    }

    /// One list per agent, found by index.
    pub fn over_own_rules(world: &World, requests: &[Request]) -> Linear {
        let lists = (0..world.agents.len()).map(|agent| rules(world, |own| own == agent)).collect();
        let requests = requests.iter().map(|r| (r.agent, asked(world, r))).collect();
        Linear { name: "linear scan, own rules only", lists, requests }
    }
}

impl Contender for Linear {
    fn name(&self) -> &'static str {
        self.name
    }

    fn allows(&self, request: usize) -> bool {
        let (list, asked) = &self.requests[request];
        let matches = |rule: &&Rule| {
            rule.agent == asked.agent
                && rule.server.matches(&asked.server)
                && rule.tool.matches(&asked.tool)
        };
        self.lists[*list].iter().find(matches).is_some_and(|rule| !rule.deny)
    }
}

fn rules(world: &World, keep: impl Fn(usize) -> bool) -> Vec<Rule> {
    let mut rules: Vec<Rule> = world
        .rules
        .iter()
        .filter(|rule| keep(rule.agent))
        .map(|rule| Rule {
            agent: world.agents[rule.agent].clone(),
            server: Pattern::new(rule.server.map_or("*", |server| &world.servers[server])),
            tool: Pattern::new(&rule.shape.selector()),
            deny: rule.deny,
        })
        .collect();
    rules.sort_by_key(|rule| !rule.deny);
    rules
}

fn asked(world: &World, request: &Request) -> Asked {
    Asked {
        agent: world.agents[request.agent].clone(),
        server: world.servers[request.server].clone(),
        tool: request.tool.to_string(),
    }
}
