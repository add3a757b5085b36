//! Which of the gateway's files other users could change.
//!
//! Such hooks and secrets are rejected, in `check` and at startup, because they are code and credentials.
//! Configuration, policy and state are reported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toolward_config::config::{Config, HookKind, Jwks};
use toolward_config::{Diagnostic, Level, LoadedConfig};
use toolward_gateway::ownership::exposed;
use toolward_gateway::program;

use crate::exit::Failure;
use crate::load::invalid;
use crate::pins::PinFiles;

/// Files and directories that other users could change.
pub(crate) fn findings(loaded: &LoadedConfig) -> Vec<Diagnostic> {
    let config = &loaded.config;
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    let mut look = |what: &str, path: &Path, level: Level| {
        if is_given(path) || !seen.insert(path.to_owned()) {
            return;
        }
        if let Some(exposed) = exposed(path) {
            let message = format!("the {what} {} is not safe: {}", path.display(), exposed.why);
            findings.push(Diagnostic::new(level, &message).help(exposed.help));
        }
    };
    for path in hook_files(config) {
        look("hook", &path, Level::Error);
    }
    for path in config.secret_files() {
        look("secret", &path, Level::Error);
    }
    if let Some(tls) = &config.tls {
        look("private key", &tls.key, Level::Error);
        let rest = [Some(&tls.cert), tls.client_ca.as_ref()];
        rest.into_iter().flatten().for_each(|path| look("certificate", path, Level::Warning));
    }
    for tls in config.servers.iter().filter_map(|server| server.client_tls()) {
        if let Some((cert, key)) = &tls.identity {
            look("private key", key, Level::Error);
            look("certificate", cert, Level::Warning);
        }
        tls.ca.iter().for_each(|path| look("certificate", path, Level::Warning));
    }
    for jwt in &config.jwt {
        if let Jwks::File(path) = &jwt.jwks {
            look("key set", path, Level::Warning);
        }
    }
    for path in &loaded.files {
        look("file", path, Level::Warning);
    }
    if let Some(pins) = PinFiles::of(loaded) {
        look("lock file", &pins.lock, Level::Warning);
    }
    if let Some(state) = &config.state {
        look("state directory", state, Level::Warning);
    }
    findings
}

/// Refuses to start with hooks or secrets that other users could change. Returns the other findings.
pub(crate) fn refuse(loaded: &LoadedConfig) -> Result<Vec<Diagnostic>, Failure> {
    let (errors, warnings): (Vec<_>, Vec<_>) =
        findings(loaded).into_iter().partition(|finding| finding.level == Level::Error);
    if errors.is_empty() { Ok(warnings) } else { Err(invalid(&errors)) }
}

/// Logs findings that do not keep a gateway from starting.
pub(crate) fn log_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        tracing::warn!(target: "config", "{}; {}", warning.message(), warning.help_text());
    }
}

/// Whether a directory belongs to this user or root, and other users cannot write to it.
pub(crate) fn is_own_directory(path: &Path) -> bool {
    path.is_dir() && exposed(path).is_none()
}

/// Programs of enabled hooks, and the files among their arguments: what decides is often a script that an
/// interpreter reads. A `policy_sh` file has a stricter check of its own.
fn hook_files(config: &Config) -> Vec<PathBuf> {
    let search = std::env::var_os("PATH");
    let mut files = Vec::new();
    for hook in config.hooks.iter().filter(|hook| hook.enabled) {
        let HookKind::Exec { program, args, .. } = &hook.kind else { continue };
        files.extend(program::find(program.as_ref(), search.as_deref()));
        files.extend(args.iter().map(PathBuf::from).filter(|path| path.is_file()));
    }
    files
}

/// Whether a file was opened by the parent process, such as `<(COMMAND)` of a shell.
fn is_given(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}
