//! A minimal gateway, for tests of refusals.
#![allow(dead_code, clippy::unwrap_used)]

use serde_json::{Map, Value, json};
use toolward_policy::allowed::{Allowed, Offer};
use toolward_policy::call::stated_action;
use toolward_policy::refusal::{Redact, Refusal, Sent};
use toolward_policy::{Call, Caller, Policy, Row, Tool, ToolSet, Verdict};

use super::policy;

/// One policy, some servers, and the agent `dev`.
pub struct World {
    pub policy: Policy,
    pub servers: Vec<(&'static str, Row)>,
    prefixed: bool,
}

impl World {
    pub fn new(rules: Value, servers: Vec<(&'static str, Vec<Tool>)>) -> World {
        let policy = policy(&rules);
        let row = |(server, tools)| (server, policy.row(Some("dev"), server, &ToolSet::new(tools)));
        let servers = servers.into_iter().map(row).collect();
        World { policy, servers, prefixed: false }
    }

    /// Names as on `/mcp`: `server__tool`.
    pub fn prefixed(self) -> World {
        World { prefixed: true, ..self }
    }

    pub fn allowed(&self) -> Allowed {
        let caller = Caller::named("dev");
        let offers: Vec<Offer<'_>> = self
            .servers
            .iter()
            .map(|(server, row)| {
                let prefix = if self.prefixed { format!("{server}__") } else { String::new() };
                let name = |(tool, cell): (&Tool, &toolward_policy::Cell)| {
                    let listed = cell.list(caller).decision.verdict != Verdict::Deny;
                    listed.then(|| format!("{prefix}{}", tool.name()).into())
                };
                Offer { server, names: row.iter().map(name).collect(), prefix, row }
            })
            .collect();
        self.policy.allowed(caller, &offers)
    }

    /// The refusal of a call by the name that the agent sent.
    pub fn call(&self, name: &str, arguments: Value) -> Refusal {
        self.call_with(name, arguments, &())
    }

    pub fn call_with(&self, name: &str, arguments: Value, redact: &dyn Redact) -> Refusal {
        let caller = Caller::named("dev");
        let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        let call = Call::with(&arguments);
        let listed = self.servers.iter().find_map(|(server, row)| {
            let tool = match self.prefixed {
                true => name.strip_prefix(server)?.strip_prefix("__")?,
                false => name,
            };
            let cell = row.cell(tool)?;
            (cell.list(caller).decision.verdict != Verdict::Deny).then_some(cell)
        });
        let action = match listed {
            Some(cell) => cell.stated_action(&call),
            None => stated_action(&call),
        };
        let why = listed.map(|cell| {
            let decision = cell.decide(caller, &call);
            assert_ne!(decision.verdict, Verdict::Allow, "{name} is allowed");
            self.policy.why(cell, caller, &call, decision)
        });
        let sent = Sent { tool: name, action: action.as_deref(), arguments: Some(&arguments) };
        self.allowed().refuse(&self.policy, sent, why.as_ref(), redact, "66064ca24dc9f")
    }

    pub fn message(&self, name: &str) -> String {
        self.call(name, json!({})).message
    }
}

pub fn tools(names: &[&str]) -> Vec<Tool> {
    names.iter().map(|name| Tool::named(name)).collect()
}

pub fn definition(name: &str, definition: Value) -> Tool {
    Tool::new(name, definition.as_object().unwrap())
}

pub fn dev(allow: Value, deny: Value) -> Value {
    json!({"agents": {"dev": {"allow": allow, "deny": deny}}})
}
