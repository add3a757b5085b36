//! Files that other users could change.
//!
//! A file is only as trustworthy as the users who can write it, or replace it through a directory
//! or a symbolic link on its path. Root is trusted, sticky directories such as `/tmp` are accepted
//! for one's own files, and so is everything on a read-only mount, such as a Kubernetes secret
//! volume.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The kernel follows at most this many symbolic links.
const MAX_LINKS: usize = 40;
const STICKY: u32 = 0o1000;

/// Why other users could change a file, and how to fix it.
#[derive(Debug)]
pub struct Exposed {
    pub why: String,
    pub help: String,
}

/// Whether users other than this one and root could change a file. A missing file is not exposed.
pub fn exposed(path: &Path) -> Option<Exposed> {
    exposed_to_others(path, rustix::process::geteuid().as_raw())
}

/// Checks the file and everything on its path.
fn exposed_to_others(path: &Path, user: u32) -> Option<Exposed> {
    let mut way = PathBuf::new();
    let mut rest = components(&std::path::absolute(path).ok()?);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        let before = way.clone();
        way = match part.as_os_str() == ".." {
            true => before.parent().map_or_else(|| before.clone(), Path::to_owned),
            false => before.join(&part),
        };
        let found = std::fs::symlink_metadata(&way).ok()?;
        if let Some(exposed) = writable(&way, &found, user).filter(|_| !is_read_only(&before)) {
            return Some(exposed);
        }
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            rest.extend(components(&std::fs::read_link(&way).ok()?));
            // An absolute target continues at the root: `join` does that.
            way = before;
        }
    }
    None
}

/// The components of a path, the last one first.
fn components(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let mut parts: Vec<PathBuf> = parts.map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

fn writable(path: &Path, found: &Metadata, user: u32) -> Option<Exposed> {
    let shown = path.display();
    if found.uid() != user && found.uid() != 0 {
        let why = format!("{shown} belongs to another user (uid {})", found.uid());
        return Some(Exposed { why, help: format!("`chown` it to the gateway's user: {shown}") });
    }
    // The mode of a link is irrelevant: anyone who can write to its directory can replace it.
    let is_sticky = found.is_dir() && found.mode() & STICKY != 0;
    if found.is_symlink() || is_sticky || found.mode() & 0o022 == 0 {
        return None;
    }
    let who = if found.mode() & 0o002 != 0 { "every user" } else { "its group" };
    let why = format!("{who} can write to {shown}");
    Some(Exposed { why, help: format!("run `chmod go-w {shown}`") })
}

/// Whether nothing in a directory can be changed, because it is mounted read-only.
pub fn is_read_only(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn why(path: &Path) -> Option<String> {
        exposed(path).map(|exposed| exposed.why)
    }

    #[test]
    fn a_file_is_as_safe_as_everything_on_the_way_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let file = inner.join("secret");
        assert_eq!(why(&file), None);
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        assert_eq!(why(&file), None);
        mode(&file, 0o664);
        assert!(why(&file).unwrap().starts_with("its group can write"));
        mode(&file, 0o646);
        assert!(why(&file).unwrap().starts_with("every user can write"));
        mode(&file, 0o600);
        mode(&inner, 0o777);
        assert!(why(&file).unwrap().ends_with("inner"));
        // As in `/tmp`, users can only replace their own files.
        mode(&inner, 0o1777);
        assert_eq!(why(&file), None);
        mode(&inner, 0o755);
        mode(folder.path(), 0o770);
        assert!(why(&file).is_some());
        mode(folder.path(), 0o700);
        let link = inner.join("link");
        symlink("secret", &link).unwrap();
        assert_eq!(why(&link), None);
    }

    #[test]
    fn files_and_links_of_other_users_are_not_safe() {
        if rustix::process::geteuid().as_raw() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "").unwrap();
        symlink("file", &link).unwrap();
        // Files and links of root are accepted for every user.
        assert!(exposed_to_others(&folder.path().join("missing"), 1000).is_none());
        mode(folder.path(), 0o755);
        assert!(exposed_to_others(&link, 1000).is_none());
        std::os::unix::fs::lchown(&link, Some(1001), None).unwrap();
        assert!(exposed_to_others(&link, 1000).unwrap().why.contains("uid 1001"));
        assert!(exposed_to_others(&link, 1001).is_none());
        assert!(exposed_to_others(&file, 1000).is_none());
        chown(&file, Some(1000), None).unwrap();
        assert!(
            exposed_to_others(&file, 1000).is_none() && exposed_to_others(&file, 1001).is_some()
        );
    }
}
