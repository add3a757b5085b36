//! Rule lists of the native format: layers with agents, and allowlists.

use toolward_policy::source::{
    AgentSource, AgentsSource, AllowlistSource, Ask, Case, Entry, KeyedList, RoleSource,
    SideSource, Wording,
};

use crate::diagnostics::sanitize::quoted;
use crate::formats::hint_names::check_selector;
use crate::keys::value_syntax::{duration, rate};
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;

/// The list that contains an entry; some entries are invalid only in some lists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    Allow,
    Deny,
    /// For everyone, without deny syntax.
    Allowlist,
}

/// The agents of a file, as a layer. `patterns`: their names may be patterns.
pub(crate) fn agents(reader: &mut Reader<'_>, root: &Node<'_>, patterns: bool) -> AgentsSource {
    let agents = root.get("agents").into_iter().flat_map(Node::entries);
    let agents = agents.map(|(key, node)| (key.name.to_string(), agent(reader, node))).collect();
    let roles = root.get("roles").into_iter().flat_map(Node::entries);
    let roles = roles.map(|(key, node)| (key.name.to_string(), role(reader, node))).collect();
    AgentsSource { agents, roles, patterns, deny_on_missing_agent: deny_on_missing_agent(root) }
}

pub(crate) fn deny_on_missing_agent(root: &Node<'_>) -> bool {
    let stated = root.get("defaults").and_then(|defaults| defaults.get("deny_on_missing_agent"));
    stated.and_then(Node::as_bool).unwrap_or(true)
}

/// Whether some agent of the main file has rules, and not only an identity.
pub(crate) fn has_rules(root: &Node<'_>) -> bool {
    let mut agents = root.get("agents").into_iter().flat_map(Node::entries);
    agents.any(|(_, agent)| ["allow", "deny", "roles"].iter().any(|key| agent.get(key).is_some()))
}

/// `explain_to_agent` and `message` of a file.
pub(crate) fn wording(node: &Node<'_>) -> Wording {
    Wording {
        explain_to_agent: node.get("explain_to_agent").and_then(Node::as_bool),
        message: node.get("message").and_then(Node::as_str).map(str::to_owned),
    }
}

/// The same for each agent that has one of them.
pub(crate) fn wordings(root: &Node<'_>) -> Vec<(String, Wording)> {
    let agents = root.get("agents").into_iter().flat_map(Node::entries);
    let wordings = agents.map(|(key, node)| (key.name.to_string(), wording(node)));
    wordings.filter(|(_, wording)| !wording.is_empty()).collect()
}

fn agent(reader: &mut Reader<'_>, node: &Node<'_>) -> AgentSource {
    let RoleSource { allow, deny, client_requests } = role(reader, node);
    AgentSource {
        case: case(node).unwrap_or(Case::Sensitive),
        roles: node.get("roles").map(strings).unwrap_or_default(),
        allow,
        deny,
        client_requests,
    }
}

/// `allow` and `deny` of a role or an agent.
fn role(reader: &mut Reader<'_>, node: &Node<'_>) -> RoleSource {
    let mut lists = |key: &str, kind| node.get(key).map(|node| side(reader, node, kind));
    let (allow, deny) = (lists("allow", ListKind::Allow), lists("deny", ListKind::Deny));
    let client_requests = node.get("allow").and_then(|allow| allow.get("client_requests"));
    RoleSource {
        allow: allow.unwrap_or_default(),
        deny: deny.unwrap_or_default(),
        client_requests: client_requests.map(strings),
    }
}

fn case(node: &Node<'_>) -> Option<Case> {
    match node.get("case")?.as_str()? {
        "insensitive" => Some(Case::Insensitive),
        _ => Some(Case::Sensitive),
    }
}

fn side(reader: &mut Reader<'_>, node: &Node<'_>, kind: ListKind) -> SideSource {
    let mut lists = |key: &str| match node.get(key) {
        Some(table) => table
            .entries()
            .map(|(key, list)| KeyedList {
                key: key.name.to_string(),
                entries: entries(reader, list, kind),
                place: reader.place(key.span),
            })
            .collect(),
        None => Vec::new(),
    };
    let (tools, prompts, resources) = (lists("tools"), lists("prompts"), lists("resources"));
    let servers = node.get("servers").map(|list| entries(reader, list, kind)).unwrap_or_default();
    SideSource { servers, tools, prompts, resources }
}

