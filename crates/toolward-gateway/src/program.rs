//! Finds programs in `PATH`.
//!
//! A bare name is resolved once, when the configuration is loaded. Relative and empty `PATH`
//! entries are skipped: they mean the working directory, where anyone may have put a program with
//! that name.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The search path of the C library if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Whether a program is a path, and not searched in `PATH`.
pub fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

/// The file of a program: the path itself, or the first executable with this name in `search`.
pub fn find(program: &OsStr, search: Option<&OsStr>) -> Option<PathBuf> {
    if is_path(program) {
        return Some(program.into());
    }
    let search = search.unwrap_or(OsStr::new(DEFAULT_PATH));
    let directories = std::env::split_paths(search).filter(|directory| directory.is_absolute());
    directories
        .map(|directory| directory.join(program))
        .find(|file| !program.is_empty() && is_executable(file))
}

/// Whether a file has any execute permission.
pub fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_found_in_absolute_entries_only() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        for (place, mode) in [(&one, 0o644), (&two, 0o755)] {
            std::fs::create_dir(place).unwrap();
            let file = place.join("server");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        }
        let search = |path: String| find(OsStr::new("server"), Some(OsStr::new(&path)));
        let (one, two) = (one.display(), two.display());
        assert_eq!(search(format!("{one}:{two}")), Some(format!("{two}/server").into()));
        assert_eq!(search(format!("{one}")), None);
        assert_eq!(find(OsStr::new("./server"), None), Some("./server".into()));
        assert!(find(OsStr::new("sh"), None).is_some());
        assert_eq!(find(OsStr::new(""), Some(OsStr::new("/bin"))), None);
        // An executable in the working directory.
        let here = std::env::current_dir().unwrap();
        let local = tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o755))
            .prefix("bare")
            .tempfile_in(&here)
            .unwrap();
        let name = local.path().file_name().unwrap();
        for entry in ["", ".", "::", "./", "a:."] {
            assert_eq!(find(name, Some(OsStr::new(entry))), None, "{entry:?}");
        }
        assert!(find(name, Some(here.as_os_str())).is_some());
    }
}
