//! Where tickets and grants are kept: in memory; in the state directory, so that they survive a restart; or in a store
//! that several gateways share ([`remote`](super::remote)).
//!
//! The directory has one file per record, which is replaced atomically. Several gateways can use it: a lock file
//! serializes their changes and counts them, so that each of them notices the changes of the others.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use tokio::sync::oneshot;

use super::record;
use super::remote::RemoteStore;
use super::tables::{Change, Tables};
use crate::lock::LockUnpoisoned;

/// A record that is larger than this is not read.
const MAX_RECORD_BYTES: u64 = 256 << 10;

pub(super) enum Store {
    Local(Box<Mutex<LocalStore>>),
    Remote(RemoteStore),
}

impl Store {
    /// Makes a change, which may be repeated, and stores it.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        mut change: impl FnMut(&mut Tables) -> T + Send + 'static,
    ) -> io::Result<T> {
        let store = match self {
            Store::Local(store) => return store.locked().change(change),
            Store::Remote(store) => store,
        };
        let (done, outcome) = oneshot::channel();
        store.submit(move |tables| change(tables), |outcome| drop(done.send(outcome)));
        outcome.await.unwrap_or_else(|_| Err(io::Error::other("the store was closed")))
    }

    /// Makes a change without waiting for it. Later changes of this process find it made.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut Tables) -> T + Send + 'static,
        done: impl FnOnce(io::Result<T>) + Send + 'static,
    ) {
        match self {
            Store::Local(store) => {
                let changed = store.locked().change(change);
                done(changed);
            }
            Store::Remote(store) => store.submit(change, done),
        }
    }

    /// Whether gateways with another configuration can use the records.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Store::Remote(_))
    }

    /// Whether other processes can change the records without notifying this one.
    pub(super) fn is_polled(&self) -> bool {
        match self {
            Store::Local(store) => matches!(store.locked().place, Place::Directory(_)),
            Store::Remote(_) => false,
        }
    }

    /// Reads the records as this process knows them.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        match self {
            Store::Local(store) => read(&store.locked().tables),
            Store::Remote(store) => read(&store.tables().locked()),
        }
    }

    /// Reads the records as they are, if that can be known without waiting.
    pub(super) fn read_current<T>(&self, read: impl FnOnce(&Tables) -> T) -> Option<T> {
        match self {
            Store::Local(store) => store.locked().current().map(read),
            Store::Remote(_) => None,
        }
    }
}

pub(super) struct LocalStore {
    tables: Tables,
    place: Place,
}

enum Place {
    Memory,
    Directory(Directory),
}

struct Directory {
    path: PathBuf,
    /// Locked while records change. It contains the number of changes.
    lock: File,
    /// The number of changes that the tables contain.
    seen: u64,
}

impl LocalStore {
    pub(super) fn in_memory() -> LocalStore {
        LocalStore { tables: Tables::default(), place: Place::Memory }
    }

    /// Opens the store of a directory, which is created if necessary, readable only by this user.
    pub(super) fn in_directory(path: &Path) -> io::Result<LocalStore> {
        for folder in [path.join("tickets"), path.join("grants")] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join("lock"))?;
        let directory = Directory { path: path.into(), lock, seen: 0 };
        let mut store =
            LocalStore { tables: Tables::default(), place: Place::Directory(directory) };
        store.change(|_| ())?;
        Ok(store)
    }

    /// The records as they are, if no other process has changed them since.
    fn current(&self) -> Option<&Tables> {
        match &self.place {
            Place::Memory => Some(&self.tables),
            Place::Directory(directory) => {
                (directory.count().ok()? == directory.seen).then_some(&self.tables)
            }
        }
    }

    /// Changes records. If they cannot be stored, the tables are read again, so that nothing is assumed that the
    /// directory does not have.
    fn change<T>(&mut self, change: impl FnOnce(&mut Tables) -> T) -> io::Result<T> {
        let LocalStore { tables, place } = self;
        let Place::Directory(directory) = place else {
            let changed = change(tables);
            tables.take_changes();
            return Ok(changed);
        };
        flock(&directory.lock, FlockOperation::LockExclusive)?;
        let changed = directory.change(tables, change);
        if changed.is_err() {
            directory.seen = 0;
        }
        let unlocked = flock(&directory.lock, FlockOperation::Unlock);
        let changed = changed?;
        unlocked?;
        Ok(changed)
    }
}

impl Directory {
    /// The number of changes so far.
    fn count(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        match self.lock.read_at(&mut count, 0)? {
            0 => Ok(0),
            8 => Ok(u64::from_le_bytes(count)),
            _ => Err(io::Error::other("the lock file of approvals is damaged")),
        }
    }

    fn change<T>(
        &mut self,
        tables: &mut Tables,
        change: impl FnOnce(&mut Tables) -> T,
    ) -> io::Result<T> {
        let count = self.count()?;
        if count != self.seen || count == 0 {
            let (denials, fresh) = (tables.take_memories(), self.read()?);
            *tables = fresh;
            tables.keep_memories(denials);
            self.seen = count;
        }
        let changed = change(tables);
        let changes = tables.take_changes();
        if changes.is_empty() && count > 0 {
            return Ok(changed);
        }
        // Counted first: if this process ends in between, the others read the records again.
        self.seen = count.wrapping_add(1).max(1);
        self.lock.write_all_at(&self.seen.to_le_bytes(), 0)?;
        for change in changes {
            match change {
                Change::Ticket(id) => {
                    self.write("tickets", &id, tables.ticket(&id).map(record::of_ticket))?;
                }
                Change::Grant(id) => {
                    self.write("grants", &id, tables.grant(&id).map(record::of_grant))?;
                }
            }
        }
        Ok(changed)
    }

    /// Writes a record, or removes it. A removed grant must not reappear after a power failure.
    fn write(&self, kind: &str, id: &str, value: Option<Value>) -> io::Result<()> {
        let folder = self.path.join(kind);
        let path = folder.join(format!("{id}.json"));
        let Some(value) = value else {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                removed => removed?,
            }
            return if kind == "grants" { File::open(&folder)?.sync_all() } else { Ok(()) };
        };
        let own = folder.join(format!(".{id}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&own)
            .and_then(|mut file| file.write_all(value.to_string().as_bytes()))
            .and_then(|()| std::fs::rename(&own, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&own);
        }
        written
    }

    /// Reads all records. A record that cannot be read counts as missing: a grant then permits nothing.
    fn read(&self) -> io::Result<Tables> {
        let mut tables = Tables::default();
        for kind in ["tickets", "grants"] {
            for entry in std::fs::read_dir(self.path.join(kind))? {
                let path = entry?.path();
                if path.extension().is_none_or(|extension| extension != "json") {
                    continue;
                }
                let value = read(&path);
                let known = match kind {
                    "tickets" => value.as_ref().and_then(record::to_ticket).map(|ticket| {
                        let named = path.file_stem().is_some_and(|stem| *stem == *ticket.id);
                        named.then(|| tables.put_ticket(ticket))
                    }),
                    _ => value.as_ref().and_then(record::to_grant).map(|grant| {
                        let named = path.file_stem().is_some_and(|stem| *stem == *grant.id);
                        named.then(|| tables.put_grant(grant))
                    }),
                };
                if known.flatten().is_none() {
                    tracing::warn!(
                        target: "approvals",
                        "{} cannot be read, and is ignored", path.display()
                    );
                }
            }
        }
        Ok(tables)
    }
}

fn read(path: &Path) -> Option<Value> {
    let size = path.metadata().ok()?.len();
    (size <= MAX_RECORD_BYTES).then_some(())?;
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