/// The allowlist of a file, if any.
pub(crate) fn allowlist(reader: &mut Reader<'_>, root: &Node<'_>) -> Option<AllowlistSource> {
    let Some(tools) = root.get("allowed_tools") else {
        let beside = ["allowed_prompts", "allowed_resources", "case"];
        for key in
            beside.into_iter().filter_map(|key| root.as_map()?.entry(key)).map(|(key, _)| key)
        {
            let help = match key.name.as_ref() {
                "case" => "add `allowed_tools`; for an agent's rules, set `case` in the agent",
                _ => "add `allowed_tools`, or list them in `allow` of an agent",
            };
            let message =
                format!("{} requires `allowed_tools`, which is missing", quoted(&key.name));
            reader.error(key.span, message, help);
        }
        return None;
    };
    let mut list = |key: &str| root.get(key).map(|list| entries(reader, list, ListKind::Allowlist));
    let (prompts, resources) = (list("allowed_prompts"), list("allowed_resources"));
    Some(AllowlistSource {
        path: "allowed_tools".into(),
        case: case(root).unwrap_or(Case::Insensitive),
        tools: entries(reader, tools, ListKind::Allowlist),
        prompts,
        resources,
    })
}

/// The entries of one list. Entries of the wrong kind were reported by the shape check.
pub(crate) fn entries(reader: &mut Reader<'_>, list: &Node<'_>, kind: ListKind) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(list.items().len());
    for item in list.items() {
        let entry = match &item.value {
            Value::Str(selector) => Entry {
                selector: selector.to_string(),
                place: reader.place(item.span),
                ..Entry::default()
            },
            Value::Map(_) => match options(reader, item, kind) {
                Some(entry) => entry,
                None => continue,
            },
            _ => continue,
        };
        check_selector(reader, &entry.selector, item.span);
        if kind == ListKind::Allowlist {
            check_allowlist_entry(reader, item, &entry.selector);
        }
        entries.push(entry);
    }
    entries
}

fn options(reader: &mut Reader<'_>, item: &Node<'_>, kind: ListKind) -> Option<Entry> {
    if kind == ListKind::Deny {
        for key in ["ask", "limit", "scope"] {
            if let Some((key, _)) = item.as_map().and_then(|map| map.entry(key)) {
                let message = format!("{} is not allowed in a deny entry", quoted(&key.name));
                reader.error(
                    key.span,
                    message,
                    "a denied call is neither approved nor rate \
                    limited, and needs no scope",
                );
            }
        }
    }
    Some(Entry {
        selector: ["tool", "prompt", "resource"]
            .iter()
            .find_map(|key| item.get(key)?.as_str())?
            .to_owned(),
        when: item.get("when").and_then(Node::as_str).map(str::to_owned),
        scope: item.get("scope").and_then(Node::as_str).map(str::to_owned),
        ask: item.get("ask").and_then(ask),
        limit: item.get("limit").and_then(Node::as_str).and_then(|text| rate(text).ok()),
        message: item.get("message").and_then(Node::as_str).map(str::to_owned),
        shadow: item.get("shadow").and_then(Node::as_bool).unwrap_or(false),
        place: reader.place(item.span),
    })
}

/// `ask: true`, or its options.
fn ask(node: &Node<'_>) -> Option<Ask> {
    if node.as_map().is_none() {
        return (node.as_bool() == Some(true)).then(Ask::default);
    }
    let time = |key: &str| node.get(key).and_then(|node| duration(node.as_str()?).ok());
    let approvers = node.get("approvers").map(strings).unwrap_or_default();
    Some(Ask { hold: time("hold"), ttl: time("ttl"), approvers })
}

fn check_allowlist_entry(reader: &mut Reader<'_>, item: &Node<'_>, selector: &str) {
    if selector.starts_with('!') {
        let message = format!("an allowlist cannot deny, and {} begins with `!`", quoted(selector));
        reader.error(item.span, message, "list allowed tools; to deny, use `agents` with `deny`");
    } else if selector.is_empty() {
        reader.warning(item.span, "an empty entry matches no tool", "remove it");
    }
}

/// The strings of a list.
pub(crate) fn strings(list: &Node<'_>) -> Vec<String> {
    list.items().iter().filter_map(Node::as_str).map(str::to_owned).collect()
}
