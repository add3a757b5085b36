//! The last known lists of servers, kept in the state directory for the first listing after a start.
//!
//! A stored list is shown until the server has responded, and decides nothing: calls wait for the server's own list.
//! Files are named after a keyed hash of everything that a list may depend on, including the server's credentials, so
//! that a list is never shown for other ones. A file that cannot be read or written is ignored.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hashbrown::HashMap;
use ring::hmac;
use toolward_wire::list::ListKind;
use toolward_wire::{Message, Sender, meta};

use super::catalogue::{Catalogue, CatalogueBuilder};
use super::identity::on_this_machine;
use super::{Definition, Key, Reach, Unavailable};
use crate::lock::LockUnpoisoned;
use crate::opaque_id::derived_key;

const PURPOSE: &str = "toolward: names of stored lists, 1";
const DIRECTORY: &str = "lists";
const MAX_BYTES: usize = 4 << 20;
const MAX_FILES: usize = 512;
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// An unchanged list is written again after this time, so that it does not expire while it is used.
const RENEW_AGE: Duration = Duration::from_secs(24 * 3600);
/// Words in the names of inherited variables that may be credentials.
const SECRET_WORDS: [&str; 6] = ["AUTH", "TOKEN", "PASSWORD", "SECRET", "KEY", "CREDENTIAL"];

/// The stored lists of a state directory.
pub(super) struct ListStore {
    directory: PathBuf,
    key: hmac::Key,
    /// The hashes of lists that servers have sent since the start; `None` if the server failed.
    heard: Mutex<HashMap<String, Option<[u8; 32]>>>,
}

impl ListStore {
    /// `None` if the state directory cannot be used.
    pub(super) fn in_state(state: &Path) -> Option<ListStore> {
        let key = derived_key(state, PURPOSE, true).ok()??;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Some(ListStore { directory: state.join(DIRECTORY), key, heard: Mutex::default() })
    }

    /// The stored list, unless the server has responded, or failed, since the start.
    pub(super) fn first(
        &self,
        definition: &Definition,
        (key, kind): (&Key, ListKind),
    ) -> Option<Arc<Catalogue>> {
        let name = self.name(definition, (key, kind))?;
        if self.heard.locked().contains_key(&name) {
            return None;
        }
        let body = read(&self.directory.join(name)).ok()?;
        let message = Message::parse(body, MAX_BYTES, Sender::Server).ok()?;
        let mut list = CatalogueBuilder::new(kind);
        list.add_page(&message).ok()?;
        let over_http = matches!(definition.reach, Reach::Http(_));
        Some(Arc::new(list.finish(over_http, Some(0)).stored()))
    }

    /// Stores the list that a server sent, if it differs from the stored one. Returns whether a stored list must not be
    /// shown any longer, because the server failed.
    pub(super) fn heard(
        self: &Arc<Self>,
        definition: &Definition,
        (key, kind): (&Key, ListKind),
        list: Result<&Arc<Catalogue>, &Unavailable>,
    ) -> bool {
        let hash = match list {
            Ok(list) => Some(*list.hash()),
            // It may still respond.
            Err(why) if why.is_pending() => return false,
            Err(_) => None,
        };
        let Some(name) = self.name(definition, (key, kind)) else { return false };
        let before = self.heard.locked().insert(name.clone(), hash);
        if before == Some(hash) {
            return false;
        }
        if let Ok(list) = list {
            let (store, list) = (self.clone(), list.clone());
            tokio::task::spawn_blocking(move || {
                if let Err(error) = store.write(&name, &list) {
                    tracing::debug!(target: "upstream", "a list is not stored: {error}");
                }
            });
        }
        hash.is_none() && before.is_none()
    }

