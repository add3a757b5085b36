//! Where grants are kept: one sealed file per server and owner in the state directory.
//!
//! A file is written by rename, and synced, before its tokens are used. Changes happen under a lock that other
//! processes honor, so that two of them never refresh one grant at the same time. A lock ends with its process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use super::grant::{Client, Grant};
use crate::opaque_id::derived_key;
use crate::random;

const PURPOSE: &str = "toolward: grants of logins, 1";
const DIRECTORY: &str = "logins";
const EXTENSION: &str = "grant";
/// The extension of registered clients.
const CLIENT_EXTENSION: &str = "client";
/// A larger file is not a grant.
const MAX_BYTES: u64 = 256 << 10;
/// The interval at which a lock that another process holds is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// A store of grants. An enum, so that grants can also be kept in a database.
#[derive(Debug, Clone)]
pub enum GrantStore {
    Directory(GrantDirectory),
}

/// The key of a grant in a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantKey {
    pub server: String,
    /// The agent whose login it is; `None`: the gateway's.
    pub owner: Option<String>,
}

impl GrantKey {
    /// A name for files, which reveals nothing and has no special characters.
    fn file_name(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&(self.server.len() as u64).to_le_bytes());
        context.update(self.server.as_bytes());
        context.update(&[self.owner.is_some().into()]);
        context.update(self.owner.as_deref().unwrap_or_default().as_bytes());
        context.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Held while a grant is changed.
#[must_use]
pub(crate) enum GrantLock {
    File(#[expect(dead_code, reason = "the lock ends when the file is closed")] File),
}

impl GrantStore {
    /// The store of a state directory.
    pub fn in_state(state: &Path) -> GrantStore {
        let (state, path) = (state.to_owned(), state.join(DIRECTORY));
        GrantStore::Directory(GrantDirectory { state, path })
    }

    /// The grant as it is stored now.
    pub fn load(&self, key: &GrantKey) -> io::Result<Option<Grant>> {
        match self {
            GrantStore::Directory(directory) => directory.load(&key.file_name(), Some(key)),
        }
    }

    /// Stores a grant. When this returns, a crash does not lose it.
    pub(crate) fn save(&self, _lock: &GrantLock, key: &GrantKey, grant: &Grant) -> io::Result<()> {
        match self {
            GrantStore::Directory(directory) => directory.save(&key.file_name(), grant),
        }
    }

    /// Removes a grant. Returns whether there was one.
    pub(crate) fn remove(&self, _lock: &GrantLock, key: &GrantKey) -> io::Result<bool> {
        match self {
            GrantStore::Directory(directory) => directory.remove(&key.file_name()),
        }
    }

    /// All grants that can be read.
    pub fn all(&self) -> io::Result<Vec<Grant>> {
        match self {
            GrantStore::Directory(directory) => directory.all(),
        }
    }

    /// Takes a registered client out of the store, if there is one under this name.
    pub(super) fn take_client(&self, name: &str) -> io::Result<Option<Client>> {
        let GrantStore::Directory(directory) = self;
        let path = directory.path.join(format!("{name}.{CLIENT_EXTENSION}"));
        let client = directory.open(name, &path);
        match fs::remove_file(&path) {
            Ok(()) => Ok(client?.as_ref().and_then(Client::from_json)),
            // Another login has taken it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a registered client.
    pub(super) async fn keep_client(&self, name: &str, client: &Client) -> io::Result<()> {
        let GrantStore::Directory(directory) = self;
        let _lock = self.lock_name(name).await?;
        let path = directory.path.join(format!("{name}.{CLIENT_EXTENSION}"));
        directory.seal(name, &path, &client.to_json())
    }

    /// Waits for the lock of a grant, across tasks and processes. The caller sets the timeout.
    pub(crate) async fn lock(&self, key: &GrantKey) -> io::Result<GrantLock> {
        self.lock_name(&key.file_name()).await
    }

    async fn lock_name(&self, name: &str) -> io::Result<GrantLock> {
        match self {
            GrantStore::Directory(directory) => {
                let file = directory.lock_file(name)?;
                loop {
                    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                        Ok(()) => return Ok(GrantLock::File(file)),
                        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                    tokio::time::sleep(LOCK_INTERVAL).await;
                }
            }
        }
    }
}

/// A directory of sealed files.
#[derive(Debug, Clone)]
pub struct GrantDirectory {
    state: PathBuf,
    path: PathBuf,
}

impl GrantDirectory {
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{EXTENSION}"))
    }

    fn key(&self, make: bool) -> io::Result<Option<LessSafeKey>> {
        let Some(key) = derived_key(&self.state, PURPOSE, make)? else { return Ok(None) };
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key);
        let unusable = |_| io::Error::other("the key of grants is not usable");
        key.map(|key| Some(LessSafeKey::new(key))).map_err(unusable)
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        self.create()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(self.path.join(format!("{name}.lock")))
    }

