//! Where the record is.

use std::path::{Path, PathBuf};

use toolward_config::neutral::neutralise;
use toolward_config::{Disk, Loader, Options, ProcessEnv};
use toolward_gateway::audit::read::{Found, streams};

use crate::cli::RecordArgs;
use crate::exit::Failure;
use crate::policy_input::invalid;

/// The folder that the flags name, or the configuration, or the one that is used without both.
pub(crate) fn folder(args: &RecordArgs) -> Result<PathBuf, Failure> {
    if let Some(folder) = &args.dir {
        return Ok(folder.clone());
    }
    let options = Options { main: args.config.clone(), search: true, ..Options::default() };
    let loaded = Loader { files: Disk, env: ProcessEnv }.load(&options).map_err(|failed| {
        let why = invalid(&failed.diagnostics);
        Failure::invalid(format!("{}\n  help: or say where the record is: --dir DIR", why.text()))
    })?;
    // Places where a configuration was looked for are among the files.
    if loaded.files.iter().any(|file| file.exists()) {
        return Ok(loaded.config.audit.dir);
    }
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(Path::new(&home).join(".local/state/toolward/audit")),
        None => Err(Failure::usage("error: HOME is not set; say where the record is: --dir DIR")),
    }
}

/// What stands between server and tool in names, where a configuration says so.
pub(crate) fn separator(args: &RecordArgs) -> Option<String> {
    if args.dir.is_some() {
        return None;
    }
    let options = Options { main: args.config.clone(), search: true, ..Options::default() };
    let loaded = Loader { files: Disk, env: ProcessEnv }.load(&options).ok()?;
    Some(loaded.config.separator)
}

/// All streams of a folder as they are now. Where there is none, that is said.
pub(crate) fn look(folder: &Path) -> Result<Vec<Found>, Failure> {
    let unreadable = |error: std::io::Error| Failure::invalid(said(folder, &error.to_string()));
    let streams = streams(folder).map_err(unreadable)?;
    if streams.is_empty() {
        return Err(Failure::invalid(said(folder, "there is no record in this folder")));
    }
    streams.iter().map(|stream| Found::look(stream).map_err(unreadable)).collect()
}

fn said(folder: &Path, what: &str) -> String {
    let folder = folder.display().to_string();
    format!(
        "error: {}: {}\n  help: say where the record is: --dir DIR, or -c FILE",
        neutralise(&folder),
        neutralise(what)
    )
}
