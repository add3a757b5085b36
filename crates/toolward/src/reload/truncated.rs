//! Rejects truncated files.
//!
//! A truncated YAML file is often still valid, and usually allows more: denies, tests and agents at its end
//! are missing. A truncated token file gives an agent a token that is easier to guess. A reload in which a
//! file is the beginning of its active version is therefore rejected until a person accepts it with `toolward
//! reload --accept`. A configuration or policy that only lost a comment or blank lines is applied: its data
//! is the same.

use std::path::PathBuf;

use toolward_config::{LoadedConfig, sanitize};

use crate::exit::Failure;
use crate::reads::Reads;

/// A configuration and the files that it was read from.
pub(super) struct Version<'a> {
    pub(super) reads: &'a Reads,
    /// `None`: it could not be loaded.
    pub(super) loaded: Option<&'a LoadedConfig>,
}

/// Rejects a configuration if one of its files is only the beginning of its active version.
pub(super) fn refuse_truncated(
    active: &Version<'_>,
    next: &Version<'_>,
    main: Option<&PathBuf>,
) -> Result<(), Failure> {
    let truncated = next.reads.truncated_since(active.reads);
    let has_same_data = |file: &PathBuf| match (next.loaded, active.loaded) {
        (Some(next), Some(active)) => next.has_same_data(active, file),
        _ => false,
    };
    let Some(file) = truncated.into_iter().find(|file| !has_same_data(file)) else {
        return Ok(());
    };
    let file = file.display().to_string();
    let configuration = main.map(|main| format!(" -c {}", main.display())).unwrap_or_default();
    Err(Failure::invalid(format!(
        "error: {} may have been truncated: it is only the beginning of the active version\n  help: to \
         apply it anyway, run `toolward reload --accept{}`",
        sanitize(&file),
        sanitize(&configuration)
    )))
}
