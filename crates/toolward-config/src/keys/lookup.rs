//! Lookups in the key table: where a key belongs, and advice for unknown ones.

use super::{CLIENT_SERVER, CONFIGURATION, SERVER};
use crate::keys::shape::{KeySpec, Shape};

/// Advice for keys that are common in other systems.
pub(crate) fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "denied_tools" | "deny_tools" | "blocked_tools" | "disallowed_tools" | "denylist" => {
            "an allowlist cannot deny; use `agents` with `deny`"
        }
        "allowlist" | "whitelist" | "tools_allowed" => {
            "an allowlist is a list under `allowed_tools`"
        }
        "plugins" => {
            "a plugin file is a separate layer: list it in `policies` or pass it with `--policy`"
        }
        "include" | "imports" | "layers" => "list further files in `policies`",
        "token" | "api_key" | "password" => {
            "tokens belong in `agents`, as a list: `tokens: [\"${NAME}\"]`"
        }
        "agent" => "`as` names the agent",
        "type" => "a server has `command` or `url`; `transport` selects the kind of HTTP",
        "mode" => "`tools` is an allowlist by itself: remove the key",
        "action" => "every listed tool is allowed: remove the key",
        "disabled" | "enabled" => "remove the entry, or comment it out",
        _ => return None,
    })
}

/// Whether a top-level key marks the file as a whole configuration.
pub(crate) fn is_main_key(name: &str) -> bool {
    let Shape::Keys(groups) = CONFIGURATION else {
        return false;
    };
    groups.iter().copied().flatten().any(|key| key.main_only && key.name == name)
}

/// The keys at the top of a configuration.
pub(crate) fn top_keys() -> impl Iterator<Item = &'static str> {
    let groups: &[&[KeySpec]] = match CONFIGURATION {
        Shape::Keys(groups) => groups,
        _ => &[],
    };
    groups.iter().copied().flatten().map(|key| key.name)
}

/// The keys of a server, with those that clients write.
pub(crate) fn server_keys() -> impl Iterator<Item = &'static str> {
    SERVER.iter().chain(CLIENT_SERVER).map(|key| key.name)
}

/// Paths of mappings that have a key of this name.
pub(crate) fn homes(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Unsupported keys, and `mcpServers` as an alias of `servers`, would be misleading.
    walk(&CONFIGURATION, "", &mut |path, key| {
        if key.name == name && !path.is_empty() && !key.not_yet {
            found.push(path.to_owned());
        }
        !key.not_yet && key.name != "mcpServers"
    });
    found
}

/// Visits every key with the path of its mapping; descends if `visit` returns true.
pub(crate) fn walk(
    shape: &Shape,
    path: &str,
    visit: &mut impl FnMut(&str, &'static KeySpec) -> bool,
) {
    match shape {
        Shape::Keys(groups) => {
            for key in groups.iter().copied().flatten() {
                if !visit(path, key) {
                    continue;
                }
                let below = if path.is_empty() {
                    key.name.to_owned()
                } else {
                    format!("{path}.{}", key.name)
                };
                walk(&key.shape, &below, visit);
            }
        }
        Shape::Table { key, value } => {
            walk(value, &format!("{path}.{}", key.to_uppercase()), visit)
        }
        Shape::OneOrList(item @ Shape::Keys(_)) => walk(item, path, visit),
        Shape::List(item) | Shape::OneOrList(item) => walk(item, &format!("{path}[]"), visit),
        Shape::Either(one, other) => {
            walk(one, path, visit);
            walk(other, path, visit);
        }
        _ => {}
    }
}
