//! The programs of stdio servers: their resolved paths, and those that cannot be started.
//!
//! Findings are warnings: `serve` starts without the program, and the server is unavailable.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toolward_config::Diagnostic;
use toolward_config::config::{Connect, Secret, Server};
use toolward_config::sanitize;
use toolward_gateway::program;

/// Programs that are given by a bare name and found in `PATH`, by server.
pub(crate) fn resolved(servers: &[Server]) -> Vec<(String, PathBuf)> {
    let found = servers.iter().filter_map(|server| {
        let Connect::Stdio { command, env, .. } = &server.connect else { return None };
        if program::is_path(command.as_ref()) {
            return None;
        }
        let search = search(env)?;
        Some((server.name.clone(), program::find(command.as_ref(), Some(&search))?))
    });
    found.collect()
}

/// Programs and working directories that are missing.
pub(crate) fn findings(servers: &[Server]) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for server in servers {
        let Connect::Stdio { command, env, cwd, .. } = &server.connect else { continue };
        let name = sanitize(&server.name);
        if let Some((why, help)) = missing_program(command, env, cwd.as_deref()) {
            let message = format!("the server `{name}`: {why}");
            findings.push(Diagnostic::warning(message).help(help));
        }
        if let Some(cwd) = cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
            let cwd = cwd.display().to_string();
            let message =
                format!("the server `{name}`: `cwd` is not a directory: {}", sanitize(&cwd));
            findings.push(Diagnostic::warning(message).help("create it, or remove `cwd`"));
        }
    }
    findings
}

fn missing_program(
    command: &str,
    env: &[(String, Secret)],
    cwd: Option<&Path>,
) -> Option<(String, &'static str)> {
    let shown = sanitize(command);
    if !program::is_path(command.as_ref()) {
        // Without PATH, the gateway's search path is unknown.
        let search = search(env)?;
        let missing = program::find(command.as_ref(), Some(&search)).is_none();
        return missing
            .then(|| (format!("`{shown}` is not in PATH"), "install it, or give its path"));
    }
    // A relative path is looked up in the working directory of the server.
    let file = cwd.unwrap_or(Path::new("")).join(command);
    if !file.exists() {
        return Some((format!("`{shown}` does not exist"), "install it, or correct the path"));
    }
    let runs = program::is_executable(&file);
    (!runs).then(|| {
        (format!("`{shown}` is not an executable file"), "make it executable (`chmod +x`)")
    })
}

/// The `PATH` that a program is looked up in: the server's own, if its value is known, or this process's.
fn search(env: &[(String, Secret)]) -> Option<OsString> {
    let own = env.iter().rev().find(|(name, _)| name == "PATH");
    let own = own.and_then(|(_, value)| value.value().map(OsString::from));
    std::env::var_os("PATH").map(|process| own.unwrap_or(process))
}
