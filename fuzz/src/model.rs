//! Naive reference model of the policy contract, for tool calls and entries without conditions.
//!
//! It interprets the source directly, without compiling it, and shares only the source types with
//! the engine. It returns verdicts, not steps.

use serde_json::{Map, Value};
use toolward_policy::source::*;
use toolward_policy::{Hints, Verdict};

use crate::reference::{glob, is_hint, is_wildcard, named_actions, names_tool};

/// A call, with everything that a rule can match.
pub struct ModelCall<'a> {
    pub agent: Option<&'a str>,
    pub server: &'a str,
    pub tool: &'a str,
    pub definition: &'a Map<String, Value>,
    pub hints: &'a Hints,
    pub action_keys: &'a [Box<str>],
    pub action: Option<&'a str>,
    pub arguments: Option<&'a Map<String, Value>>,
}

/// The entries of one side that apply to the server, in file order.
struct List<'a> {
    entries: Vec<&'a Entry>,
    deny: bool,
}

enum Action {
    Missing,
    Is(String),
    Ambiguous,
}

pub fn has_conditions(layers: &[LayerSource]) -> bool {
    layers.iter().any(|layer| match &layer.rules {
        RulesSource::ReadOnly => false,
        RulesSource::Allowlist(list) => list.tools.iter().any(|entry| entry.when.is_some()),
        RulesSource::Agents(agents) => agents.agents.iter().any(|(_, agent)| {
            let lists = agent.allow.tools.iter().chain(&agent.deny.tools);
            lists.flat_map(|list| &list.entries).any(|entry| entry.when.is_some())
        }),
    })
}

/// The verdict of all layers on an exposed tool.
pub fn verdict(layers: &[LayerSource], call: &ModelCall<'_>) -> Verdict {
    let each = layers.iter().map(|layer| match &layer.rules {
        RulesSource::ReadOnly if call.hints.contains("read-only") => Verdict::Allow,
        RulesSource::ReadOnly => Verdict::Deny,
        RulesSource::Allowlist(list) => allowlist(list, call),
        RulesSource::Agents(agents) => agents_layer(agents, call),
    });
    each.max().unwrap_or(Verdict::Allow)
}

fn agents_layer(layer: &AgentsSource, call: &ModelCall<'_>) -> Verdict {
    let find = |name: &str| layer.agents.iter().find(|(own, _)| own == name);
    let own = call.agent.and_then(find);
    let fallback = || if layer.deny_on_missing_agent { None } else { find("default") };
    let Some((_, agent)) = own.or_else(fallback) else { return Verdict::Deny };

    let fold = |text: &str| folded(text, agent.case);
    let server = fold(call.server);
    let covers = |entries: &[Entry]| entries.iter().any(|e| glob(&fold(&e.selector), &server));
    if covers(&agent.deny.servers) || !covers(&agent.allow.servers) {
        return Verdict::Deny;
    }
    let applies = |list: &&KeyedList| glob(&fold(&list.key), &server);
    let lists = [(&agent.deny, true), (&agent.allow, false)].map(|(side, deny)| {
        let lists = side.tools.iter().filter(applies);
        List { entries: lists.flat_map(|list| &list.entries).collect(), deny }
    });
    let names = [fold(call.tool)];
    let Ok(action) = action_of(&lists, &names, agent.case, call) else { return Verdict::Deny };
    for list in &lists {
        for wildcard in [false, true] {
            for entry in &list.entries {
                if is_wildcard(&entry.selector) == wildcard
                    && matches(entry, list.deny, &names, agent.case, action.as_deref(), call)
                {
                    return outcome(entry, list.deny);
                }
            }
        }
    }
    if lists[1].entries.is_empty() { Verdict::Allow } else { Verdict::Deny }
}

fn allowlist(list: &AllowlistSource, call: &ModelCall<'_>) -> Verdict {
    let (server, tool) = (folded(call.server, list.case), folded(call.tool, list.case));
    let names = [format!("{server}.{tool}"), tool];
    let lists = [List { entries: list.tools.iter().collect(), deny: false }];
    let Ok(action) = action_of(&lists, &names, list.case, call) else { return Verdict::Deny };
    let matching = list
        .tools
        .iter()
        .find(|entry| matches(entry, false, &names, list.case, action.as_deref(), call));
    matching.map_or(Verdict::Deny, |entry| outcome(entry, false))
}

fn outcome(entry: &Entry, deny: bool) -> Verdict {
    match (deny, entry.ask) {
        (true, _) => Verdict::Deny,
        (false, true) => Verdict::Ask,
        (false, false) => Verdict::Allow,
    }
}

fn matches(
    entry: &Entry,
    deny: bool,
    names: &[String],
    case: Case,
    action: Option<&str>,
    call: &ModelCall<'_>,
) -> bool {
    if is_hint(&entry.selector) {
        return entry.selector["hint:".len()..].split('+').all(|tag| call.hints.contains(tag));
    }
    let selector = folded(&entry.selector, case);
    let by_pattern = deny || declares_action(call);
    names.iter().any(|name| {
        names_tool(&selector, name)
            || action.is_some_and(|action| {
                let action = folded(action, case);
                let actions = named_actions(&selector, name, by_pattern);
                actions.iter().any(|(_, pattern)| glob(pattern, &action))
            })
    })
}

/// The action of a call, if an entry names an action of the tool. An ambiguous action denies.
fn action_of(
    lists: &[List<'_>],
    names: &[String],
    case: Case,
    call: &ModelCall<'_>,
) -> Result<Option<String>, ()> {
    let (mut looked_for, mut needed) = (false, false);
    for list in lists {
        for entry in list.entries.iter().filter(|entry| !is_hint(&entry.selector)) {
            let selector = folded(&entry.selector, case);
            for name in names {
                let declares = declares_action(call);
                for (to_the_letter, _) in named_actions(&selector, name, list.deny || declares) {
                    looked_for = true;
                    needed |= list.deny && (to_the_letter || declares);
                }
            }
        }
    }
    if !looked_for {
        return Ok(None);
    }
    match stated(call) {
        Action::Ambiguous => Err(()),
        Action::Missing if needed => Err(()),
        Action::Missing => Ok(None),
        Action::Is(action) => Ok(Some(action)),
    }
}

fn stated(call: &ModelCall<'_>) -> Action {
    if let Some(action) = call.action {
        return Action::Is(action.into());
    }
    let Some(arguments) = call.arguments else { return Action::Missing };
    let mut found: Option<&str> = None;
    for (name, value) in arguments {
        if call.action_keys.iter().any(|key| **key == **name) {
            match (value.as_str(), found) {
                (None, _) => return Action::Ambiguous,
                (Some(action), Some(other)) if action != other => return Action::Ambiguous,
                (Some(action), _) => found = Some(action),
            }
        } else if call.action_keys.iter().any(|key| key.to_lowercase() == name.to_lowercase()) {
            return Action::Ambiguous;
        }
    }
    found.map_or(Action::Missing, |action| Action::Is(action.into()))
}

fn declares_action(call: &ModelCall<'_>) -> bool {
    let properties = call.definition.get("inputSchema").and_then(|s| s.get("properties"));
    let declared = |key: &Box<str>| properties.is_some_and(|all| all.get(&**key).is_some());
    call.action_keys.iter().any(declared)
}

fn folded(text: &str, case: Case) -> String {
    match case {
        Case::Sensitive => text.into(),
        Case::Insensitive => text.to_ascii_lowercase(),
    }
}
