//! Limits and hooks of one agent: for its tools, its listings and its refused calls.

use toolward_gateway::active::Active;
use toolward_gateway::guard::ShownHook;

use super::tools::{ServerTools, Tool};

/// The maximum number of tools named for a limit or hook; the rest is counted.
const MAX_NAMED: usize = 6;

pub(in crate::admin::view) struct LimitRow {
    pub(super) name: String,
    pub(super) rate: String,
    pub(super) counts: String,
}

pub(in crate::admin::view) struct HookRow {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// The consequence of a failure.
    pub(super) failing: &'static str,
    pub(super) arguments: bool,
    pub(super) timeout: String,
    pub(super) covers: String,
}

pub(super) fn of(
    active: &Active,
    agent: Option<&str>,
    servers: &[ServerTools],
) -> (Vec<LimitRow>, Vec<HookRow>) {
    let mut limits: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut hooks: Vec<(ShownHook, Vec<String>)> = Vec::new();
    let tools = || {
        let named = |server| move |tool| (named(server, tool), tool);
        servers.iter().flat_map(move |server| server.callable.iter().map(named(server)))
    };
    for (name, tool) in tools() {
        for limit in &tool.guards.limits {
            let known = limits.iter_mut().find(|(known, ..)| *known == limit.name);
            match known {
                Some((.., tools)) => tools.push(name.clone()),
                None => limits.push((limit.name.clone(), limit.rate.clone(), vec![name.clone()])),
            }
        }
        for hook in &tool.guards.hooks {
            match hooks.iter_mut().find(|(known, _)| known.name == hook.name) {
                Some((_, tools)) => tools.push(name.clone()),
                None => hooks.push((hook.clone(), vec![name.clone()])),
            }
        }
    }
    let all: usize = servers.iter().map(|server| server.callable.len()).sum();
    let row = |(name, rate, tools): (String, String, Vec<String>)| {
        let counts = format!("calls of {}", in_words(&tools, all));
        LimitRow { name, rate, counts }
    };
    let mut rows: Vec<LimitRow> = limits.into_iter().map(row).collect();
    for (limits, counts) in [
        (active.guards.limits_of_lists(agent), "listings"),
        (
            active.guards.limits_of_refused(agent),
            "refused calls; beyond this rate, responses are delayed",
        ),
    ] {
        rows.extend(limits.into_iter().map(|limit| LimitRow {
            name: limit.name,
            rate: limit.rate,
            counts: counts.into(),
        }));
    }
    let hook = |(hook, tools): (ShownHook, Vec<String>)| HookRow {
        name: hook.name,
        kind: hook.kind,
        failing: if hook.critical { "the call is refused" } else { "the call continues" },
        arguments: hook.arguments,
        timeout: format!("{:?}", hook.timeout),
        covers: in_words(&tools, all),
    };
    (rows, hooks.into_iter().map(hook).collect())
}

fn named(server: &ServerTools, tool: &Tool) -> String {
    format!("{}/{}", server.name, tool.name)
}

fn in_words(tools: &[String], all: usize) -> String {
    if tools.len() == all && all > 1 {
        return format!("all {all} tools");
    }
    let named = tools.get(..MAX_NAMED).unwrap_or(tools).join(", ");
    match tools.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
