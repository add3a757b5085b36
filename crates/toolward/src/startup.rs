//! The reasons for which a gateway does not start, found without starting it.
//!
//! `serve` asks this before it opens anything, and `check` reports the same, so that a configuration that
//! passes `check` starts. What depends on the moment, such as a port that is in use, is left to `serve`.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, access};
use toolward_config::config;
use toolward_config::neutral::neutralise;
use toolward_config::{Diagnostic, ProcessEnv};
use toolward_gateway::builtin;
use toolward_gateway::names::Naming;
use toolward_gateway::upstream::Log;

use crate::exit::Failure;
use crate::gateway::{definitions, state_folder, supported};
use crate::guards;
use crate::identity::{identities, may_listen, tls};
use crate::page::Admin;
use crate::policy_input::Input;

/// Files in the state directory that no other user may read.
const PRIVATE_FILES: [&str; 2] = [toolward_gateway::sealed::KEY_FILE, crate::page::TOKEN_FILE];

/// What keeps any gateway of this configuration from starting. `secrets`: all must have a value.
pub(crate) fn refusals(input: &Input, secrets: bool) -> Vec<Diagnostic> {
    let mut config = input.loaded.config.clone();
    let mut found = Vec::new();
    found.extend(refusal(supported(&config)));
    let unresolved = config.resolve_secrets(&ProcessEnv, &input.reads);
    if !unresolved.is_empty() {
        if secrets {
            found.extend(unresolved);
        }
        // Without values, what is made of them cannot be checked.
        return found;
    }
    let servers = definitions(&mut config, &input.reads);
    let are_none = servers.as_ref().is_ok_and(Vec::is_empty);
    found.extend(refusal(servers.map(drop)));
    if are_none && input.denying.is_none() {
        let help = "servers are defined under `servers`, as in a client's `.mcp.json`";
        found.push(Diagnostic::error("there are no servers").help(help));
    }
    let known = identities(&config, input.needs_name(), false, &quiet());
    found.extend(refusal(known.map(drop)));
    found.extend(refusal(guards::can_be_built(&config, &input.policy)));
    found.extend(directory("the audit log", &config.audit.dir));
    found
}

/// What further keeps `serve` from starting. `secrets`: all must be there, the TLS key too.
pub(crate) fn serve_refusals(input: &Input, secrets: bool) -> Vec<Diagnostic> {
    let config = &input.loaded.config;
    let has_policy = input.policy.layer_names().next().is_some();
    let mut found = Vec::new();
    found.extend(repeated_names(input));
    found.extend(refusal(may_listen(config, has_policy)));
    found.extend(refusal(Admin::may_open(config)));
    if secrets {
        found.extend(refusal(tls(config, &quiet()).map(drop)));
    }
    match state_folder(config) {
        Err(failure) => found.push(failure.to_diagnostic()),
        Ok(state) => {
            let unusable = directory("the state", &state);
            let files = PRIVATE_FILES.iter().map(|name| state.join(name));
            let files = files.filter(|path| is_readable_by_others(path)).map(|path| {
                let path = path.display().to_string();
                let message = format!("{} can be read by others", neutralise(&path));
                Diagnostic::error(message).help("`chmod 600` it")
            });
            found.extend(unusable.into_iter().chain(files));
        }
    }
    found
}

/// Tools of different servers that would have the same name, as far as their lists are known. `serve` asks
/// all servers for their lists before it listens.
fn repeated_names(input: &Input) -> Option<Diagnostic> {
    let config = &input.loaded.config;
    if config.naming != config::Naming::Flat {
        return None;
    }
    let naming = Naming::Flat(Default::default());
    let own = config.builtin.then_some(builtin::NAME);
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
            "with `naming: flat` no two tools may have one name, and these repeat another: {}",
            neutralise(&repeated)
        );
        Diagnostic::error(message).help("rename them with `expose`, or use `naming: prefix`")
    })
}

fn refusal(outcome: Result<(), Failure>) -> Option<Diagnostic> {
    outcome.err().map(|failure| failure.to_diagnostic())
}

fn quiet() -> Log {
    Arc::new(|_| {})
}

/// Whether a directory can be written to, or be made where it is missing.
fn directory(what: &str, path: &Path) -> Option<Diagnostic> {
    let shown = path.display().to_string();
    let wrong = |why: &str, help: &str| {
        let message = format!("{what} cannot be kept in {}: {why}", neutralise(&shown));
        Some(Diagnostic::error(message).help(help))
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let mut existing = path.as_path();
    while existing.symlink_metadata().is_err() {
        existing = existing.parent()?;
    }
    if !existing.is_dir() {
        return wrong("it is not a directory", "move it away, or name another one");
    }
    match access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => None,
        Err(error) => wrong(&error.to_string(), "name a directory that this user can write to"),
    }
}

fn is_readable_by_others(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

/// Fails with everything that was found.
pub(crate) fn check(found: &[Diagnostic]) -> Result<(), Failure> {
    if found.is_empty() { Ok(()) } else { Err(crate::policy_input::invalid(found)) }
}
