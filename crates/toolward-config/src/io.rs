//! Access to environment variables and files, behind traits, so that loading can be tested without either.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::diagnostics::text::MAX_BYTES;

/// Environment variables.
pub trait Env {
    fn var(&self, name: &str) -> Option<OsString>;
}

/// Files by path.
pub trait Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    fn var(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let given = is_given(path);
        let mut options = File::options();
        options.read(true);
        if !given {
            // Opening a pipe would block.
            options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        }
        let file = options.open(path)?;
        let found = file.metadata()?;
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Reading a device may never end.
        if !found.is_file() && !given {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        match bytes.len() > MAX_BYTES {
            true => Err(io::Error::other("it is too large")),
            false => Ok(bytes),
        }
    }
}

/// Whether the path is a file descriptor inherited from the parent process, such as `<(COMMAND)` of a shell.
fn is_given(path: &Path) -> bool {
    let given = ["/dev/null", "/dev/stdin", "/dev/fd", "/proc/self/fd"];
    given.iter().any(|one| path.starts_with(one))
}

impl<S: AsRef<std::ffi::OsStr>> Env for HashMap<String, S> {
    fn var(&self, name: &str) -> Option<OsString> {
        self.get(name).map(|value| value.as_ref().to_owned())
    }
}

impl<B: AsRef<[u8]>> Files for HashMap<PathBuf, B> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.get(path) {
            Some(bytes) => Ok(bytes.as_ref().to_vec()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl<T: Env + ?Sized> Env for &T {
    fn var(&self, name: &str) -> Option<OsString> {
        (**self).var(name)
    }
}

impl<T: Files + ?Sized> Files for &T {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        (**self).read(path)
    }
}

/// Directories against which the paths of a file are resolved.
pub(crate) struct Directories<'a> {
    /// The directory of the file.
    pub(crate) base: &'a Path,
    /// The user's home directory, for `~`.
    pub(crate) home: Option<&'a Path>,
}

impl Directories<'_> {
    /// The default state directory.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        self.home.map(|home| home.join(".local/state/toolward"))
    }

    pub(crate) fn path(&self, written: &str) -> PathBuf {
        match (written.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.base.join(written),
        }
    }
}

/// A program with a directory in its name is resolved relative to the file, others through `PATH`.
pub(crate) fn program(command: &str, base: &Path) -> String {
    match command.contains('/') && !command.starts_with('/') {
        true => base.join(command).to_string_lossy().into_owned(),
        false => command.to_owned(),
    }
}

/// Why a file could not be read, in a few words.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied for this user".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
        _ => error.to_string(),
    }
}
