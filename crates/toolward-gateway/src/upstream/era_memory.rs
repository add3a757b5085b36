//! The protocol versions of servers, remembered across restarts in the state directory.
//!
//! Only servers that support a single protocol version are remembered: others are asked in the client's own, which needs
//! no memory. The file holds no command lines and no addresses, only their hashes. It is a hint: a wrong entry costs one
//! attempt, and a file that cannot be read or written is ignored.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use hashbrown::HashMap;
use serde_json::{Value, json};
use toolward_wire::Era;

use crate::clock;
use crate::lock::LockUnpoisoned;

const FILE: &str = "protocol-versions.json";
const MAX_BYTES: u64 = 64 << 10;
const MAX_SERVERS: usize = 256;
/// How long an entry is used. A package may support another version after an update.
pub(super) const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The memory of a state directory.
#[derive(Debug)]
pub(super) struct EraMemory {
    path: PathBuf,
    /// Held while the file is read and written.
    known: Mutex<HashMap<String, Entry>>,
}

/// A server that supports only this protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    only: Era,
    /// In seconds since 1970.
    since: u64,
}

impl Entry {
    fn age(&self) -> Option<Duration> {
        let age = Duration::from_secs(clock::seconds().checked_sub(self.since)?);
        (age < MAX_AGE).then_some(age)
    }
}

impl EraMemory {
    pub(super) fn in_directory(directory: &Path) -> EraMemory {
        let path = directory.join(FILE);
        let known = Mutex::new(read(&path));
        EraMemory { path, known }
    }

    /// The only protocol version that a server supports, and for how long that has been known.
    pub(super) fn only(&self, identity: &str) -> Option<(Era, Duration)> {
        let entry = self.known.locked().get(identity).copied()?;
        entry.age().map(|age| (entry.only, age))
    }

    /// Remembers the only protocol version that a server supports; `None` forgets it.
    pub(super) fn remember(&self, identity: &str, only: Option<Era>) {
        let mut known = self.known.locked();
        let before = known.get(identity).filter(|entry| entry.age().is_some());
        if before.map(|entry| entry.only) == only {
            return;
        }
        // Other processes write the file, too.
        *known = read(&self.path);
        match only {
            Some(only) => known.insert(identity.into(), Entry { only, since: clock::seconds() }),
            None => known.remove(identity),
        };
        if let Err(error) = write(&self.path, &known) {
            let path = self.path.display();
            tracing::debug!(target: "upstream", "{path}: the protocol version is not remembered: {error}");
        }
    }
}

fn read(path: &Path) -> HashMap<String, Entry> {
    let text = File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map(|_| text)
    });
    let parsed: Value =
        text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let entries = parsed["servers"].as_object().into_iter().flatten();
    let entry = |(identity, entry): (&String, &Value)| {
        let only = match entry["only"].as_str()? {
            "legacy" => Era::Legacy,
            "modern" => Era::Modern,
            _ => return None,
        };
        let entry = Entry { only, since: entry["since"].as_u64()? };
        entry.age().map(|_| (identity.clone(), entry))
    };
    entries.filter_map(entry).take(MAX_SERVERS).collect()
}

/// Replaces the file in one step, with the newest entries.
fn write(path: &Path, known: &HashMap<String, Entry>) -> io::Result<()> {
    let mut newest: Vec<_> = known.iter().collect();
    newest.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.since));
    newest.truncate(MAX_SERVERS);
    let entry = |(identity, entry): (&String, &Entry)| {
        let only = match entry.only {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        (identity.clone(), json!({"only": only, "since": entry.since}))
    };
    let servers: serde_json::Map<String, Value> = newest.into_iter().map(entry).collect();
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let new = path.with_extension(format!("json.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(json!({ "servers": servers }).to_string().as_bytes())?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(only: &str, since: u64) -> Value {
        json!({"only": only, "since": since})
    }

    fn with_file(text: &str) -> (tempfile::TempDir, EraMemory) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let memory = EraMemory::in_directory(folder.path());
        (folder, memory)
    }

    #[test]
    fn entries_survive_and_can_be_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let memory = || EraMemory::in_directory(&folder.path().join("state"));
        memory().remember("a", Some(Era::Legacy));
        memory().remember("b", Some(Era::Modern));
        let only = |identity: &str| memory().only(identity).map(|(only, _)| only);
        assert_eq!((only("a"), only("b")), (Some(Era::Legacy), Some(Era::Modern)));
        memory().remember("a", None);
        assert_eq!((only("a"), only("b")), (None, Some(Era::Modern)));
    }

    #[test]
    fn an_entry_of_another_process_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) =
            (EraMemory::in_directory(folder.path()), EraMemory::in_directory(folder.path()));
        one.remember("a", Some(Era::Legacy));
        other.remember("b", Some(Era::Legacy));
        let memory = EraMemory::in_directory(folder.path());
        assert!(memory.only("a").is_some() && memory.only("b").is_some());
    }

    #[test]
    fn old_entries_and_those_of_the_future_are_ignored() {
        let now = clock::seconds();
        let servers = json!({
            "young": entry("legacy", now - 60),
            "old": entry("legacy", now - MAX_AGE.as_secs()),
            "future": entry("legacy", now + 3600),
            "odd": entry("other", now),
        });
        let (_folder, memory) = with_file(&json!({ "servers": servers }).to_string());
        let known = |identity: &&str| memory.only(identity).is_some();
        let known: Vec<_> = ["young", "old", "future", "odd"].into_iter().filter(known).collect();
        assert_eq!(known, ["young"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_ignored_and_replaced() {
        let long = " ".repeat(MAX_BYTES as usize) + "{}";
        for text in ["", "{", "[]", "{\"servers\": 5}", "{\"servers\": {\"a\": 5}}", &long] {
            let (folder, memory) = with_file(text);
            assert_eq!(memory.only("a"), None);
            memory.remember("a", Some(Era::Modern));
            assert!(EraMemory::in_directory(folder.path()).only("a").is_some());
        }
    }

    #[test]
    fn the_file_has_a_maximum_size() {
        let now = clock::seconds();
        let many = (0..2 * MAX_SERVERS as u64).map(|at| {
            let entry = Entry { only: Era::Legacy, since: now - at };
            (format!("{at:064}"), entry)
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        write(&path, &many.collect()).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < MAX_BYTES);
        let known = read(&path);
        assert_eq!(known.len(), MAX_SERVERS);
        assert!(known.contains_key(&format!("{:064}", 0)), "the newest are kept");
    }
}
