//! Toolward's own engine, as the gateway uses it.

use std::collections::HashMap;

use toolward_policy::{Call, Caller, Decision, Policy, Row, ToolSet, Verdict};

use crate::world::{Request, World};

pub struct Engine {
    policy: Policy,
    agents: Vec<String>,
    servers: Vec<String>,
    tool_sets: Vec<ToolSet>,
}

/// All rows, computed in advance. The table is dense, with one row per agent and server: a gateway
/// knows the agent from authentication and the server from routing before it decides.
pub struct Rows {
    servers: usize,
    table: Vec<Row>,
}

/// The same rows behind a map from names, for a caller that keeps no indexes.
pub struct RowsByName<'a>(HashMap<(&'a str, &'a str), Row>);

impl Engine {
    pub fn new(world: &World) -> Engine {
        let policy = Policy::compile(world.source()).expect("the generated policy compiles");
        Engine::with(policy, world)
    }

    pub fn with(policy: Policy, world: &World) -> Engine {
        Engine {
            policy,
            agents: world.agents.clone(),
            servers: world.servers.clone(),
            tool_sets: world.tool_sets(),
        }
    }

    pub fn agent(&self, agent: usize) -> Caller<'_> {
        Caller::named(&self.agents[agent])
    }

    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    /// The rows of a new agent: one per server.
    pub fn rows_of(&self, agent: usize) -> Vec<Row> {
        let agent = Some(self.agents[agent].as_str());
        let row = |(server, tools): (&String, &ToolSet)| self.policy.row(agent, server, tools);
        self.servers.iter().zip(&self.tool_sets).map(row).collect()
    }

    pub fn rows(&self) -> Rows {
        let table = (0..self.agents.len()).flat_map(|agent| self.rows_of(agent)).collect();
        Rows { servers: self.servers.len(), table }
    }

    pub fn rows_by_name(&self) -> RowsByName<'_> {
        let mut rows = HashMap::new();
        for (at, agent) in self.agents.iter().enumerate() {
            for (server, row) in self.servers.iter().zip(self.rows_of(at)) {
                rows.insert((agent.as_str(), server.as_str()), row);
            }
        }
        RowsByName(rows)
    }

    pub fn names<'a>(&'a self, request: &Request) -> (&'a str, &'a str) {
        (&self.agents[request.agent], &self.servers[request.server])
    }
}

impl Rows {
    #[inline]
    pub fn decide(&self, caller: Caller<'_>, request: &Request) -> Decision {
        let row = &self.table[request.agent * self.servers + request.server];
        row.decide(caller, &request.tool, &Call::default())
    }
}

impl RowsByName<'_> {
    #[inline]
    pub fn decide(&self, names: (&str, &str), tool: &str) -> Decision {
        self.0[&names].decide(Caller::named(names.0), tool, &Call::default())
    }
}

/// The number of tools in a listing, which decides on all tools of the rows.
pub fn shown(rows: &[Row], caller: Caller<'_>) -> usize {
    let cells = rows.iter().flat_map(|row| row.iter());
    cells.filter(|(_, cell)| cell.list(caller).decision.verdict != Verdict::Deny).count()
}
