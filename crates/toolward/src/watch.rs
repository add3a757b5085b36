//! Watches files for changes: written, renamed into place, or removed.
//!
//! Directories are watched instead of files, because editors and configuration management replace files. If a
//! path contains symbolic links, the directory of each link is watched, so that swapping a link is noticed. Parent
//! directories are watched up to the root, because a whole directory can be replaced.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use toolward_gateway::lock::LockUnpoisoned;

/// Changes within this time are combined.
const SETTLE_TIME: Duration = Duration::from_millis(20);
/// The maximum delay for files that keep changing.
const MAX_SETTLE_TIME: Duration = Duration::from_millis(100);
/// The polling interval if a directory cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum number of symbolic links on a path, because links can form a cycle.
const MAX_LINKS: usize = 16;

pub(crate) struct Watcher {
    events: OwnedFd,
    /// Wakes the waiting thread to update its watches.
    poked: OwnedFd,
    /// By watch: the directory, and the relevant names in it. Changes of other files are ignored.
    folders: Mutex<HashMap<i32, (PathBuf, HashSet<OsString>)>>,
    /// A directory on the path cannot be watched.
    blind: AtomicBool,
}

/// The reason why waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Something has changed, or may have.
    Changed,
    /// The set of watched files has changed.
    Poked,
}

impl Watcher {
    pub(crate) fn new() -> std::io::Result<Watcher> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let poked = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Watcher { events, poked, folders: Mutex::default(), blind: AtomicBool::new(false) })
    }

    /// Wakes the waiting thread to update its watches.
    pub(crate) fn poke(&self) {
        let _ = rustix::io::write(&self.poked, &1_u64.to_ne_bytes());
    }

    /// Watches all directories and links on these paths. Adding a directory twice has no effect.
    pub(crate) fn add(&self, files: &[PathBuf]) {
        let mut places: Vec<PathBuf> = files.iter().flat_map(|file| places(file)).collect();
        places.sort();
        places.dedup();
        let mut above: Vec<&Path> =
            places.iter().flat_map(|place| place.ancestors().skip(1)).collect();
        above.sort();
        above.dedup();
        let mut blind = false;
        for place in &places {
            blind |= !self.watch(place, WatchFlags::CLOSE_WRITE);
        }
        for folder in above {
            blind |= !self.watch(folder, WatchFlags::empty());
        }
        self.blind.store(blind, Ordering::Relaxed);
    }

    /// Watches a name in its directory. Returns false if that is not possible.
    fn watch(&self, place: &Path, also: WatchFlags) -> bool {
        let (Some(folder), Some(name)) = (place.parent(), place.file_name()) else { return true };
        let kinds = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::MASK_ADD
            | also;
        match inotify::add_watch(&self.events, folder, kinds) {
            Ok(watch) => {
                let mut folders = self.folders.locked();
                let (known, names) = folders.entry(watch).or_default();
                known.clone_from(&folder.to_path_buf());
                names.insert(name.into());
                true
            }
            // If the directory does not exist, its parent is watched too, in which it will be created.
            Err(error) => {
                matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR)
            }
        }
    }

    /// Waits for a change, and until changes have settled.
    pub(crate) fn wait(&self) -> std::io::Result<WakeReason> {
        loop {
            if self.drain()? {
                break;
            }
            if rustix::io::read(&self.poked, &mut [0; 8]).is_ok() {
                return Ok(WakeReason::Poked);
            }
            let blind = self.blind.load(Ordering::Relaxed);
            if !self.poll(blind.then_some(POLL_INTERVAL))? {
                return Ok(WakeReason::Changed);
            }
        }
        let begun = Instant::now();
        loop {
            std::thread::sleep(SETTLE_TIME);
            if !self.drain()? || begun.elapsed() > MAX_SETTLE_TIME {
                return Ok(WakeReason::Changed);
            }
        }
    }

    /// Waits for events until the timeout; returns whether there are any.
    fn poll(&self, timeout: Option<Duration>) -> std::io::Result<bool> {
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let both = [&self.events, &self.poked];
        let mut waited = both.map(|one| PollFd::new(one, PollFlags::IN));
        loop {
            match poll(&mut waited, timeout.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads all pending events; returns whether one is relevant.
    fn drain(&self) -> std::io::Result<bool> {
        let mut folders = self.folders.locked();
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.events, &mut room);
        let mut some = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let flags = event.events();
                    if flags.contains(ReadFlags::IGNORED) {
                        folders.remove(&event.wd());
                    }
                    // An event without a name is about the directory itself, or events were lost.
                    let Some(name) = event.file_name() else {
                        some = true;
                        continue;
                    };
                    let name = OsStr::from_bytes(name.to_bytes());
                    let Some((folder, names)) = folders.get(&event.wd()) else { continue };
                    some |= names.contains(name)
                        && (!flags.contains(ReadFlags::CREATE) || is_whole(&folder.join(name)));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(some),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether a new entry is complete at once: a directory or a link. For a file, there is an event when it has
/// been written.
fn is_whole(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_file() || found.nlink() > 1)
}
/// The file, and every link on its path.
fn places(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(mut path) = std::path::absolute(file) else { return found };
    for _ in 0..MAX_LINKS {
        found.push(path.clone());
        let Some((link, target, rest)) = first_link(&path) else { break };
        path = link.parent().unwrap_or(Path::new("/")).join(target).join(rest);
        found.push(link);
    }
    found
}

/// The first symbolic link on a path, its target, and the remaining path.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let mut so_far = PathBuf::new();
    let parts: Vec<OsString> = path.iter().map(OsString::from).collect();
    for (at, part) in parts.iter().enumerate() {
        so_far.push(part);
        if let Ok(target) = std::fs::read_link(&so_far) {
            let rest = parts.get(at + 1..).unwrap_or_default().iter().collect();
            return Some((so_far, target, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_on_the_way_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("mount/..2026")).unwrap();
        std::fs::write(root.join("mount/..2026/policy.yaml"), "").unwrap();
        std::os::unix::fs::symlink("..2026", root.join("mount/..data")).unwrap();
        std::os::unix::fs::symlink("..data/policy.yaml", root.join("mount/policy.yaml")).unwrap();
        let found = places(&root.join("mount/policy.yaml"));
        for place in ["mount/policy.yaml", "mount/..data", "mount/..2026/policy.yaml"] {
            assert!(found.contains(&root.join(place)), "{place}: {found:?}");
        }
    }

    #[test]
    fn renames_and_writes_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let watcher = Watcher::new().unwrap();
        watcher.add(std::slice::from_ref(&file));
        std::fs::write(folder.path().join("b"), "2").unwrap();
        std::fs::rename(folder.path().join("b"), &file).unwrap();
        watcher.wait().unwrap();
        assert!(!watcher.drain().unwrap());
        std::fs::write(&file, "3").unwrap();
        watcher.wait().unwrap();
    }
}
