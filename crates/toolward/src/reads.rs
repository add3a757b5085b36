//! The files that a load reads, with their content.
//!
//! One load sees one version of each file, even if the file changes in between. A reload compares the content
//! with that of the active configuration to detect truncated files. This keeps secrets in memory for as long
//! as the active configuration does, which needs their values anyway.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sha2::{Digest, Sha256};
use toolward_config::{Disk, Files};

use toolward_gateway::lock::LockUnpoisoned;
use toolward_gateway::truncated::is_beginning;

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

    /// Reads a file as if it had this content.
    pub(crate) fn assume(&self, path: &Path, content: &[u8]) {
        self.contents().insert(path.into(), Some(content.into()));
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

    /// The files that are only the beginning of what `active` read from the same path.
    pub(crate) fn truncated_since(&self, active: &Reads) -> Vec<PathBuf> {
        let active = active.contents().clone();
        let is_cut = |(path, content): &(&PathBuf, &Option<Arc<[u8]>>)| match content {
            Some(next) => {
                let whole = active.get(*path).and_then(Option::as_ref);
                whole.is_some_and(|whole| is_beginning(next, whole))
            }
            None => false,
        };
        self.contents().iter().filter(is_cut).map(|(path, _)| path.clone()).collect()
    }
}

/// Contents may be secrets.
impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