    fn load(&self, name: &str, expected: Option<&GrantKey>) -> io::Result<Option<Grant>> {
        let path = self.file(name);
        let Some(value) = self.open(name, &path)? else { return Ok(None) };
        let damaged = || damaged(&path);
        let grant = Grant::from_json(&value).ok_or_else(damaged)?;
        let is_expected =
            |key: &GrantKey| (&key.server, &key.owner) == (&grant.server, &grant.owner);
        if expected.is_some_and(|key| !is_expected(key)) {
            return Err(damaged());
        }
        Ok(Some(grant))
    }

    /// Opens a sealed file. `None` if it does not exist.
    fn open(&self, name: &str, path: &Path) -> io::Result<Option<Value>> {
        let mut sealed = Vec::new();
        match File::open(path) {
            Ok(file) => file.take(MAX_BYTES).read_to_end(&mut sealed)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || damaged(path);
        let key = self.key(false)?.ok_or_else(damaged)?;
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN).ok_or_else(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
        let opened = key.open_in_place(nonce, Aad::from(name.as_bytes()), sealed);
        let opened = opened.map_err(|_| damaged())?;
        serde_json::from_slice(opened).map(Some).map_err(|_| damaged())
    }

    fn save(&self, name: &str, grant: &Grant) -> io::Result<()> {
        self.seal(name, &self.file(name), &grant.to_json())
    }

    /// Writes a sealed file, under the lock of its name.
    fn seal(&self, name: &str, path: &Path, value: &Value) -> io::Result<()> {
        self.create()?;
        let key = self.key(true)?.ok_or_else(|| io::Error::other("there is no key"))?;
        let mut nonce = [0; NONCE_LEN];
        random::fill(&mut nonce)?;
        let mut sealed = value.to_string().into_bytes();
        let sealing = key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut sealed,
        );
        sealing.map_err(|_| io::Error::other("the login cannot be sealed"))?;
        // Only the holder of the lock writes it, so that the name of the temporary file needs nothing unique.
        let temporary = self.path.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&nonce)?;
        file.write_all(&sealed)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(&self.path)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<bool> {
        match fs::remove_file(self.file(name)) {
            Ok(()) => File::open(&self.path)?.sync_all().map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn all(&self) -> io::Result<Vec<Grant>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|_| path.extension().is_some_and(|e| e == EXTENSION)) {
                all.extend(self.load(name, None)?);
            }
        }
        all.sort_by(|a, b| (&a.server, &a.owner).cmp(&(&b.server, &b.owner)));
        Ok(all)
    }
}

fn damaged(path: &Path) -> io::Error {
    let why = "the login cannot be read: it is damaged, or was sealed with another key";
    io::Error::new(ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::grant::tests::grant;
    use super::*;

    fn key(server: &str, owner: Option<&str>) -> GrantKey {
        GrantKey { server: server.into(), owner: owner.map(Into::into) }
    }

    #[tokio::test]
    async fn a_grant_is_sealed_and_belongs_to_its_server_and_owner() {
        let state = tempfile::tempdir().unwrap();
        let store = GrantStore::in_state(state.path());
        let own = key("s", None);
        assert_eq!(store.load(&own).unwrap(), None);
        let lock = store.lock(&own).await.unwrap();
        store.save(&lock, &own, &grant("access-token", Some("refresh-token"), None)).unwrap();
        drop(lock);
        assert_eq!(store.load(&own).unwrap().unwrap().refreshes, 3);
        assert_eq!(store.load(&key("s", Some(""))).unwrap(), None);
        let GrantStore::Directory(directory) = &store;
        let file = directory.file(&own.file_name());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let bytes = fs::read(&file).unwrap();
        for secret in ["access-token", "refresh-token", "client-secret"] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
        }
        // A file under another name is not that name's grant.
        let other = key("other", None);
        fs::copy(&file, directory.file(&other.file_name())).unwrap();
        assert!(store.load(&other).is_err());
        // A changed file is an error, not a missing login.
        let mut changed = bytes.clone();
        changed[20] ^= 1;
        fs::write(&file, changed).unwrap();
        assert!(store.load(&own).is_err());
        fs::write(&file, &bytes[..5]).unwrap();
        assert!(store.load(&own).is_err());
    }

    #[tokio::test]
    async fn one_holder_at_a_time_has_the_lock() {
        let state = tempfile::tempdir().unwrap();
        let store = GrantStore::in_state(state.path());
        let own = key("s", None);
        let held = store.lock(&own).await.unwrap();
        let GrantStore::Directory(directory) = &store;
        let file = directory.lock_file(&own.file_name()).unwrap();
        assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
        let _other_grant = store.lock(&key("s", Some("a"))).await.unwrap();
        drop(held);
        let _next = store.lock(&own).await.unwrap();
    }
}
