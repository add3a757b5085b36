//! Who can have written a file, and who could put another in its place. Code that is read into a
//! shell is the operator's own only if nobody else could have touched it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::ownership::is_read_only;

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// Whether nobody but this user and root can have written the file, or can put another in its place.
pub fn policy_file(file: &Path) -> Result<(), String> {
    of_user(file, rustix::process::geteuid().as_raw())
}

fn of_user(file: &Path, user: u32) -> Result<(), String> {
    let shown = file.display();
    let found = std::fs::symlink_metadata(file)
        .map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let absolute = std::path::absolute(file).map_err(|error| format!("{shown}: {error}"))?;
    let around = absolute.parent().unwrap_or(Path::new("/"));
    // Files of a Kubernetes volume are links, and nobody can change them.
    if is_read_only(around) && file.is_file() {
        return links_on_the_way(around, user).map_err(|link| exchangeable(file, &link));
    }
    if !found.is_file() {
        let what = if found.is_symlink() { "a symbolic link" } else { "no regular file" };
        return Err(format!("{shown} is {what}; give the file itself"));
    }
    if is_foreign(&found, user) {
        return Err(format!("{shown} belongs to another user"));
    }
    if is_writable(&found) {
        return Err(format!("{shown} can be written by others: `chmod go-w` it"));
    }
    let file = std::path::absolute(file).map_err(|error| format!("{shown}: {error}"))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let around = std::fs::metadata(folder)
        .map_err(|error| format!("the folder of {shown} cannot be read: {error}"))?;
    if is_foreign(&around, user) {
        return Err(format!("the folder of {shown} belongs to another user"));
    }
    if is_writable(&around) {
        return Err(format!("the folder of {shown} can be written by others: `chmod go-w` it"));
    }
    links_on_the_way(folder, user).map_err(|link| exchangeable(&file, &link))
}

fn exchangeable(file: &Path, link: &Path) -> String {
    format!("{} is reached by {}, which others can exchange", file.display(), link.display())
}

/// Links on the way to a folder are as good as the folders that hold them. The error is a link that
/// somebody else could exchange.
fn links_on_the_way(folder: &Path, user: u32) -> Result<(), PathBuf> {
    let mut way = PathBuf::new();
    let mut rest: Vec<PathBuf> = parts(folder);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        let before = way.clone();
        way = match part.as_os_str() == ".." {
            true => before.parent().map_or_else(|| before.clone(), Path::to_owned),
            false => before.join(&part),
        };
        let Ok(found) = std::fs::symlink_metadata(&way) else { return Err(way) };
        if !found.is_symlink() {
            continue;
        }
        links += 1;
        let (Ok(holder), Ok(target)) = (std::fs::metadata(&before), std::fs::read_link(&way))
        else {
            return Err(way);
        };
        // In a folder like `/tmp`, everyone can exchange their own.
        let open = is_writable(&holder) && holder.mode() & 0o1000 == 0;
        if links > MOST_LINKS || open || is_foreign(&holder, user) || is_foreign(&found, user) {
            return Err(way);
        }
        rest.extend(parts(&target));
        // A target that begins at the root goes on from there: joining does that.
        way = before;
    }
    Ok(())
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let mut parts: Vec<PathBuf> = parts.map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

fn is_foreign(found: &Metadata, user: u32) -> bool {
    found.uid() != user && found.uid() != 0
}

fn is_writable(found: &Metadata) -> bool {
    found.mode() & 0o022 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_could_change_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.sh");
        assert!(policy_file(&file).unwrap_err().contains("cannot be read"));
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        assert_eq!(policy_file(&file), Ok(()));
        for writable in [0o664, 0o646, 0o666] {
            mode(&file, writable);
            assert!(policy_file(&file).unwrap_err().contains("written by others"));
        }
        mode(&file, 0o600);
        let link = folder.path().join("link.sh");
        symlink(&file, &link).unwrap();
        assert!(policy_file(&link).unwrap_err().contains("symbolic link"));
        assert!(policy_file(folder.path()).unwrap_err().contains("no regular file"));
        mode(folder.path(), 0o770);
        assert!(policy_file(&file).unwrap_err().contains("folder"));
        mode(folder.path(), 0o700);
        assert_eq!(policy_file(&file), Ok(()));
    }

    #[test]
    fn a_folder_or_link_of_somebody_else_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (real, open) = (folder.path().join("real"), folder.path().join("open"));
        for (folder, how) in [(&real, 0o755), (&open, 0o777)] {
            std::fs::create_dir(folder).unwrap();
            mode(folder, how);
        }
        let file = real.join("policy.sh");
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        symlink("real", folder.path().join("link")).unwrap();
        symlink("../real", open.join("link")).unwrap();
        assert_eq!(policy_file(&folder.path().join("link/policy.sh")), Ok(()));
        let why = policy_file(&open.join("link/policy.sh")).unwrap_err();
        assert!(why.contains("others can exchange"), "{why}");
        let user = rustix::process::geteuid().as_raw();
        if user == 0 {
            chown(&real, Some(65534), None).unwrap();
            assert!(policy_file(&file).unwrap_err().contains("folder"));
            chown(&file, Some(65534), None).unwrap();
            chown(&real, Some(0), None).unwrap();
            assert!(policy_file(&file).unwrap_err().contains("another user"));
        } else {
            // What is ours is foreign to somebody else.
            assert!(of_user(&file, user + 1).unwrap_err().contains("another user"));
        }
    }
}
