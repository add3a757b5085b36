//! Random pairs of small policies.

use serde_json::{Value, json};
use toolward_policy::Policy;
use toolward_policy::source::{
    ActionKeysSource, AdminSource, ExposeEntry, ExposeSource, LayerSource, RulesSource,
    ServerSource,
};
use toolward_policy::testing::{TestArguments, WrittenNumber};

use crate::common::source;

/// A small generator: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const SELECTORS: [&str; 24] = [
    "a",
    "b",
    "ab",
    "a*",
    "*b",
    "*",
    "?a",
    "[ab]",
    "[!a]*",
    "a.*",
    "a.b",
    "a.a",
    "*.b",
    "b.a*",
    "a_*",
    "*a*b*",
    "A",
    "a.a.b",
    "hint:read-only",
    "hint:destructive",
    "hint:read-only+closed-world",
    "hint:x",
    "",
    "ab.[ab]",
];
const CONDITIONS: [&str; 12] = [
    "args.n > 1",
    "args.n <= 1",
    "args.n == 2 || args.p == \"a\"",
    "args.p.startsWith(\"a\")",
    "has(args.p) && args.p.endsWith(\"b\")",
    "!args.p.contains(\"b\")",
    "args.p in [\"a\", \"b\"]",
    "tool == \"a\"",
    "action == \"b\"",
    "agent == \"a\"",
    "server.startsWith(\"a\")",
    "\"read-only\" in hints",
];
const SERVERS: [&str; 6] = ["*", "a", "b", "a*", "?", "ab"];

fn entry(random: &mut Random, allow: bool) -> Value {
    let selector = random.pick(&SELECTORS);
    let mut entry = json!({"tool": selector});
    if random.one_in(5) {
        entry["when"] = json!(random.pick(&CONDITIONS));
    }
    if allow && random.one_in(8) {
        entry["ask"] = json!(true);
    }
    entry
}

fn entries(random: &mut Random, allow: bool, most: usize) -> Value {
    (0..random.below(most + 1)).map(|_| entry(random, allow)).collect()
}

fn names(random: &mut Random, most: usize) -> Value {
    let from: Vec<&str> =
        SELECTORS.iter().filter(|one| !one.starts_with("hint")).copied().collect();
    (0..random.below(most + 1)).map(|_| json!(random.pick(&from))).collect()
}

fn side(random: &mut Random, allow: bool) -> Value {
    let mut tools = json!({});
    for _ in 0..random.below(3) {
        tools[random.pick(&SERVERS)] = entries(random, allow, 3);
    }
    let servers = match allow {
        true => (0..1 + random.below(2)).map(|_| json!(random.pick(&SERVERS))).collect::<Value>(),
        false if random.one_in(4) => json!([random.pick(&SERVERS)]),
        false => json!([]),
    };
    let mut side = json!({"servers": servers, "tools": tools});
    if random.one_in(4) {
        let mut prompts = names(random, 2);
        if let Some(entry) = prompts.get_mut(0).filter(|_| random.one_in(2)) {
            *entry = json!({"tool": entry, "when": random.pick(&CONDITIONS)});
        }
        side["prompts"] = json!({random.pick(&SERVERS): prompts});
        side["resources"] = json!({random.pick(&SERVERS): names(random, 2)});
    }
    if allow && random.one_in(5) {
        side["client_requests"] = json!(["sampling", "roots"][..1 + random.below(2)]);
    }
    side
}

fn agent(random: &mut Random) -> Value {
    let mut agent = json!({"allow": side(random, true), "deny": side(random, false)});
    if random.one_in(4) {
        agent["case"] = json!("insensitive");
    }
    agent
}

fn random_policy(random: &mut Random) -> Value {
    let mut policy = json!({});
    if !random.one_in(4) {
        policy["agents"] = json!({"a": agent(random)});
        for name in ["b", "a?", "default"] {
            if random.one_in(2) {
                policy["agents"][name] = agent(random);
            }
        }
        policy["patterns"] = json!(true);
        policy["defaults"] = json!({"deny_on_missing_agent": random.one_in(2)});
    }
    if random.one_in(3) || policy.get("agents").is_none() {
        policy["allowed_tools"] = entries(random, true, 4);
        if random.one_in(3) {
            policy["case"] = json!("sensitive");
        }
        if random.one_in(3) {
            policy["allowed_prompts"] = names(random, 2);
        }
    }
    if random.one_in(8) {
        policy["read_only"] = json!(true);
    }
    if random.one_in(6) {
        policy["admins"] = json!({"ann": [random.pick(&["a/*", "*/a*", "*b", "a/b"])]});
    }
    if random.one_in(3) {
        policy["servers"] = json!({"a": server(random)});
    }
    policy
}

