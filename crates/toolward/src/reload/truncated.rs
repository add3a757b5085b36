//! Detects policy files that were cut short.
//!
//! A truncated YAML file is often still valid, and usually allows more: denies, tests and agents at its end
//! are gone. A reload whose text is the beginning of the active text is therefore refused until a person
//! accepts it with `toolward reload --accept`.

use std::path::{Path, PathBuf};

use toolward_config::Loaded;
use toolward_config::neutral::neutralise;

use crate::exit::Failure;

/// Refuses a configuration of which a file is only the beginning of its active version.
pub(super) fn refuse_truncated(
    active: &Loaded,
    next: &Loaded,
    main: Option<&PathBuf>,
) -> Result<(), Failure> {
    let Some(file) = truncated(active, next) else { return Ok(()) };
    let file = file.display().to_string();
    let configuration = main.map(|main| format!(" -c {}", main.display())).unwrap_or_default();
    Err(Failure::invalid(format!(
        "error: {} may have been cut short: it is only the beginning of the active version\n  help: to \
         apply it anyway, run `toolward reload --accept{}`",
        neutralise(&file),
        neutralise(&configuration)
    )))
}

fn truncated<'l>(active: &Loaded, next: &'l Loaded) -> Option<&'l Path> {
    let is_cut = |(path, bytes): &(&Path, &[u8])| {
        active.sources().any(|(known, content)| known == *path && is_beginning(bytes, content))
    };
    next.sources().find(is_cut).map(|(path, _)| path)
}

/// Whether `next` is a proper prefix of `active`, or becomes one without its final newlines.
fn is_beginning(next: &[u8], active: &[u8]) -> bool {
    let (cut, whole) = (without_newlines(next), without_newlines(active));
    let is_prefix = next.len() < active.len() && active.starts_with(next);
    is_prefix || (cut.len() < whole.len() && whole.starts_with(cut))
}

fn without_newlines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    text.get(..end.map_or(0, |end| end + 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::is_beginning;

    #[test]
    fn the_beginning_of_a_text_is_found_with_and_without_a_final_newline() {
        let active = b"a: 1\nb: 2\n";
        for cut in ["", "\n", "a: 1\n", "a: 1", "a: 1\nb:", "a: 1\nb:\n", "a: 1\r\n", "a: 1\nb: 2"]
        {
            assert!(is_beginning(cut.as_bytes(), active), "{cut:?}");
        }
        for other in ["a: 1\nb: 2\n", "a: 1\nb: 2\n\n", "a: 1\nb: 3\n", "b: 2\n", "a: 1\nc: 3\n"] {
            assert!(!is_beginning(other.as_bytes(), active), "{other:?}");
        }
    }
}
