//! Builds the gateway's limits and hooks from the configuration.

mod scope;
mod unused;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolward_config::Diagnostic;
use toolward_config::config::{
    self, Config, Hook, HookKind, LimitStore, OnStoreError, Rates, Secret,
};
use toolward_config::sanitize;
use toolward_gateway::guard::{
    self, AgentNames, Agents, Counts, Environment, Guards, HookDefinition, LimitDefinition, Redis,
    Selection, Setup, StoreSetup, StoreTimeouts,
};
use toolward_gateway::http_client::Address;
use toolward_gateway::view::discovery::Discovery;
use toolward_policy::fnmatch::is_pattern;
use toolward_policy::reason::RuleText;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;
use toolward_policy::{LimitedRule, Policy, Rate};

use self::scope::{LimitScope, Scope};
use crate::exit::Failure;
use crate::render::count;

pub(crate) use unused::unused;

/// How long a store of limits may take, unless the configuration has other timeouts.
const STORE_TIMEOUTS: StoreTimeouts =
    StoreTimeouts { request: Duration::from_millis(50), connect: Duration::from_secs(1) };

/// The settings of the built-in server.
pub(crate) fn discovery(config: &Config) -> Discovery {
    let progressive =
        config.agents.iter().filter(|a| a.discovery == config::Discovery::Progressive);
    let names = || config.agents.iter().map(|agent| agent.name.as_str());
    let all = Arc::new(names().collect());
    let progressive = progressive.map(|agent| match agent.name.as_str() {
        "default" => others(names()),
        name => Agents::entry(name, &all),
    });
    let described =
        |server: &config::Server| Some((server.name.clone(), server.description.clone()?));
    Discovery {
        progressive: progressive.collect(),
        descriptions: config.servers.iter().filter_map(described).collect(),
    }
}

/// Callers that a file does not name, to which the rules of its `default` apply.
fn others<'a>(named: impl Iterator<Item = &'a str>) -> Agents {
    Agents::except(named.filter(|name| *name != "default"))
}

/// Agents that have rules of their own in every layer with agents.
fn own_agents(config: &Config, policy: &Policy) -> Arc<AgentNames> {
    let names = config.agents.iter().map(|agent| agent.name.as_str()).chain(policy.agents());
    let own = names.filter(|name| *name != "default" && policy.has_rules_of(name));
    Arc::new(own.collect())
}

fn enabled(config: &Config) -> impl Iterator<Item = &Hook> {
    config.hooks.iter().filter(|hook| hook.enabled)
}

/// The guards of a configuration. Unchanged limits keep the counters of `before`. `accept`: truncated hook
/// scripts are accepted.
pub(crate) fn guards(
    config: &Config,
    policy: &Policy,
    before: Option<&Guards>,
    accept: bool,
) -> Result<Guards, Failure> {
    let limits = limits(config, policy);
    let own = own_agents(config, policy);
    let hooks: Vec<HookDefinition> =
        enabled(config).map(|one| hook(one, &own)).collect::<Result<_, _>>()?;
    let store = store(config)?;
    if !limits.is_empty() || !hooks.is_empty() {
        let place = if store.redis.is_some() { "a store" } else { "memory" };
        let (limits, hooks) = (count(limits.len(), "limit"), count(hooks.len(), "hook"));
        tracing::info!(target: "guard", "{limits} counted in {place}, {hooks}");
    }
    let scripts = before.filter(|_| !accept).map(Guards::scripts).cloned().unwrap_or_default();
    let setup = Setup { limits, store, hooks, scripts };
    Guards::new(setup, before).map_err(|why| Failure::invalid(format!("error: {}", sanitize(&why))))
}

fn store(config: &Config) -> Result<StoreSetup, Failure> {
    let fall_back = config.limits.on_store_error == OnStoreError::Memory;
    let LimitStore::Redis(url) = &config.limits.store else {
        return Ok(StoreSetup { redis: None, fall_back });
    };
    let timeouts = StoreTimeouts {
        request: config.limits.timeout.unwrap_or(STORE_TIMEOUTS.request),
        connect: config.limits.connect_timeout.unwrap_or(STORE_TIMEOUTS.connect),
    };
    let redis = Redis::new(url.value().unwrap_or_default(), timeouts);
    // The URL may contain a password, so it is not shown.
    let redis = redis.map_err(|why| Failure::invalid(format!("error: `limits.store`: {why}")))?;
    Ok(StoreSetup { redis: Some(Arc::new(redis.falling_back(fall_back))), fall_back })
}

