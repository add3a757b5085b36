//! Policies and requests from JSON case files, for the tests of this crate only: the strict loader is
//! in toolward-config.
#![allow(dead_code, clippy::unwrap_used)]

pub mod world;

use serde_json::{Map, Value};
use toolward_policy::source::*;
use toolward_policy::{Annotations, Call, Caller, Decision, Hints, Policy, Subject, Tool};

pub fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/data/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn policy(value: &Value) -> Policy {
    Policy::compile(source(value)).unwrap()
}

pub fn source(value: &Value) -> Source {
    let mut layers = Vec::new();
    if value.get("agents").is_some() || value.get("allowed_tools").is_none() {
        layers.push(layer(RulesSource::Agents(agents(value))));
    }
    if let Some(list) = value.get("allowed_tools") {
        let case = match value["case"].as_str() {
            Some("sensitive") => Case::Sensitive,
            _ => Case::Insensitive,
        };
        layers.push(layer(RulesSource::Allowlist(AllowlistSource {
            path: "allowed_tools".into(),
            case,
            tools: entries(list),
            prompts: value.get("allowed_prompts").map(entries),
            resources: value.get("allowed_resources").map(entries),
        })));
    }
    let agents = value["agents"].as_object().into_iter().flatten();
    let agents = agents.map(|(name, agent)| (name.clone(), wording(agent)));
    let refusals = RefusalsSource { everyone: wording(value), agents: agents.collect() };
    let servers = value["action_keys"].as_object().into_iter().flatten();
    let servers = servers.map(|(server, keys)| {
        let keys = keys.as_array().unwrap().iter().map(|key| key.as_str().unwrap().into());
        ServerSource {
            action_keys: ActionKeysSource::All(keys.collect()),
            ..ServerSource::new(server.as_str())
        }
    });
    Source { servers: servers.collect(), layers, refusals, ..Source::default() }
}

fn wording(value: &Value) -> Wording {
    Wording {
        explain_to_agent: value["explain_to_agent"].as_bool(),
        message: value["message"].as_str().map(String::from),
    }
}

fn layer(rules: RulesSource) -> LayerSource {
    LayerSource { name: "policy".into(), rules }
}

fn agents(value: &Value) -> AgentsSource {
    let agents = value["agents"].as_object().into_iter().flatten().map(|(name, agent)| {
        let agent = AgentSource {
            case: match agent["case"].as_str() {
                Some("insensitive") => Case::Insensitive,
                _ => Case::Sensitive,
            },
            allow: side(&agent["allow"]),
            deny: side(&agent["deny"]),
            roles: strings(&agent["roles"]).unwrap_or_default(),
            client_requests: strings(&agent["allow"]["client_requests"]),
        };
        (name.clone(), agent)
    });
    let roles = value["roles"].as_object().into_iter().flatten().map(|(name, role)| {
        let role = RoleSource {
            allow: side(&role["allow"]),
            deny: side(&role["deny"]),
            client_requests: strings(&role["allow"]["client_requests"]),
        };
        (name.clone(), role)
    });
    AgentsSource {
        agents: agents.collect(),
        roles: roles.collect(),
        patterns: value["patterns"].as_bool().unwrap_or(false),
        deny_on_missing_agent: value["defaults"]["deny_on_missing_agent"].as_bool().unwrap_or(true),
    }
}

fn strings(value: &Value) -> Option<Vec<String>> {
    Some(value.as_array()?.iter().map(|text| text.as_str().unwrap().into()).collect())
}

fn side(value: &Value) -> SideSource {
    SideSource {
        servers: entries(&value["servers"]),
        tools: keyed(&value["tools"]),
        prompts: keyed(&value["prompts"]),
        resources: keyed(&value["resources"]),
    }
}

fn keyed(value: &Value) -> Vec<KeyedList> {
    let lists = value.as_object().into_iter().flatten();
    lists
        .map(|(key, list)| KeyedList {
            key: key.clone(),
            entries: entries(list),
            ..KeyedList::default()
        })
        .collect()
}

pub fn entries(value: &Value) -> Vec<Entry> {
    let entry = |entry: &Value| match entry {
        Value::String(selector) => Entry::new(selector),
        entry => Entry {
            selector: entry["tool"].as_str().unwrap().into(),
            when: entry["when"].as_str().map(String::from),
            scope: entry["scope"].as_str().map(String::from),
            ask: ask(&entry["ask"]),
            message: entry["message"].as_str().map(String::from),
            limit: entry["limit"].as_u64().map(per_minute),
            ..Entry::default()
        },
    };
    value.as_array().into_iter().flatten().map(entry).collect()
}

fn per_minute(count: u64) -> toolward_policy::Rate {
    toolward_policy::Rate { count, per: toolward_policy::rate::Per::Minute, burst: None }
}

fn ask(value: &Value) -> Option<Ask> {
    let approvers = value["approvers"].as_array().into_iter().flatten();
    let approvers = approvers.filter_map(|name| name.as_str().map(String::from)).collect();
    let asks = value.as_bool().unwrap_or(value.is_object());
    asks.then(|| Ask { approvers, ..Ask::default() })
}

/// The query of a `decide` request, by its contract.
pub struct Request {
    pub agent: Option<String>,
    pub server: String,
    pub tool: Tool,
    pub hints: Option<Hints>,
    pub action: Option<String>,
    pub arguments: Option<Map<String, Value>>,
    pub query: String,
}

impl Request {
    pub fn new(value: &Value) -> Request {
        let text = |key: &str| value[key].as_str().map(String::from);
        let definition = value["definition"].as_object().cloned().unwrap_or_default();
        let mut tool = Tool::new(value["tool"].as_str().unwrap_or(""), &definition);
        if value["annotations"].is_object() {
            tool = tool.with_annotations(Annotations::of(value.get("annotations")));
        }
        let action = text("action");
        if action.is_some() {
            tool = tool.with_declared_action();
        }
        Request {
            agent: text("agent"),
            server: text("server").unwrap(),
            tool,
            hints: value["hints"]
                .as_array()
                .map(|tags| Hints::new(tags.iter().map(|tag| tag.as_str().unwrap()))),
            action,
            arguments: value["arguments"].as_object().cloned(),
            query: text("query").unwrap_or_else(|| "call".into()),
        }
    }

    pub fn caller(&self) -> Caller<'_> {
        Caller { agent: self.agent.as_deref(), claims: None }
    }

    pub fn call(&self) -> Call<'_> {
        Call {
            action: self.action.as_deref(),
            arguments: self.arguments.as_ref().map(|arguments| arguments as _),
        }
    }

    pub fn hints(&self, policy: &Policy) -> Hints {
        self.hints.clone().unwrap_or_else(|| policy.hints(&self.server, &self.tool))
    }

    pub fn decide(&self, policy: &Policy) -> Decision {
        let hints = self.hints(policy);
        let agent = self.agent.as_deref();
        let cell = policy.cell(agent, &self.server, Subject::Tool(&self.tool, &hints));
        match self.query.as_str() {
            "server" => policy.decide_server(agent, &self.server),
            "list" => cell.list(self.caller()).decision,
            _ => cell.decide(self.caller(), &self.call()),
        }
    }
}
