//! The policy version: a short hash of everything that affects decisions, as it is written to audit records.
//!
//! Locations are excluded, so that a comment does not change the version. Secrets are excluded as well: only the
//! references to them are hashed.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use toolward_config::config::{Config, HookKind, LimitStore, Secret};
use toolward_policy::source::{
    AgentsSource, AllowlistSource, Entry, ExposeSource, Place, RulesSource, SideSource, Source,
};

use crate::reads::Reads;

pub(crate) fn version(source: &Source, config: &Config, reads: &Reads) -> String {
    let mut source = source.clone();
    without_places(&mut source);
    let mut hash = Sha256::new();
    hash.update(format!("{source:?}"));
    let limits = &config.limits;
    let counted = (&limits.rates, limits.on_store_error, limits.timeout);
    hash.update(format!("{counted:?}{:?}", config.agent_limits));
    if let LimitStore::Redis(url) = &limits.store {
        written(url, &mut hash);
    }
    for server in &config.servers {
        hash.update(format!("{:?}", (&server.name, &server.limits)));
    }
    let discovery = config.agents.iter().map(|agent| (&agent.name, agent.discovery));
    hash.update(format!("{:?}{}", discovery.collect::<Vec<_>>(), config.builtin));
    for hook in &config.hooks {
        hash.update(format!("{hook:?}"));
        hook.env.iter().for_each(|(_, value)| written(value, &mut hash));
        match &hook.kind {
            HookKind::Http(url) => written(url, &mut hash),
            HookKind::PolicySh(file) => hash.update(format!("{:?}", reads.hash_of(file))),
            HookKind::Exec { .. } => {}
        }
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes a value as written, with references instead of secrets.
fn written(secret: &Secret, into: &mut Sha256) {
    let mut bytes = Bytes(into);
    secret.hash(&mut bytes);
}

/// A formatter target that hashes what is written to it.
struct Bytes<'a>(&'a mut Sha256);

impl Hasher for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

fn without_places(source: &mut Source) {
    let servers = source.servers.iter_mut().filter_map(|server| server.expose.as_mut());
    servers.chain(&mut source.expose_everywhere).for_each(exposed);
    for layer in source.layers.iter_mut().chain(&mut source.shadow_layers) {
        match &mut layer.rules {
            RulesSource::Agents(AgentsSource { agents, roles, .. }) => {
                for (_, agent) in agents {
                    [&mut agent.allow, &mut agent.deny].into_iter().for_each(side);
                }
                for (_, role) in roles {
                    [&mut role.allow, &mut role.deny].into_iter().for_each(side);
                }
            }
            RulesSource::Allowlist(AllowlistSource { tools, prompts, resources, .. }) => {
                let others = [prompts, resources].into_iter().flatten();
                [tools].into_iter().chain(others).for_each(|list| entries(list));
            }
            RulesSource::ReadOnly => {}
        }
    }
}

fn exposed(expose: &mut ExposeSource) {
    expose.entries.iter_mut().for_each(|entry| entry.place = Place::default());
}

fn side(side: &mut SideSource) {
    entries(&mut side.servers);
    for list in side.tools.iter_mut().chain(&mut side.prompts).chain(&mut side.resources) {
        list.place = Place::default();
        entries(&mut list.entries);
    }
}

fn entries(list: &mut [Entry]) {
    list.iter_mut().for_each(|entry| entry.place = Place::default());
}
