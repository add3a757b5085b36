//! Checks the file of a `policy_sh`: no other user may be able to change or replace it, because a shell
//! runs it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::ownership::{exposed, is_read_only};

/// Checks that only this user and root can write or replace the file.
///
/// Stricter than for other files: it must not be a link, and its directory must not be writable for
/// others, not even if it is sticky. On a read-only mount a link is accepted, because files of a
/// Kubernetes volume are links.
pub fn policy_file(file: &Path) -> Result<(), String> {
    let shown = file.display();
    let found = std::fs::symlink_metadata(file)
        .map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let absolute = std::path::absolute(file).map_err(|error| format!("{shown}: {error}"))?;
    let directory = absolute.parent().unwrap_or(Path::new("/"));
    let is_mounted_read_only = is_read_only(directory);
    let is_usable = found.is_file() || (is_mounted_read_only && file.is_file());
    if !is_usable {
        let what = if found.is_symlink() { "a symbolic link" } else { "not a regular file" };
        return Err(format!("{shown} is {what}; give the file itself"));
    }
    let around = std::fs::metadata(directory)
        .map_err(|error| format!("the directory of {shown} cannot be read: {error}"))?;
    if around.mode() & 0o022 != 0 && !is_mounted_read_only {
        return Err(format!("others can write to the directory of {shown}: `chmod go-w` it"));
    }
    match exposed(&absolute) {
        Some(exposed) => Err(format!("{shown} is not safe: {}; {}", exposed.why, exposed.help)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refused(path: &Path, why: &str) {
        let error = policy_file(path).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_file_that_others_could_change_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.sh");
        refused(&file, "cannot be read");
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        assert_eq!(policy_file(&file), Ok(()));
        mode(&file, 0o664);
        refused(&file, "its group can write");
        for writable in [0o646, 0o666] {
            mode(&file, writable);
            refused(&file, "every user can write");
        }
        mode(&file, 0o600);
        let link = folder.path().join("link.sh");
        symlink(&file, &link).unwrap();
        refused(&link, "symbolic link");
        refused(folder.path(), "not a regular file");
        for writable in [0o770, 0o1777] {
            mode(folder.path(), writable);
            refused(&file, "others can write to the directory");
        }
        mode(folder.path(), 0o700);
        assert_eq!(policy_file(&file), Ok(()));
    }

    #[test]
    fn a_directory_or_link_that_others_could_replace_is_not_trusted() {
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
        refused(&open.join("link/policy.sh"), "every user can write to");
        if rustix::process::geteuid().as_raw() == 0 {
            chown(&real, Some(65534), None).unwrap();
            refused(&file, "belongs to another user");
            chown(&file, Some(65534), None).unwrap();
            chown(&real, Some(0), None).unwrap();
            refused(&file, "belongs to another user");
        }
    }
}