/// All limits, each with an identity that is the same in every gateway with this configuration.
fn limits(config: &Config, policy: &Policy) -> Vec<LimitDefinition> {
    let mut limits = Vec::new();
    let all = Selection::default();
    add(
        &mut limits,
        "limits",
        (&all, &Scope::of(LimitScope::Everyone)),
        &config.limits.rates,
        true,
    );
    for server in &config.servers {
        let whom = Selection::default().server(&server.name);
        let path = format!("servers{}.limits", key(&server.name));
        let scope = Scope { sharing: LimitScope::Everyone, server: Some(&server.name) };
        add(&mut limits, &path, (&whom, &scope), &server.limits, false);
    }
    for file in &config.agent_limits {
        let all = Arc::new(file.agents.iter().map(|(name, _)| name.as_str()).collect());
        for (name, rates) in &file.agents {
            let (whom, sharing) = match name.as_str() {
                // Its limits apply to every agent that the file does not name.
                "default" => {
                    (others(file.agents.iter().map(|(name, _)| name.as_str())), LimitScope::Unnamed)
                }
                name if is_pattern(name) => (Agents::entry(name, &all), LimitScope::Pattern),
                name => (Agents::entry(name, &all), LimitScope::Agent),
            };
            let path = format!("agents{}.limits", key(name));
            let whom = Selection::of(whom);
            add(&mut limits, &path, (&whom, &Scope::of(sharing)), rates, true);
        }
    }
    for (rule, rate) in policy.limits() {
        let Some(text) = policy.rule_at(rule.layer, rule.rule) else { continue };
        let identity = entry(policy, rule, &text);
        let counts = Counts::Rule(rule);
        let scope = Scope::of_rule(policy.agent_of(rule)).calls(Some(&text.selector));
        limits.push(LimitDefinition { identity, name: text.path, scope, counts, rate });
    }
    // An entry that is written twice has two counters.
    let mut seen: HashMap<String, usize> = HashMap::new();
    for limit in &mut limits {
        let count = seen.entry(format!("{} {}", limit.identity, limit.rate)).or_default();
        *count += 1;
        if *count > 1 {
            limit.identity.push_str(&format!("#{count}"));
        }
    }
    limits
}

/// The identity of a policy entry: its content rather than its position, which changes when another entry is
/// inserted before it.
fn entry(policy: &Policy, at: LimitedRule, rule: &RuleText) -> String {
    let list = rule.path.rsplit_once('[').map_or(rule.path.as_str(), |(list, _)| list);
    match policy.agent_of(at).filter(|_| rule.role.is_some()) {
        // Each agent with the role has a limit of its own.
        Some(agent) => json!([list, rule.selector, rule.when, agent]).to_string(),
        None => json!([list, rule.selector, rule.when]).to_string(),
    }
}

