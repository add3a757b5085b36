//! Finds the directory of the audit log.

use std::io::Write;
use std::path::{Path, PathBuf};

use toolward_config::sanitize;
use toolward_gateway::audit::read::{StreamSnapshot, streams};

use crate::cli::RecordArgs;
use crate::exit::Failure;
use crate::load::invalid;
use crate::render::{DIM, paint};
use crate::running;

/// The directory given by flags, by the configuration, or the default one.
pub(crate) fn folder(args: &RecordArgs) -> Result<PathBuf, Failure> {
    if let Some(folder) = &args.dir {
        return Ok(folder.clone());
    }
    let places = running::places(args.config.as_deref());
    if let Some(main) = &places.main {
        let Some(failed) = &places.failed else { return Ok(places.audit) };
        // An invalid policy file does not affect the location of the log; an unreadable main file may.
        let running = running::with_config(main).into_iter().map(|entry| entry.audit);
        let stated = (!places.main_is_broken()).then(|| places.audit.clone());
        let mut folders = stated.into_iter().chain(running);
        return folders.find(|folder| has_log(folder)).ok_or_else(|| {
            let why = invalid(&failed.diagnostics);
            let help = "or give the directory of the audit log: --dir DIR";
            Failure::invalid(format!("{}\n  help: {help}", why.text()))
        });
    }
    let home = home();
    if let Some(folder) = home.clone().filter(|folder| has_log(folder)) {
        return Ok(folder);
    }
    // Without a configuration, use the log of the only running gateway.
    let mut running: Vec<PathBuf> = running::all().into_iter().map(|entry| entry.audit).collect();
    running.sort();
    running.dedup();
    match (running.as_slice(), home) {
        ([only], _) => {
            let at = only.display().to_string();
            let note = format!("note: reading the log of the running gateway, {}", sanitize(&at));
            writeln!(anstream::stderr(), "{}", paint(DIM, note))?;
            Ok(only.clone())
        }
        (_, Some(home)) => Ok(home),
        (_, None) => Err(Failure::usage(
            "error: HOME is not set; give the directory of the audit log: --dir DIR",
        )),
    }
}

/// The directories that may have the record of a decision: those of [`folder`], and without flags also
/// those of all running gateways.
pub(crate) fn candidates(args: &RecordArgs) -> Result<Vec<PathBuf>, Failure> {
    if let Some(folder) = &args.dir {
        return Ok(vec![folder.clone()]);
    }
    let places = running::places(args.config.as_deref());
    let of_main = places.main.as_deref().map(running::with_config).unwrap_or_default();
    let anywhere = match args.config {
        Some(_) => Vec::new(),
        None => running::all(),
    };
    let configured = places.main.is_some().then_some(places.audit);
    let running = of_main.into_iter().chain(anywhere).map(|entry| entry.audit);
    let home = home().filter(|_| args.config.is_none());
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in configured.into_iter().chain(running).chain(home) {
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    Ok(folders)
}

/// The log of gateways without a configuration of their own, such as `wrap`.
fn home() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".local/state/toolward/audit"))
}

pub(crate) fn has_log(folder: &Path) -> bool {
    streams(folder).is_ok_and(|streams| !streams.is_empty())
}

/// The separator between server and tool, if a configuration is known.
pub(crate) fn separator(args: &RecordArgs) -> Option<String> {
    if args.dir.is_some() {
        return None;
    }
    Some(running::places(args.config.as_deref()).separator)
}

/// All streams of a directory; an error if it has no audit log.
pub(crate) fn look(folder: &Path) -> Result<Vec<StreamSnapshot>, Failure> {
    let unreadable = |error: std::io::Error| Failure::invalid(said(folder, &error.to_string()));
    let streams = streams(folder).map_err(unreadable)?;
    if streams.is_empty() {
        return Err(Failure::invalid(said(folder, "there is no audit log in this directory")));
    }
    streams.iter().map(|stream| StreamSnapshot::look(stream).map_err(unreadable)).collect()
}

fn said(folder: &Path, what: &str) -> String {
    let folder = folder.display().to_string();
    format!(
        "error: {}: {}\n  help: give the directory of the audit log: --dir DIR, or -c FILE",
        sanitize(&folder),
        sanitize(what)
    )
}