fn server(random: &mut Random) -> Value {
    let mut server = json!({});
    if random.one_in(3) {
        server["hints"] = json!({"a*": ["read-only"], "ab": ["x"]});
    }
    if random.one_in(4) {
        server["trust_annotations"] = json!(false);
    }
    if random.one_in(3) {
        server["action_keys"] =
            [json!(["op"]), json!(["op", "action"]), json!([])][random.below(3)].clone();
    }
    if random.one_in(4) {
        server["expose_prompts"] = [json!(["a*"]), json!([])][random.below(2)].clone();
    }
    if random.one_in(4) {
        server["expose"] = [json!(["a"]), json!(["a*", "b"]), json!([])][random.below(3)].clone();
    }
    server
}

/// A policy, and another one that differs from it in one place, or in all of them.
pub fn pair(random: &mut Random) -> (Value, Value) {
    let old = random_policy(random);
    if random.one_in(5) {
        return (old, random_policy(random));
    }
    let mut new = old.clone();
    for _ in 0..1 + random.below(2) {
        let other = random_policy(random);
        mutate(random, &mut new, &other);
    }
    (old, new)
}

/// Replaces, adds or removes something, as deep as it happens to be.
fn mutate(random: &mut Random, value: &mut Value, other: &Value) {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) if !other.is_empty() => {
            let keys: Vec<String> = value.keys().chain(other.keys()).cloned().collect();
            let key = &keys[random.below(keys.len())];
            match (value.get_mut(key), other.get(key)) {
                (Some(inner), Some(other)) if !random.one_in(6) => mutate(random, inner, other),
                (Some(_), _) if random.one_in(3) && key != "tool" && key != "agents" => {
                    value.remove(key);
                }
                (_, Some(other)) => drop(value.insert(key.clone(), other.clone())),
                _ => {}
            }
        }
        (Value::Array(value), Value::Array(other)) => {
            let at = random.below(value.len() + 1);
            match (random.below(3), other.first()) {
                (0, _) if at < value.len() => drop(value.remove(at)),
                (1, Some(other)) => value.insert(at, other.clone()),
                (_, Some(other)) if at < value.len() => value[at] = other.clone(),
                _ => value.reverse(),
            }
        }
        (value, other) => *value = other.clone(),
    }
}

/// Compiles a policy with the settings of servers that the plain form of the tests does not have.
pub fn policy(value: &Value) -> Policy {
    let mut plain = value.clone();
    let mut take = |key: &str| plain.as_object_mut().and_then(|members| members.remove(key));
    let (servers, read_only, admins) = (take("servers"), take("read_only"), take("admins"));
    let mut source = source(&plain);
    if let Some(Value::Object(admins)) = admins {
        let admin = |(name, approve): (String, Value)| AdminSource {
            name,
            approve: approve.as_array().unwrap().iter().filter_map(text).collect(),
        };
        source.approvers.admins = Some(admins.into_iter().map(admin).collect());
    }
    if read_only == Some(json!(true)) {
        source.layers.push(LayerSource { name: "read-only".into(), rules: RulesSource::ReadOnly });
    }
    for (name, settings) in servers.iter().filter_map(Value::as_object).flatten() {
        let strings = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(String::from).collect()
        };
        let mut server = ServerSource::new(name.as_str());
        server.trust_annotations = settings["trust_annotations"].as_bool().unwrap_or(true);
        if settings["action_keys"].is_array() {
            server.action_keys = ActionKeysSource::All(strings(&settings["action_keys"]));
        }
        for (tool, tags) in settings["hints"].as_object().into_iter().flatten() {
            server.hints.push((tool.clone(), strings(tags)));
        }
        let exposed = |value: &Value| -> Option<ExposeSource> {
            let entry = |name: String| ExposeEntry { name, ..ExposeEntry::default() };
            let mut names = value.is_array().then(|| strings(value))?;
            names.sort();
            names.dedup();
            Some(ExposeSource { entries: names.into_iter().map(entry).collect(), literal: false })
        };
        server.expose = exposed(&settings["expose"]);
        server.expose_prompts = exposed(&settings["expose_prompts"]);
        source.servers.push(server);
    }
    Policy::compile(source).unwrap()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(String::from)
}

/// Arguments with their numbers.
pub fn arguments(value: &Value) -> TestArguments {
    let members = value.as_object().unwrap().clone();
    let number = |(key, value): (&String, &Value)| {
        let text = value.as_number()?.to_string().into();
        Some(WrittenNumber { path: vec![Some(key.as_str().into())], text })
    };
    let numbers = members.iter().filter_map(number).collect();
    TestArguments { members, numbers }
}