    /// The name of a list's file. `None` if lists of this server are not stored.
    fn name(&self, definition: &Definition, (key, kind): (&Key, ListKind)) -> Option<String> {
        if !definition.cache {
            return None;
        }
        let mut context = hmac::Context::with_key(&self.key);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        add(on_this_machine(&definition.reach, &definition.name)?.as_bytes());
        add(kind.method().as_bytes());
        add(key.revision.as_str().as_bytes());
        add(key.declared.to_json(key.revision).as_bytes());
        add(key.agent.as_deref().unwrap_or_default().as_bytes());
        match &definition.reach {
            Reach::Child(launch) => {
                let inherited = launch.inherit.variables(&launch.program, std::env::vars_os());
                let mut inherited: Vec<_> =
                    inherited.into_iter().filter(|(name, _)| may_be_secret(name)).collect();
                inherited.sort();
                for (name, value) in inherited.iter().chain(&launch.environment) {
                    add(name.as_encoded_bytes());
                    add(value.as_encoded_bytes());
                }
            }
            Reach::Http(remote) => {
                let remote = remote.of(key.agent.as_deref(), key.holder.as_ref());
                add(format!("{:?} {:?}", remote.headers, remote.tls).as_bytes());
                let credentials = remote.oauth.as_deref().map(|oauth| oauth.credentials());
                add(credentials.unwrap_or_default().as_bytes());
            }
            Reach::InMemory(_) | Reach::Own => {}
        }
        Some(context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn write(&self, name: &str, list: &Catalogue) -> io::Result<()> {
        let body = page(list);
        let path = self.directory.join(name);
        if body.len() > MAX_BYTES {
            return fs::remove_file(path);
        }
        let is_young = age(&path).is_ok_and(|age| age < RENEW_AGE);
        if is_young && read(&path).is_ok_and(|stored| stored == body) {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.prune()?;
        let new = path.with_extension(std::process::id().to_string());
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&body)?;
        fs::rename(&new, &path)
    }

    /// Removes files that have expired, and the oldest beyond the maximum.
    fn prune(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for file in fs::read_dir(&self.directory)?.flatten() {
            files.push((age(&file.path()).unwrap_or_default(), file.path()));
        }
        files.sort();
        for (at, (age, path)) in files.iter().enumerate() {
            if at + 1 >= MAX_FILES || *age > MAX_AGE {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// A list as the only page of a response.
fn page(list: &Catalogue) -> Bytes {
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"".to_vec();
    body.extend_from_slice(list.kind().member().as_bytes());
    body.extend_from_slice(b"\":[");
    for (at, entry) in list.entries().iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(entry.bytes());
    }
    body.push(b']');
    if let Some(info) = list.server_info() {
        body.extend_from_slice(format!(",\"_meta\":{{\"{}\":", meta::SERVER_INFO).as_bytes());
        body.extend_from_slice(info);
        body.push(b'}');
    }
    body.extend_from_slice(b"}}");
    body.into()
}

fn read(path: &Path) -> io::Result<Bytes> {
    if age(path)? > MAX_AGE {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut body = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64).read_to_end(&mut body)?;
    Ok(body.into())
}

fn age(path: &Path) -> io::Result<Duration> {
    let written = fs::metadata(path)?.modified()?;
    Ok(SystemTime::now().duration_since(written).unwrap_or_default())
}

fn may_be_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use toolward_wire::{ClientCapabilities, Era, Revision};

    use super::*;
    use crate::client::Owner;
    use crate::upstream::{Launch, built_in};

    fn definition(arguments: &[&str], variable: &str) -> Definition {
        let mut launch = Launch::nothing("s");
        launch.arguments = arguments.iter().map(OsString::from).collect();
        launch.environment = vec![("API_KEY".into(), variable.into())];
        Definition { reach: Reach::Child(launch), cache: true, ..built_in::definition() }
    }

    fn key(agent: Option<&str>) -> Key {
        let (owner, declared) = (Owner::Everyone, ClientCapabilities::NONE);
        let agent = agent.map(Arc::from);
        Key {
            revision: Revision::newest(Era::Modern),
            owner,
            agent,
            holder: None,
            declared,
            lane: 0,
        }
    }

    #[test]
    fn a_list_belongs_to_its_command_line_credentials_agent_kind_and_gateway() {
        let (state, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = |state: &tempfile::TempDir, definition: &Definition, agent, kind| {
            let store = ListStore::in_state(state.path()).unwrap();
            store.name(definition, (&key(agent), kind)).unwrap()
        };
        let usual = definition(&["a"], "1");
        let first = name(&state, &usual, None, ListKind::Tools);
        assert_eq!(name(&state, &usual, None, ListKind::Tools), first);
        let others = [
            name(&state, &definition(&["b"], "1"), None, ListKind::Tools),
            name(&state, &definition(&["a"], "2"), None, ListKind::Tools),
            name(&state, &usual, Some("a"), ListKind::Tools),
            name(&state, &usual, None, ListKind::Prompts),
            name(&other, &usual, None, ListKind::Tools),
        ];
        assert!(!others.contains(&first));
    }

    #[test]
    fn lists_have_a_maximum_number_and_age() {
        let state = tempfile::tempdir().unwrap();
        let store = ListStore::in_state(state.path()).unwrap();
        fs::create_dir(&store.directory).unwrap();
        let list = CatalogueBuilder::new(ListKind::Tools).finish(false, None);
        let file = |name: &str, age: Duration| {
            let path = store.directory.join(name);
            fs::write(&path, page(&list)).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let old = file("old", MAX_AGE + Duration::from_secs(60));
        assert!(read(&old).is_err());
        for at in 0..MAX_FILES as u64 + 10 {
            file(&format!("{at}"), Duration::from_secs(at * 60));
        }
        store.write("new", &list).unwrap();
        assert!(!old.exists() && store.directory.join("0").exists());
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), MAX_FILES);
    }
}
