//! Refuses files that were cut short.
//!
//! A truncated YAML file is often still valid, and usually allows more: denies, tests and agents at its end
//! are gone. A truncated token file gives an agent a token that is easier to guess. A reload in which a file is
//! the beginning of its active version is therefore refused until a person accepts it with
//! `toolward reload --accept`.

use std::path::PathBuf;

use toolward_config::sanitize;

use crate::exit::Failure;
use crate::reads::Reads;

/// Refuses a configuration of which a file is only the beginning of its active version.
pub(super) fn refuse_truncated(
    active: &Reads,
    next: &Reads,
    main: Option<&PathBuf>,
) -> Result<(), Failure> {
    let Some(file) = next.truncated_since(active) else { return Ok(()) };
    let file = file.display().to_string();
    let configuration = main.map(|main| format!(" -c {}", main.display())).unwrap_or_default();
    Err(Failure::invalid(format!(
        "error: {} may have been cut short: it is only the beginning of the active version\n  help: to \
         apply it anyway, run `toolward reload --accept{}`",
        sanitize(&file),
        sanitize(&configuration)
    )))
}
