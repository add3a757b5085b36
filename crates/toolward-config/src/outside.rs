//! The world outside: environment and files. Loading takes both as parameters, so that everything
//! can be tested without either.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

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
        std::fs::read(path)
    }
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

/// Why a file could not be read, in a few words.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "this user may not read it".into(),
        io::ErrorKind::IsADirectory => "it is a folder".into(),
        _ => error.to_string(),
    }
}