fn add(
    limits: &mut Vec<LimitDefinition>,
    path: &str,
    (whom, scope): (&Selection, &Scope<'_>),
    rates: &Rates,
    qualified: bool,
) {
    let mut push = |name: String, scope: String, counts: Counts, rate: Rate| {
        let identity = name.clone();
        limits.push(LimitDefinition { name, identity, scope, counts, rate });
    };
    if let Some(rate) = rates.calls {
        push(format!("{path}.calls"), scope.calls(None), Counts::Calls(whom.clone()), rate);
    }
    for (pattern, rate) in &rates.tools {
        let (whom, tool) = match pattern.split_once('/').filter(|_| qualified) {
            Some((server, tool)) => (whom.clone().servers([server]), tool),
            None => (whom.clone(), pattern.as_str()),
        };
        let name = format!("{path}.tools{}", key(pattern));
        push(name, scope.calls(Some(pattern)), Counts::Calls(whom.tool(tool)), *rate);
    }
    if let Some(rate) = rates.lists {
        push(format!("{path}.lists"), scope.listings(), Counts::Lists(whom.clone()), rate);
    }
    if let Some(rate) = rates.refused {
        let counts = Counts::Refused(whom.clone());
        push(format!("{path}.refused"), scope.calls(None), counts, rate);
    }
}

/// A mapping key in the path of a rule.
fn key(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(plain) {
        true => format!(".{name}"),
        false => format!("[{}]", serde_json::Value::from(name)),
    }
}

/// Whether any call has limits or hooks.
pub(crate) fn any(config: &Config, policy: &Policy) -> bool {
    enabled(config).next().is_some() || !limits(config, policy).is_empty()
}

/// Checks that limits and hooks can be built from a configuration with resolved secrets.
pub(crate) fn can_be_built(config: &Config, policy: &Policy) -> Result<(), Failure> {
    let own = own_agents(config, policy);
    for one in enabled(config) {
        drop(hook(one, &own)?);
    }
    store(config).map(drop)
}

/// Hooks that would fail as configured.
pub(crate) fn findings(config: &Config) -> Vec<Diagnostic> {
    let finding = |hook: &Hook| {
        let name = &hook.name;
        match &hook.kind {
            HookKind::PolicySh(file) => {
                let why = guard::usable_policy_file(file).err()?;
                let help = "the gateway does not start like this";
                Some(Diagnostic::error(format!("the hook `{name}`: {why}")).help(help))
            }
            HookKind::Exec { program, .. } => {
                let declared = hook.env.iter().rev().find(|(name, _)| name == "PATH");
                let search = match declared {
                    Some((_, path)) => path.value().map(Into::into),
                    None => std::env::var_os("PATH"),
                };
                let why = guard::runnable(program.as_ref(), search.as_deref()).err()?;
                let help = "the gateway does not start like this";
                Some(Diagnostic::error(format!("the hook `{name}`: {why}")).help(help))
            }
            HookKind::Http(url) => {
                let address = Address::parse(url.value()?).ok()?;
                let message = format!("the hook `{name}` uses unencrypted `http`");
                let help = "anyone on the network path could answer for it: use `https`";
                let open = !address.tls && !address.is_loopback();
                open.then(|| Diagnostic::warning(message).help(help))
            }
        }
    };
    enabled(config).filter_map(finding).collect()
}

fn hook(hook: &Hook, own: &Arc<AgentNames>) -> Result<HookDefinition, Failure> {
    let name = &hook.name;
    let value = |secret: &Secret| {
        secret.value().map(String::from).ok_or_else(|| {
            Failure::invalid(format!("error: a value of the hook `{name}` is not resolved"))
        })
    };
    let mut whom = match &hook.agents {
        Some(agents) => {
            let patterns = agents.iter().map(String::as_str);
            Selection::of(Agents::named(patterns, own))
        }
        None => Selection::default(),
    };
    if let Some(servers) = &hook.servers {
        whom = whom.servers(servers.iter().map(String::as_str));
    }
    if let Some(tools) = &hook.tools {
        whom = whom.tools(tools.iter().map(String::as_str));
    }
    let declared = hook.env.iter().map(|(name, secret)| Ok((name.into(), value(secret)?.into())));
    Ok(HookDefinition {
        name: name.clone(),
        kind: match &hook.kind {
            HookKind::Exec { program, args, persistent } => guard::HookKind::Exec {
                program: program.into(),
                arguments: args.iter().map(Into::into).collect(),
                persistent: *persistent,
            },
            HookKind::PolicySh(file) => guard::HookKind::PolicySh(file.clone()),
            HookKind::Http(url) => {
                let address = Address::parse(&value(url)?);
                guard::HookKind::Http(address.map_err(|why| {
                    Failure::invalid(format!("error: the URL of the hook `{name}`: {why}"))
                })?)
            }
        },
        priority: hook.priority,
        critical: hook.critical,
        timeout: hook.timeout,
        start_timeout: hook.start_timeout,
        arguments: hook.arguments,
        environment: Environment {
            declared: declared.collect::<Result<_, Failure>>()?,
            passed: hook.pass_env.iter().map(|one| Glob::new(one, Case::Sensitive)).collect(),
        },
        whom,
    })
}
