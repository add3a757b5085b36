//! Generates policies, tools and calls from arbitrary bytes.
//!
//! Names come from a small vocabulary, so that rules match requests often.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};
use toolward_policy::Tool;
use toolward_policy::source::*;

/// A policy and the requests to decide.
pub struct Scene {
    pub source: Source,
    /// A layer that is added to the others later.
    pub further: LayerSource,
    /// A deny entry that is added later, and its server key.
    pub further_deny: (String, Entry),
    /// The name and definition of each tool.
    pub tools: Vec<(String, Map<String, Value>)>,
    pub requests: Vec<Request>,
}

/// A call: caller, server, action and arguments.
pub struct Request {
    pub agent: Option<String>,
    pub claims: Map<String, Value>,
    pub server: String,
    pub action: Option<String>,
    pub arguments: Option<Map<String, Value>>,
}

const AGENTS: [&str; 3] = ["one", "two", "default"];
const CALLERS: [&str; 5] = ["one", "one", "two", "default", "nobody"];
const SERVERS: [&str; 5] = ["s", "t", "S", "s.a", "a"];
const SERVER_PATTERNS: [&str; 8] = ["*", "s", "s*", "?", "[st]", "S", "t", ""];
const TOOLS: [&str; 14] =
    ["a", "b", "ab", "a.b", "A", "a.b.a", "b.a", "é", "a[b]", "", "hint:x", "s.a", ".", "a.*"];
const PIECES: [&str; 18] = [
    "a", "b", ".", "*", ".*", "?", "[ab]", "[!a]", "A", "[", "]", "é", "s", "-", "!", "hint:x",
    "B", "[b-a]",
];
/// Both halves of `tool.action`.
const HALVES: [&str; 8] = ["a", "b", "*", "?", "[ab]", "a*", "A", "a.b"];
const HINTS: [&str; 6] = [
    "hint:read-only",
    "hint:destructive",
    "hint:open-world+destructive",
    "hint:x",
    "hint:",
    "hint:read-only+closed-world",
];
const TAGS: [&str; 8] = [
    "read-only",
    "destructive",
    "non-destructive",
    "idempotent",
    "open-world",
    "closed-world",
    "x",
    "",
];
const ACTIONS: [&str; 7] = ["a", "b", "A", "ab", "", "a.b", "é"];
const ACTION_KEYS: [&str; 6] = ["what", "action", "op", "Action", "x", "wHat"];
const CONDITIONS: [&str; 18] = [
    "true",
    "false",
    "args.x == 1",
    "action == 'a'",
    "args.missing.y",
    "agent == 'one'",
    "tool.startsWith('a')",
    "'x' in hints",
    "1",
    "has(args.x)",
    "claims.role == 'admin'",
    "definition.name == 'a'",
    "server == 's' && args.x > 1",
    "size(args) > 0 || action == 'b'",
    "action != null && action.startsWith('a')",
    "hints.exists(h, h == 'read-only')",
    "args.all(k, k != 'x')",
    "string(args.x) == '1' ? true : agent == null",
];

pub fn scene(u: &mut Unstructured<'_>) -> Result<Scene> {
    let mut scene = Scene {
        tools: some(u, 3, tool)?,
        requests: (0..4).map(|_| request(u)).collect::<Result<_>>()?,
        source: Source {
            servers: some(u, 2, server)?,
            expose_everywhere: maybe(u, 20, exposure)?,
            // Mostly one layer, because one of several nearly always denies.
            layers: match u.int_in_range(0..=9)? {
                0 => Vec::new(),
                1 => vec![layer(u)?, layer(u)?, layer(u)?],
                2 | 3 => vec![layer(u)?, layer(u)?],
                _ => vec![layer(u)?],
            },
            ..Source::default()
        },
        further: layer(u)?,
        further_deny: (word(u, &SERVER_PATTERNS)?, Entry { ask: false, ..entry(u)? }),
    };
    // Most policies have no conditions, because the model does not support them and parsing them
    // dominates the run time.
    if u.ratio(3, 4)? {
        scene.source.layers.iter_mut().for_each(drop_conditions);
        drop_conditions(&mut scene.further);
        scene.further_deny.1.when = None;
    }
    Ok(scene)
}

