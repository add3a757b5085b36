//! Trust on first use: without a lock file, the first list that a server sends is the approved one.
//!
//! The approved definitions are kept in the state directory, in the format of the lock file. A file that cannot be read
//! is not replaced, because that would approve whatever the servers send next.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use toolward_wire::list::ListKind;

use super::definition::Definition;
use super::lock_file::{LockError, LockFile, LockedList, LockedServer, MAX_BYTES};
use crate::lock::LockUnpoisoned;
use crate::upstream::catalogue::Catalogue;

/// The definitions that were approved by their first use.
#[derive(Debug)]
pub(super) struct FirstUse {
    /// `None`: they are kept for as long as the process runs.
    path: Option<PathBuf>,
    known: Mutex<Result<LockFile, LockError>>,
}

impl FirstUse {
    pub(super) fn in_file(path: Option<&Path>) -> FirstUse {
        let known = path.map_or_else(|| Ok(LockFile::default()), read);
        FirstUse { path: path.map(Path::to_owned), known: Mutex::new(known) }
    }

    /// The file, for messages.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The approved definitions of a list. Those of a list that is not known yet are taken from `catalogue`.
    pub(super) fn list(
        &self,
        (server, identity): (&str, &Value),
        catalogue: &Catalogue,
    ) -> Result<Arc<LockedList>, LockError> {
        let kind = catalogue.kind();
        let first = |server: &mut LockedServer| {
            let entries = catalogue.entries().iter();
            let list = entries.map(|one| (one.name().to_string(), vec![Definition::of(one)]));
            *server.list_mut(kind) = Some(list.collect());
        };
        let has = |known: &LockedServer| known.list(kind).is_some();
        let known = self.known((server, identity), has, first)?;
        Ok(Arc::new(known.list(kind).cloned().unwrap_or_default()))
    }

    /// The approved definitions of a list, if they are known.
    pub(super) fn known_list(&self, server: &str, kind: ListKind) -> Option<Arc<LockedList>> {
        let known = self.locked();
        let list = known.as_ref().ok()?.servers.get(server)?.list(kind)?;
        Some(Arc::new(list.clone()))
    }

    /// The approved instructions of a server. If they are not known yet, they are `current`.
    pub(super) fn instructions(
        &self,
        server: (&str, &Value),
        current: Option<&str>,
    ) -> Result<Option<String>, LockError> {
        let first =
            |server: &mut LockedServer| server.instructions = Some(current.map(String::from));
        let known = self.known(server, |known| known.instructions.is_some(), first)?;
        Ok(known.instructions.flatten())
    }

    /// Everything that is known.
    pub(super) fn file(&self) -> Option<LockFile> {
        self.locked().as_ref().ok().cloned()
    }

    /// The names of all approved tools.
    pub(super) fn tool_names(&self) -> Vec<String> {
        let known = self.locked();
        let servers = known.iter().flat_map(|file| file.servers.values());
        servers
            .filter_map(|one| one.list(ListKind::Tools))
            .flat_map(|list| list.keys().cloned())
            .collect()
    }

    /// The known definitions of a server, after `learn` if that is necessary.
    fn known(
        &self,
        (server, identity): (&str, &Value),
        is_known: impl Fn(&LockedServer) -> bool,
        learn: impl FnOnce(&mut LockedServer),
    ) -> Result<LockedServer, LockError> {
        let mut known = self.locked();
        let file = known.as_mut().map_err(|error| error.clone())?;
        if let Some(known) = file.servers.get(server).filter(|one| is_known(one)) {
            return Ok(known.clone());
        }
        // Another process may have been first.
        if let Some(path) = &self.path {
            *file = read(path)?;
        }
        let own = file.servers.entry(server.into()).or_default();
        if !is_known(own) {
            own.identity = identity.clone();
            learn(own);
            let own = own.clone();
            if let Some(path) = &self.path
                && let Err(error) = write(path, file.render().as_bytes())
            {
                let path = path.display();
                tracing::warn!(
                    target: "pins", server,
                    "{path}: its definitions are approved only until the gateway ends: {error}"
                );
            }
            return Ok(own);
        }
        Ok(own.clone())
    }

    fn locked(&self) -> MutexGuard<'_, Result<LockFile, LockError>> {
        self.known.locked()
    }
}

/// Reads a lock file; a missing one is empty.
pub(super) fn read(path: &Path) -> Result<LockFile, LockError> {
    match read_bytes(path) {
        Ok(bytes) => LockFile::parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LockFile::default()),
        Err(error) => Err(LockError(error.to_string())),
    }
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file in one step.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let new = path.with_extension(format!("new.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}
