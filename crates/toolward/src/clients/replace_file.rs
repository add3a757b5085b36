//! Atomic replacement of a file that other programs may change at the same time.
//!
//! The new content is written to a temporary file in the same directory, flushed, and swapped with the file
//! atomically. The old content is then compared with the expected one: if another program wrote to the file
//! in the meantime, its version is restored. Mode and owner are kept, and a symbolic link stays one: the file
//! that it points to is replaced.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Why a file was not replaced. The file is unchanged.
#[derive(Debug)]
pub(crate) enum NotReplaced {
    /// Another program changed it in the meantime.
    Changed,
    NotAFile,
    ReadOnly,
    Io(io::Error),
}

impl From<io::Error> for NotReplaced {
    fn from(error: io::Error) -> NotReplaced {
        NotReplaced::Io(error)
    }
}

impl std::fmt::Display for NotReplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotReplaced::Changed => {
                f.write_str("it was changed by another program in the meantime")
            }
            NotReplaced::NotAFile => f.write_str("it is not a file"),
            NotReplaced::ReadOnly => f.write_str("it is not writable"),
            NotReplaced::Io(error) => write!(f, "{error}"),
        }
    }
}

/// The steps of a replacement, for tests that stop it at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Created,
    Written,
    Synced,
    Exchanged,
    Removed,
}

/// Reads a regular file. A directory or another kind of file is refused.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, NotReplaced> {
    let found = path.metadata()?;
    if !found.is_file() {
        return Err(NotReplaced::NotAFile);
    }
    Ok(std::fs::read(path)?)
}

/// Refuses a file that [`replace`] would not replace because it is read-only.
pub(crate) fn check_writable(path: &Path) -> Result<(), NotReplaced> {
    match is_writable(path, &path.metadata()?) {
        true => Ok(()),
        false => Err(NotReplaced::ReadOnly),
    }
}

fn is_writable(path: &Path, found: &Metadata) -> bool {
    !found.permissions().readonly() && OpenOptions::new().append(true).open(path).is_ok()
}

/// Replaces the content of a file, if it still is `expected`.
pub(crate) fn replace(path: &Path, expected: &[u8], new: &[u8]) -> Result<(), NotReplaced> {
    replace_in_steps(path, expected, new, &mut |_| Ok(()))
}

/// The same, with a callback after each step. An error of it is a crash: nothing is cleaned up.
pub(crate) fn replace_in_steps(
    path: &Path,
    expected: &[u8],
    new: &[u8],
    after: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<(), NotReplaced> {
    let path = path.canonicalize()?;
    let found = path.metadata()?;
    if !found.is_file() {
        return Err(NotReplaced::NotAFile);
    }
    if !is_writable(&path, &found) {
        return Err(NotReplaced::ReadOnly);
    }
    if std::fs::read(&path)? != expected {
        return Err(NotReplaced::Changed);
    }
    let beside = beside(&path)?;
    // Left by a process that was killed.
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    after(Step::Created)?;
    let written = write(&mut file, &found, new);
    if let Err(error) = written {
        let _ = std::fs::remove_file(&beside);
        return Err(error.into());
    }
    after(Step::Written)?;
    file.sync_all()?;
    after(Step::Synced)?;
    exchange(&beside, &path, expected)?;
    after(Step::Exchanged)?;
    let _ = std::fs::remove_file(&beside);
    if let Some(directory) = path.parent() {
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
    }
    after(Step::Removed)?;
    match std::fs::read(&path)? == new {
        true => Ok(()),
        false => Err(NotReplaced::Changed),
    }
}

/// Creates a file that does not exist yet, and the directories above it, for this user only.
pub(crate) fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let beside = beside(path)?;
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    // Unlike a rename, a link does not replace a file that appeared in the meantime.
    let linked = std::fs::hard_link(&beside, path);
    let _ = std::fs::remove_file(&beside);
    linked
}

/// A name in the same directory, so that the rename stays on one file system.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.toolward-new")))
}

/// Writes the content with the mode and owner of the file that it replaces.
fn write(file: &mut File, like: &Metadata, content: &[u8]) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(&*file, Some(like.uid()), Some(like.gid()))?;
    }
    file.set_permissions(like.permissions())?;
    file.write_all(content)
}

fn exchange(new: &Path, path: &Path, expected: &[u8]) -> Result<(), NotReplaced> {
    let swap = || renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE);
    match swap() {
        Ok(()) if std::fs::read(new)? == expected => Ok(()),
        Ok(()) => {
            swap().map_err(io::Error::from)?;
            let _ = std::fs::remove_file(new);
            Err(NotReplaced::Changed)
        }
        // The file system cannot exchange files: the moment between the comparison and the rename remains.
        Err(_) => {
            if std::fs::read(path)? != expected {
                let _ = std::fs::remove_file(new);
                return Err(NotReplaced::Changed);
            }
            Ok(std::fs::rename(new, path)?)
        }
    }
}