fn request(u: &mut Unstructured<'_>) -> Result<Request> {
    Ok(Request {
        agent: maybe_not(u, 8, |u| word(u, &CALLERS))?,
        claims: claims(u)?,
        server: word(u, &SERVERS)?,
        action: maybe(u, 3, |u| word(u, &ACTIONS))?,
        arguments: maybe_not(u, 4, arguments)?,
    })
}

pub fn tools(scene: &Scene) -> Vec<Tool> {
    scene.tools.iter().map(|(name, definition)| Tool::new(name, definition)).collect()
}

fn drop_conditions(layer: &mut LayerSource) {
    let drop_all = |entries: &mut Vec<Entry>| entries.iter_mut().for_each(|e| e.when = None);
    let drop_side = |side: &mut SideSource| {
        let lists = side.tools.iter_mut().chain(&mut side.prompts).chain(&mut side.resources);
        lists.for_each(|list| drop_all(&mut list.entries));
    };
    match &mut layer.rules {
        RulesSource::ReadOnly => {}
        RulesSource::Allowlist(list) => {
            drop_all(&mut list.tools);
            list.prompts.iter_mut().chain(&mut list.resources).for_each(drop_all);
        }
        RulesSource::Agents(agents) => {
            for (_, agent) in &mut agents.agents {
                drop_side(&mut agent.allow);
                drop_side(&mut agent.deny);
            }
        }
    }
}

fn server(u: &mut Unstructured<'_>) -> Result<ServerSource> {
    Ok(ServerSource {
        name: word(u, &SERVERS)?,
        expose: maybe(u, 8, exposure)?,
        expose_prompts: maybe(u, 8, exposure)?,
        hints: some(u, 2, |u| Ok((selector(u)?, some(u, 3, |u| word(u, &TAGS))?)))?,
        trust_annotations: u.ratio(3, 4)?,
        action_keys: match u.int_in_range(0..=3)? {
            0 | 1 => ActionKeysSource::default(),
            2 => ActionKeysSource::All(some(u, 3, |u| word(u, &ACTION_KEYS))?),
            _ => ActionKeysSource::ByTool(some(u, 2, |u| {
                Ok((selector(u)?, some(u, 2, |u| word(u, &ACTION_KEYS))?))
            })?),
        },
    })
}

fn exposure(u: &mut Unstructured<'_>) -> Result<ExposeSource> {
    let entries = some(u, 3, |u| {
        let pattern = u.ratio(1, 2)?;
        Ok(ExposeEntry {
            name: if pattern { selector(u)? } else { word(u, &TOOLS)? },
            display_name: maybe(u, 3, |u| word(u, &TOOLS))?,
            ..ExposeEntry::default()
        })
    })?;
    Ok(ExposeSource { entries, literal: u.ratio(1, 8)? })
}

fn layer(u: &mut Unstructured<'_>) -> Result<LayerSource> {
    let rules = match u.int_in_range(0..=7)? {
        0..=4 => RulesSource::Agents(agents(u)?),
        5 | 6 => RulesSource::Allowlist(AllowlistSource {
            path: "allowed_tools".into(),
            case: case(u)?,
            tools: some(u, 4, entry)?,
            prompts: maybe(u, 3, |u| some(u, 2, entry))?,
            resources: maybe(u, 3, |u| some(u, 2, entry))?,
        }),
        _ => RulesSource::ReadOnly,
    };
    Ok(LayerSource { name: "layer".into(), rules })
}

fn agents(u: &mut Unstructured<'_>) -> Result<AgentsSource> {
    // Names are unique, as in a file.
    let count = u.int_in_range(1..=3)?;
    let agents = AGENTS[..count]
        .iter()
        .map(|name| {
            let agent = AgentSource {
                case: case(u)?,
                allow: side(u, true)?,
                deny: side(u, false)?,
                client_requests: maybe(u, 4, |u| some(u, 2, selector))?,
                roles: Vec::new(),
            };
            Ok((name.to_string(), agent))
        })
        .collect::<Result<_>>()?;
    Ok(AgentsSource { agents, deny_on_missing_agent: u.ratio(1, 2)?, ..AgentsSource::default() })
}

