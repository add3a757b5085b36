//! Reasons why a gateway cannot start, found without starting it.
//!
//! `serve` checks them before it opens anything, and `check` reports the same, so that a configuration that
//! passes `check` starts. Transient conditions, such as a port in use, are left to `serve`.

mod host;

use std::collections::HashSet;

use toolward_config::config;
use toolward_config::sanitize;
use toolward_config::{Diagnostic, ProcessEnv};
use toolward_gateway::guard::pins::{Approved, Mode};
use toolward_gateway::upstream::built_in;
use toolward_gateway::view::names::Naming;

use crate::admin::Admin;
use crate::exit::Failure;
use crate::gateway::state_folder;
use crate::guards;
use crate::identity::{identities, may_listen, tls};
use crate::load::Input;
use crate::pins;
use crate::prepared::definitions;

/// Reasons why no gateway can start with this configuration. `secrets`: all must have a value.
pub(crate) fn refusals(input: &Input, secrets: bool) -> Vec<Diagnostic> {
    let mut config = input.loaded.config.clone();
    let mut found = Vec::new();
    let unresolved = config.resolve_secrets(&ProcessEnv, &input.reads);
    if !unresolved.is_empty() {
        if secrets {
            found.extend(unresolved);
        }
        // Without secrets, the rest cannot be checked.
        return found;
    }
    let servers = definitions(&mut config, &input.reads);
    let are_none = servers.as_ref().is_ok_and(Vec::is_empty);
    found.extend(refusal(servers.map(drop)));
    if are_none && input.denying.is_none() {
        let help = "servers are defined under `servers`, as in a client's `.mcp.json`";
        found.push(Diagnostic::error("there are no servers").help(help));
    }
    let known = identities(&config, input.needs_name(), false);
    found.extend(refusal(known.map(drop)));
    found.extend(refusal(guards::can_be_built(&config, &input.policy)));
    found
}

/// Approved definitions that cannot be used: every pinned server would be refused. The message names the repair.
pub(crate) fn unusable_pins(input: &Input) -> Option<Diagnostic> {
    let setup = pins::setup(&input.loaded, &input.reads, false);
    let is_used = setup.servers.iter().any(|server| server.mode != Mode::Off);
    match setup.approved {
        Approved::Refused(why) if is_used => {
            let (why, repair) = why.split_once("; ").unwrap_or((&why, "run `toolward lock`"));
            Some(Diagnostic::error(sanitize(why)).help(sanitize(repair)))
        }
        _ => None,
    }
}

/// Further reasons why `serve` cannot start. `secrets`: all must have a value, and the TLS key must exist.
pub(crate) fn serve_refusals(input: &Input, secrets: bool) -> Vec<Diagnostic> {
    let config = &input.loaded.config;
    let has_policy = input.policy.layer_names().next().is_some();
    let mut found = Vec::new();
    found.extend(repeated_names(input));
    found.extend(refusal(may_listen(config, has_policy)));
    found.extend(refusal(Admin::may_open(config)));
    if secrets {
        found.extend(refusal(tls(config).map(drop)));
    }
    found.extend(host::repeated_addresses(config));
    match state_folder(config) {
        Err(failure) => found.push(failure.to_diagnostic()),
        Ok(state) => found.extend(host::state_files(config, &state)),
    }
    found
}

/// Addresses and directories of `serve` that cannot be used on this machine. For `check`: a gateway gets
/// these errors when it opens them.
pub(crate) fn host_refusals(input: &Input) -> Vec<Diagnostic> {
    host::refusals(&input.loaded.config)
}

/// Tools of different servers that would have the same name, as far as their lists are known. `serve` fetches
/// all tool lists before it listens.
fn repeated_names(input: &Input) -> Option<Diagnostic> {
    let config = &input.loaded.config;
    if config.naming != config::Naming::Flat {
        return None;
    }
    let naming = Naming::Flat(Default::default());
    let own = config.builtin.then_some(built_in::NAME);
    let servers = config.servers.iter().map(|server| server.name.as_str()).chain(own);
    let (mut taken, mut repeated) = (HashSet::new(), Vec::new());
    for server in servers {
        let exposure = input.policy.exposure(server);
        let tools = input.catalogue.tools(server).map(|tools| tools.tools()).unwrap_or_default();
        for tool in tools {
            let shown = match exposure {
                None => Some(tool.name().into()),
                Some(exposure) => exposure.show(tool.name()).map(|shown| shown.name),
            };
            let Some(shown) = shown else { continue };
            if !taken.insert(naming.called(server, &shown)) {
                repeated.push(format!("{server}/{}", tool.name()));
            }
        }
    }
    (!repeated.is_empty()).then(|| {
        let repeated = repeated.join(", ");
        let message = format!(
            "with `naming: flat`, tool names must be unique, and these are used twice: {}",
            sanitize(&repeated)
        );
        Diagnostic::error(message).help("rename them with `expose`, or use `naming: prefix`")
    })
}

fn refusal(outcome: Result<(), Failure>) -> Option<Diagnostic> {
    outcome.err().map(|failure| failure.to_diagnostic())
}

/// Fails with all errors that were found.
pub(crate) fn check(found: &[Diagnostic]) -> Result<(), Failure> {
    if found.is_empty() { Ok(()) } else { Err(crate::load::invalid(found)) }
}
