//! Parts of a configuration that decide about calls and are not analyzed: limits, hooks, pins and identities.

use std::hash::{DefaultHasher, Hash, Hasher};

use toolward_config::config::{Agent, Hook, HookKind, Jwks, Jwt, Secret, Token};

use crate::load::Input;

/// A part of a configuration by its name, as text to compare.
type Part = (&'static str, fn(&Input) -> String);

/// The parts that differ.
pub(super) fn changed(old: &Input, new: &Input) -> Vec<&'static str> {
    let parts: [Part; 4] =
        [("limits", limits), ("hooks", hooks), ("pins", pins), ("identities", identities)];
    parts.into_iter().filter(|(_, of)| of(old) != of(new)).map(|(name, _)| name).collect()
}

fn limits(input: &Input) -> String {
    let config = &input.loaded.config;
    let agents: Vec<_> = config.agent_limits.iter().map(|file| &file.agents).collect();
    let servers: Vec<_> = config.servers.iter().map(|one| (&one.name, &one.limits)).collect();
    let entries: Vec<_> = input
        .policy
        .limits()
        .into_iter()
        .map(|(at, rate)| {
            let rule = input.policy.rule_at(at.layer, at.rule);
            (rule.map(|rule| rule.selector), input.policy.agent_of(at), rate)
        })
        .collect();
    format!("{:?} {agents:?} {servers:?} {entries:?}", config.limits.rates)
}

fn pins(input: &Input) -> String {
    let config = &input.loaded.config;
    let servers: Vec<_> = config.servers.iter().map(|one| (&one.name, &one.pins)).collect();
    format!("{:?} {servers:?}", config.pins)
}

fn hooks(input: &Input) -> String {
    let hook = |hook: &Hook| {
        // The same file may be in another directory, as in a checkout of another branch.
        let kind = match &hook.kind {
            HookKind::PolicySh(path) => format!("{:?}", path.file_name()),
            HookKind::Http(url) => written(url),
            kind => format!("{kind:?}"),
        };
        let scope = (&hook.agents, &hook.servers, &hook.tools, hook.enabled, hook.critical);
        format!("{} {kind} {} {:?} {scope:?}", hook.name, hook.priority, hook.timeout)
    };
    input.loaded.config.hooks.iter().map(hook).collect()
}

fn identities(input: &Input) -> String {
    let config = &input.loaded.config;
    let agent = |agent: &Agent| {
        let Agent { name, tokens, claims, uids, certificates, .. } = agent;
        let tokens: Vec<String> = tokens.iter().map(token).collect();
        format!("{name} {tokens:?} {claims:?} {uids:?} {certificates:?}")
    };
    let agents: String = config.agents.iter().map(agent).collect();
    let jwt = |jwt: &Jwt| {
        let keys = match &jwt.jwks {
            Jwks::Discovered => String::new(),
            Jwks::Url(url) => written(url),
            Jwks::File(path) => format!("{:?}", path.file_name()),
        };
        format!(
            "{} {keys} {:?} {:?} {:?} {:?}",
            written(&jwt.issuer),
            jwt.audience,
            jwt.algorithms,
            jwt.leeway,
            jwt.agent_claim
        )
    };
    let jwt: Vec<String> = config.jwt.iter().map(jwt).collect();
    // The calls that admins may approve are part of the policy.
    let admins = config.admins.iter().flatten();
    let admins: Vec<(&str, Vec<String>)> =
        admins.map(|one| (one.name.as_str(), one.tokens.iter().map(token).collect())).collect();
    format!("{agents} {jwt:?} {admins:?} {}", config.deny_on_missing_agent)
}

fn token(token: &Token) -> String {
    match token {
        Token::Sha256(hash) => format!("{hash:?}"),
        Token::Reference(secret) => written(secret),
    }
}

/// A secret as it is written, with its references as such. Its text is not shown anywhere.
fn written(secret: &Secret) -> String {
    let mut hasher = DefaultHasher::new();
    secret.hash(&mut hasher);
    hasher.finish().to_string()
}
