//! Tells when files have changed: written to their end, renamed into place, or removed.
//!
//! Folders are watched, not files: editors and configuration management put a new file in the place of
//! the old one. Where a path leads over symbolic links, the folder of each link is watched, so that a
//! link that is swapped is a change too.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

/// Changes that come together are one.
const QUIET: Duration = Duration::from_millis(20);
/// Files that never come to rest are looked at in between.
const LONGEST: Duration = Duration::from_millis(100);
/// Links that lead to each other end somewhere.
const MOST_LINKS: usize = 16;

pub(crate) struct Watcher {
    events: OwnedFd,
    /// Names that matter. Whatever else lies in the same folders is not ours, and files that are being
    /// written are not read because of it.
    names: Mutex<HashSet<OsString>>,
}

impl Watcher {
    pub(crate) fn new() -> std::io::Result<Watcher> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Watcher { events, names: Mutex::default() })
    }

    /// Watches what these paths lead over. Watching a folder twice is watching it once.
    pub(crate) fn add(&self, files: &[PathBuf]) -> std::io::Result<()> {
        let kinds = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE;
        let mut places: Vec<PathBuf> = files.iter().flat_map(|file| places(file)).collect();
        places.sort();
        places.dedup();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.extend(places.iter().filter_map(|place| place.file_name()).map(OsString::from));
        for folder in places.iter().filter_map(|place| place.parent()) {
            match inotify::add_watch(&self.events, folder, kinds) {
                // A folder that is not there is reported by whoever reads its files.
                Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for a change, and until it has come to rest.
    pub(crate) fn wait(&self) -> std::io::Result<()> {
        while !self.drain()? {
            self.poll(None)?;
        }
        let begun = Instant::now();
        loop {
            self.poll(Some(QUIET))?;
            if !self.drain()? || begun.elapsed() > LONGEST {
                return Ok(());
            }
        }
    }

    fn poll(&self, patience: Option<Duration>) -> std::io::Result<()> {
        let patience = patience.and_then(|time| Timespec::try_from(time).ok());
        let mut waited = [PollFd::new(&self.events, PollFlags::IN)];
        loop {
            match poll(&mut waited, patience.as_ref()) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes what is there; whether something of it matters.
    fn drain(&self) -> std::io::Result<bool> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.events, &mut room);
        let mut some = false;
        loop {
            match events.next() {
                Ok(event) => {
                    // Without a name it is about the folder, or some events were lost.
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    some |= name.is_none_or(|name| names.contains(name));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(some),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The file, and every link on the way to it.
fn places(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(mut path) = std::path::absolute(file) else { return found };
    for _ in 0..MOST_LINKS {
        found.push(path.clone());
        let Some((link, target, rest)) = first_link(&path) else { break };
        path = link.parent().unwrap_or(Path::new("/")).join(target).join(rest);
        found.push(link);
    }
    found
}

/// The first symbolic link on a path, what it says, and what comes after it.
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
    fn renames_and_writes_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let watcher = Watcher::new().unwrap();
        watcher.add(std::slice::from_ref(&file)).unwrap();
        std::fs::write(folder.path().join("b"), "2").unwrap();
        std::fs::rename(folder.path().join("b"), &file).unwrap();
        watcher.wait().unwrap();
        assert!(!watcher.drain().unwrap());
        std::fs::write(&file, "3").unwrap();
        watcher.wait().unwrap();
    }
}