fn side(u: &mut Unstructured<'_>, allow: bool) -> Result<SideSource> {
    let keyed = |u: &mut Unstructured<'_>| {
        let mut entries = some(u, 4, entry)?;
        for entry in &mut entries {
            entry.ask &= allow;
        }
        Ok(KeyedList { key: word(u, &SERVER_PATTERNS)?, entries, ..KeyedList::default() })
    };
    let mut servers: Vec<Entry> = some(u, 2, |u| Ok(word(u, &SERVER_PATTERNS)?.into()))?;
    // Most servers are allowed; otherwise few calls would reach the tool rules.
    if allow && u.ratio(3, 4)? {
        servers.push("*".into());
    }
    Ok(SideSource {
        servers,
        tools: some(u, 3, keyed)?,
        prompts: some(u, 1, keyed)?,
        resources: some(u, 1, keyed)?,
    })
}

fn entry(u: &mut Unstructured<'_>) -> Result<Entry> {
    Ok(Entry {
        selector: selector(u)?,
        when: maybe(u, 5, |u| word(u, &CONDITIONS))?,
        ask: u.ratio(1, 6)?,
        ..Entry::default()
    })
}

fn selector(u: &mut Unstructured<'_>) -> Result<String> {
    match u.int_in_range(0..=9)? {
        0..=2 => word(u, &TOOLS),
        3 => word(u, &HINTS),
        4..=6 => Ok([word(u, &HALVES)?, word(u, &HALVES)?].join(".")),
        _ => Ok(some(u, 5, |u| word(u, &PIECES))?.concat()),
    }
}

fn tool(u: &mut Unstructured<'_>) -> Result<(String, Map<String, Value>)> {
    let name = word(u, &TOOLS)?;
    let mut properties = Map::new();
    for key in some(u, 2, |u| word(u, &ACTION_KEYS))? {
        let schema = match u.int_in_range(0..=2)? {
            0 => json!({"type": "string"}),
            1 => json!({"enum": some(u, 4, |u| word(u, &ACTIONS))?}),
            _ => json!({"enum": [word(u, &ACTIONS)?, null, 1]}),
        };
        properties.insert(key, schema);
    }
    let mut annotations = Map::new();
    for key in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
        if u.ratio(1, 3)? {
            annotations
                .insert(key.into(), u.choose(&[json!(true), json!(false), json!(1)])?.clone());
        }
    }
    let definition = json!({
        "name": name, "inputSchema": {"properties": properties}, "annotations": annotations,
    });
    Ok((name, definition.as_object().cloned().unwrap_or_default()))
}

fn arguments(u: &mut Unstructured<'_>) -> Result<Map<String, Value>> {
    let members = some(u, 3, |u| {
        let value = match u.int_in_range(0..=5)? {
            0..=3 => json!(word(u, &ACTIONS)?),
            4 => json!(1),
            _ => Value::Null,
        };
        Ok((word(u, &ACTION_KEYS)?, value))
    })?;
    Ok(members.into_iter().collect())
}

fn claims(u: &mut Unstructured<'_>) -> Result<Map<String, Value>> {
    let admin = u.ratio(1, 2)?;
    Ok(if admin { Map::from_iter([("role".to_string(), json!("admin"))]) } else { Map::new() })
}

fn case(u: &mut Unstructured<'_>) -> Result<Case> {
    Ok(if u.ratio(1, 3)? { Case::Insensitive } else { Case::Sensitive })
}

fn word(u: &mut Unstructured<'_>, stock: &[&str]) -> Result<String> {
    Ok(u.choose(stock)?.to_string())
}

fn some<T>(
    u: &mut Unstructured<'_>,
    most: usize,
    mut make: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| make(u)).collect()
}

/// Generates a value one time in `times`.
fn maybe<T>(
    u: &mut Unstructured<'_>,
    times: u8,
    make: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    if u.ratio(1, times)? { make(u).map(Some) } else { Ok(None) }
}

/// Generates a value except one time in `times`.
fn maybe_not<T>(
    u: &mut Unstructured<'_>,
    times: u8,
    make: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    if u.ratio(1, times)? { Ok(None) } else { make(u).map(Some) }
}
