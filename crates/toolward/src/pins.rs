//! The pins of a configuration: its lock file, and what the state directory knows about it.

pub(crate) mod compare;
pub(crate) mod quarantine;
pub(crate) mod survey;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use toolward_config::config::{Config, Connect, PinMode, Server};
use toolward_config::{Files, LoadedConfig};
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::guard::pins::canonical::{Digest, Pointer};
use toolward_gateway::guard::pins::lock_file::{LockError, LockFile};
use toolward_gateway::guard::pins::{Approved, Mode, ServerSetup, Setup, write_file};

/// The lock file, beside the configuration.
pub(crate) const LOCK_FILE: &str = "toolward.lock";
/// The directory of pins in the state directory.
const DIRECTORY: &str = "pins";

/// The files that pins are kept in.
#[derive(Debug, Clone)]
pub(crate) struct PinFiles {
    pub(crate) lock: PathBuf,
    /// The definitions that were approved by their first use.
    pub(crate) first_use: Option<PathBuf>,
    /// Exists if a gateway used the lock file. Its content is the digest of the file.
    seen: Option<PathBuf>,
}

impl PinFiles {
    /// `None` without a configuration file.
    pub(crate) fn of(loaded: &LoadedConfig) -> Option<PinFiles> {
        let main = loaded.main_file()?;
        let absolute = std::path::absolute(main).unwrap_or_else(|_| main.to_owned());
        let own = absolute.canonicalize().unwrap_or(absolute);
        let id = Sha256::digest(own.as_os_str().as_encoded_bytes());
        let id: String = id.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let state = loaded.config.state.as_ref().map(|state| state.join(DIRECTORY));
        let beside = |end: &str| state.as_ref().map(|state| state.join(format!("{id}.{end}")));
        let lock = main.with_file_name(LOCK_FILE);
        Some(PinFiles { lock, first_use: beside("lock"), seen: beside("seen") })
    }

    /// The lock file; `None` if it does not exist.
    pub(crate) fn locked(&self, files: &impl Files) -> Result<Option<LockFile>, LockError> {
        match files.read(&self.lock) {
            Ok(bytes) => LockFile::parse(&bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LockError(error.to_string())),
        }
    }

    /// The digest of the lock file that a gateway used last.
    fn seen(&self) -> Option<String> {
        std::fs::read_to_string(self.seen.as_ref()?).ok()
    }

    /// Remembers that a gateway uses the lock file. Failing to do so weakens nothing that is configured.
    fn see(&self, digest: &str) {
        if let Some(seen) = &self.seen
            && let Err(error) = write_file(seen, digest.as_bytes())
        {
            tracing::warn!(target: "pins", "{}: {error}", seen.display());
        }
    }

    fn forget(&self) {
        if let Some(seen) = self.seen.as_ref().filter(|seen| seen.exists()) {
            let _ = std::fs::remove_file(seen);
        }
    }
}

/// The pins of a configuration. `in_use`: a gateway uses them from now on.
pub(crate) fn setup(loaded: &LoadedConfig, files: &impl Files, in_use: bool) -> Setup {
    let config = &loaded.config;
    let Some(places) = PinFiles::of(loaded) else { return Setup::default() };
    let locked = places.locked(files);
    let seen = places.seen();
    let is_off = config.pins == Some(PinMode::Off);
    let is_lost = matches!(locked, Ok(None)) && seen.is_some() && !is_off;
    let has_lock = !matches!(locked, Ok(None)) || is_lost;
    let servers = server_setups(loaded, has_lock);
    let lock = places.lock.display();
    let approved = match locked {
        Ok(Some(file)) => {
            let digest = Digest::of_text(&file.render()).to_string();
            let is_new = seen.as_deref() != Some(&*digest);
            if in_use && is_new {
                places.see(&digest);
            }
            Approved::Locked { file, is_new }
        }
        Ok(None) if is_lost => Approved::Refused(format!(
            "{lock} is missing; restore it, approve the current definitions with `toolward lock`, or set `pins: off`"
        )),
        Ok(None) => Approved::FirstUse(places.first_use.clone()),
        Err(error) => Approved::Refused(format!(
            "{lock}: {error}; restore it, or approve the current definitions with `toolward lock`"
        )),
    };
    if in_use && is_off {
        places.forget();
    }
    Setup { servers, approved }
}

fn server_setups(loaded: &LoadedConfig, has_lock: bool) -> Vec<ServerSetup> {
    let config = &loaded.config;
    let base = loaded.main_file().and_then(Path::parent).unwrap_or(Path::new(""));
    let setup = |server: &Server| ServerSetup {
        name: server.name.clone(),
        mode: mode(config, server, has_lock),
        ignore: ignored(server),
        identity: identity(server, base),
    };
    config.servers.iter().map(setup).collect()
}

/// The mode of a server.
pub(crate) fn mode(config: &Config, server: &Server, has_lock: bool) -> Mode {
    match server.pins.mode.or(config.pins) {
        Some(PinMode::Off) => Mode::Off,
        Some(PinMode::Warn) => Mode::Warn,
        Some(PinMode::Classify) => Mode::Classify,
        Some(PinMode::Strict) => Mode::Strict,
        None if has_lock => Mode::Classify,
        None => Mode::Off,
    }
}

/// The parts of a server's definitions that may change.
pub(crate) fn ignored(server: &Server) -> Vec<Pointer> {
    server.pins.ignore.iter().filter_map(|text| Pointer::parse(text)).collect()
}

/// The identity of a server: its command line or URL, with references instead of secrets. Paths below the configuration's
/// directory are relative to it, so that the lock file is the same on every machine.
pub(crate) fn identity(server: &Server, base: &Path) -> Value {
    let redact = Redact::default();
    match &server.connect {
        Connect::Stdio { command, args, .. } => {
            let program = match Path::new(command).strip_prefix(base) {
                Ok(rest) if !base.as_os_str().is_empty() => format!("./{}", rest.display()),
                _ => command.clone(),
            };
            let args = args.iter().map(|arg| arg.with_references());
            let words: Vec<String> = std::iter::once(program).chain(args).collect();
            redact.value(json!({ "command": words }))
        }
        Connect::Http { url, .. } => {
            let url = url.with_references();
            // A query string may hold a key.
            let url = url.split(['?', '#']).next().unwrap_or(&url);
            json!({ "url": redact.text(url) })
        }
    }
}

/// The command that accepts a definition, for a shell.
pub(crate) fn accept_command(target: &str, digest: &str) -> String {
    format!("toolward accept {} --expect {digest}", quoted(target))
}

/// The command that proposes a permission, for a shell.
pub(crate) fn allow_command(agent: &str, server: &str, tool: &str) -> String {
    format!("toolward allow --as {} {}", quoted(agent), quoted(&format!("{server}/{tool}")))
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.:@%+=,".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
