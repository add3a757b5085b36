//! Scripts of `exec` hooks, and refusal to run one that was truncated.
//!
//! A shell script that lost its end exits with 0, which allows every call. A changed script is used from the next
//! start of its process on, without a reload; one that is only the beginning of the text that ran before is an
//! error until a person accepts it with `toolward reload --accept`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hashbrown::HashMap;

use crate::lock::LockUnpoisoned;
use crate::truncated::is_beginning;

/// Larger files are not scripts.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// The scripts of all hooks by path. Handed from one configuration to the next, so that a reload does not
/// accept what a call refuses.
#[derive(Debug, Clone, Default)]
pub struct Scripts(HashMap<PathBuf, Arc<Script>>);

impl Scripts {
    /// The script that a program runs: its own file, or the first file among the arguments of an interpreter.
    /// The error: it was truncated.
    pub(super) fn of(
        &mut self,
        program: &Path,
        arguments: &[OsString],
        before: &Scripts,
    ) -> Result<Option<Arc<Script>>, String> {
        let mut files = arguments.iter().map(Path::new).filter(|path| path.is_file());
        let file = if is_script(program) { Some(program) } else { files.next() };
        let Some(file) = file else { return Ok(None) };
        let known = before.0.get(file).or(self.0.get(file)).cloned();
        let script = known.unwrap_or_else(|| Arc::new(Script::new(file)));
        script.check()?;
        self.0.insert(file.into(), script.clone());
        Ok(Some(script))
    }
}

/// Whether a file names its interpreter.
fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    std::fs::File::open(file).is_ok_and(|mut file| file.read_exact(&mut start).is_ok())
        && start == *b"#!"
}

/// A script, and its text when it was last found to be whole.
#[derive(Debug)]
pub(super) struct Script {
    path: PathBuf,
    accepted: Mutex<Option<Version>>,
}

#[derive(Debug)]
struct Version {
    stamp: Stamp,
    text: Vec<u8>,
}

/// Changes whenever a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &std::fs::Metadata) -> Stamp {
        let (file, changed) = ((found.dev(), found.ino()), (found.ctime(), found.ctime_nsec()));
        Stamp { file, size: found.size(), changed }
    }
}

impl Script {
    fn new(path: &Path) -> Script {
        Script { path: path.into(), accepted: Mutex::new(None) }
    }

    /// Checks that the script was not truncated since it was last run. The error is for the operator.
    pub(super) fn check(&self) -> Result<(), String> {
        let fails = |error: io::Error| format!("{} cannot be read: {error}", self.path.display());
        let mut accepted = self.accepted.locked();
        let found = self.path.metadata().map_err(fails)?;
        let stamp = Stamp::of(&found);
        if accepted.as_ref().is_some_and(|version| version.stamp == stamp) {
            return Ok(());
        }
        if stamp.size > MAX_SCRIPT_BYTES || !found.is_file() {
            *accepted = None;
            return Ok(());
        }
        let text = std::fs::read(&self.path).map_err(fails)?;
        if accepted.as_ref().is_some_and(|version| is_beginning(&text, &version.text)) {
            return Err(format!(
                "{} may have been truncated: it is only the beginning of the script that ran before; to run it \
                 anyway, use `toolward reload --accept`",
                self.path.display()
            ));
        }
        *accepted = Some(Version { stamp, text });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "#!/bin/sh\ngrep -q forbidden && exit 1\nexit 0\n";

    #[test]
    fn a_script_that_was_cut_short_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hook");
        std::fs::write(&file, WHOLE).unwrap();
        let script = Script::new(&file);
        for end in 0..WHOLE.len() {
            std::fs::write(&file, WHOLE).unwrap();
            script.check().unwrap();
            std::fs::write(&file, &WHOLE[..end]).unwrap();
            let why = script.check().unwrap_err();
            assert!(why.contains("truncated") && why.contains("reload --accept"), "{why}");
            assert!(script.check().is_err(), "it stays refused");
        }
        // Another script is run, and is the one that must not be cut.
        std::fs::write(&file, "#!/bin/sh\nexit 1\n").unwrap();
        script.check().unwrap();
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(script.check().is_err());
        std::fs::remove_file(&file).unwrap();
        assert!(script.check().is_err());
    }

    #[test]
    fn the_script_is_the_program_or_the_first_file_that_an_interpreter_gets() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other.py"));
        std::fs::write(&own, WHOLE).unwrap();
        std::fs::write(&other, "exit()\n").unwrap();
        let shell = Path::new("/bin/sh");
        let path_of = |program: &Path, arguments: &[&Path]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let script = Scripts::default().of(program, &arguments, &Scripts::default());
            script.unwrap().map(|script| script.path.clone())
        };
        assert_eq!(path_of(&own, &[&other]), Some(own.clone()));
        assert_eq!(path_of(shell, &[Path::new("-x"), &other, &own]), Some(other.clone()));
        assert_eq!(path_of(shell, &[Path::new("-c"), Path::new("exit 1")]), None);
    }

    #[test]
    fn a_reload_does_not_forget_the_whole_script() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hook");
        std::fs::write(&file, WHOLE).unwrap();
        let mut before = Scripts::default();
        before.of(&file, &[], &Scripts::default()).unwrap();
        std::fs::write(&file, &WHOLE[..20]).unwrap();
        assert!(Scripts::default().of(&file, &[], &before).is_err());
        // Accepted: nothing is handed on.
        assert!(Scripts::default().of(&file, &[], &Scripts::default()).is_ok());
    }
}
