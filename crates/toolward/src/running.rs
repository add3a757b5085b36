//! The registry of this user's running gateways, and how commands find them.
//!
//! A gateway can be queried through its control socket in its state directory, but a user in another
//! directory may not know where that is. So each gateway writes a small file to
//! `~/.local/state/toolward/gateways` with its state directory, configuration and audit log. Entries of
//! processes that no longer respond are removed by the commands that read them.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolward_config::{Disk, Level, LoadFailure, Loader, Options, ProcessEnv};

use crate::control_client;

/// The paths of a running gateway.
#[derive(Debug, Clone)]
pub(crate) struct RunningGateway {
    pub(crate) process: u32,
    pub(crate) state: PathBuf,
    /// The main file, if it has one.
    pub(crate) config: Option<PathBuf>,
    /// The directory of the audit log.
    pub(crate) audit: PathBuf,
}

/// An entry that is removed with the process.
#[derive(Debug)]
pub(crate) struct Registration {
    path: PathBuf,
    /// Directories that were created for it, outermost first. They are removed too if they are empty.
    made: Vec<PathBuf>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        for directory in self.made.iter().rev() {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl RunningGateway {
    /// Adds this process to the registry. Without a home directory there is no registry, which is not an error.
    pub(crate) fn register(&self) -> Option<Registration> {
        // Another process that ends may remove the directory at this moment.
        (0..3).find_map(|_| self.write())
    }

    fn write(&self) -> Option<Registration> {
        let directory = directory()?;
        let missing = directory.ancestors().take_while(|one| one.symlink_metadata().is_err());
        let mut made: Vec<PathBuf> = missing.map(PathBuf::from).collect();
        made.reverse();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
        let path = directory.join(format!("{}.json", self.process));
        let text = |path: &Path| path.to_str().map(String::from);
        let entry = json!({
            "state": text(&self.state)?,
            "config": self.config.as_deref().and_then(text),
            "audit": text(&self.audit)?,
        });
        // Written to a temporary file and renamed, so that no reader sees half of it.
        let fresh = directory.join(format!("{}.new", self.process));
        let _ = std::fs::remove_file(&fresh);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .ok()?;
        std::io::Write::write_all(&mut file, entry.to_string().as_bytes()).ok()?;
        std::fs::rename(&fresh, &path).ok()?;
        Some(Registration { path, made })
    }

    fn read(path: &Path) -> Option<RunningGateway> {
        let process = path.file_stem()?.to_str()?.parse().ok()?;
        let entry: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let path = |name: &str| entry[name].as_str().map(PathBuf::from);
        Some(RunningGateway {
            process,
            state: path("state")?,
            config: path("config"),
            audit: path("audit")?,
        })
    }
}

fn directory() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".local/state/toolward/gateways"))
}

/// All running gateways of this user.
pub(crate) fn all() -> Vec<RunningGateway> {
    let Some(directory) = directory() else { return Vec::new() };
    let own = rustix::process::geteuid().as_raw();
    let is_own = |found: &std::fs::Metadata| found.uid() == own && found.mode() & 0o022 == 0;
    if !directory.symlink_metadata().is_ok_and(|found| found.is_dir() && is_own(&found)) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(&directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut running = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let Some(entry) = RunningGateway::read(&path) else { continue };
        if control_client::listens(&entry.state, entry.process) {
            running.push(entry);
        } else {
            let _ = std::fs::remove_file(&path);
        }
    }
    running.sort_by_key(|entry| entry.process);
    running
}

/// The running gateways of a main file.
pub(crate) fn with_config(main: &Path) -> Vec<RunningGateway> {
    let Ok(main) = main.canonicalize() else { return Vec::new() };
    let mut running = all();
    running.retain(|entry| entry.config.as_deref() == Some(&*main));
    running
}

/// The paths of a configuration, even if it is invalid.
pub(crate) struct Places {
    /// The main file, if there is one.
    pub(crate) main: Option<PathBuf>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) audit: PathBuf,
    pub(crate) separator: String,
    /// The errors in the configuration.
    pub(crate) failed: Option<LoadFailure>,
}

impl Places {
    /// Whether the main file itself has errors, so that its paths may be incomplete.
    pub(crate) fn main_is_broken(&self) -> bool {
        let main = self.main.as_ref().map(|main| main.display().to_string());
        let errors = self.failed.iter().flat_map(|failed| &failed.diagnostics);
        let mut errors = errors.filter(|found| found.level == Level::Error);
        errors.any(|error| error.file().is_none_or(|file| Some(file) == main.as_deref()))
    }
}

/// Reads the given configuration, or the one in a default path. An invalid policy file does not affect the
/// paths of the gateway.
pub(crate) fn places(config: Option<&Path>) -> Places {
    let options = Options { main: config.map(PathBuf::from), search: true, ..Options::default() };
    match (Loader { files: Disk, env: ProcessEnv }).load(&options) {
        Ok(loaded) => Places {
            // The list of files includes default paths that do not exist.
            main: loaded.main_file().map(PathBuf::from),
            state: loaded.config.state,
            audit: loaded.config.audit.dir,
            separator: loaded.config.separator,
            failed: None,
        },
        Err(failed) => {
            let found = || failed.files.iter().find(|file| file.exists()).cloned();
            Places {
                main: config.map(PathBuf::from).or_else(found),
                state: failed.config.state.clone(),
                audit: failed.config.audit.dir.clone(),
                separator: failed.config.separator.clone(),
                failed: Some(failed),
            }
        }
    }
}
