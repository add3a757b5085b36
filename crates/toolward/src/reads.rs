//! The files that a load reads, with their content.
//!
//! One load sees one version of each file, even if the file changes in between. A reload compares the content
//! with that of the active configuration to detect files that were cut short. This holds secrets in memory for
//! as long as the active configuration does, which needs their values anyway.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sha2::{Digest, Sha256};
use toolward_config::{Disk, Files};

use toolward_gateway::lock::LockUnpoisoned;

/// Files by path; `None`: the file could not be read.
type Contents = BTreeMap<PathBuf, Option<Arc<[u8]>>>;

/// The files that one load has read so far.
#[derive(Clone, Default)]
pub(crate) struct Reads(Arc<Mutex<Contents>>);

impl Files for Reads {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if let Some(Some(known)) = self.contents().get(path) {
            return Ok(known.to_vec());
        }
        let read = Disk.read(path);
        let content = read.as_ref().ok().map(|bytes| bytes.as_slice().into());
        self.contents().insert(path.into(), content);
        read
    }
}

impl Reads {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.locked()
    }

    /// The hash of a file that was read.
    pub(crate) fn hash_of(&self, file: &Path) -> Option<[u8; 32]> {
        let content = self.contents().get(file).cloned().flatten();
        content.map(|bytes| Sha256::digest(bytes).into())
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.contents().keys().cloned().collect()
    }

    /// Whether a file has other content now.
    pub(crate) fn are_stale(&self) -> bool {
        let now = Reads::default();
        for file in self.files() {
            let _ = now.read(&file);
        }
        let now = now.contents().clone();
        now != *self.contents()
    }

    /// A file that is only the beginning of what `active` read from the same path.
    pub(crate) fn truncated_since(&self, active: &Reads) -> Option<PathBuf> {
        let active = active.contents().clone();
        let is_cut = |(path, content): &(&PathBuf, &Option<Arc<[u8]>>)| match content {
            Some(next) => {
                let whole = active.get(*path).and_then(Option::as_ref);
                whole.is_some_and(|whole| is_beginning(next, whole))
            }
            None => false,
        };
        self.contents().iter().find(is_cut).map(|(path, _)| path.clone())
    }
}

/// Contents may be secrets.
impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files()).finish()
    }
}

/// Whether `next` is a proper prefix of `active`, or becomes one without its final newlines.
fn is_beginning(next: &[u8], active: &[u8]) -> bool {
    let (cut, whole) = (without_newlines(next), without_newlines(active));
    let is_prefix = next.len() < active.len() && begins_with(active, next);
    is_prefix || (cut.len() < whole.len() && begins_with(whole, cut))
}

/// Takes the same time for each `beginning` of a length: the texts may be secrets.
fn begins_with(text: &[u8], beginning: &[u8]) -> bool {
    let difference =
        text.iter().zip(beginning).fold(0, |so_far, (one, other)| so_far | (one ^ other));
    text.len() >= beginning.len() && difference == 0
}

fn without_newlines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    text.get(..end.map_or(0, |end| end + 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_load_sees_one_version_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "first").unwrap();
        let reads = Reads::default();
        assert_eq!(reads.read(&file).unwrap(), b"first");
        std::fs::write(&file, "second").unwrap();
        assert_eq!(reads.read(&file).unwrap(), b"first");
        assert!(reads.are_stale());
        assert!(!format!("{reads:?}").contains("first"));
    }
}
