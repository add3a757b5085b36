//! Checks that the interpreter of a script exists.
//!
//! The kernel reports a missing interpreter as "no such file", which reads as if the script were missing.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::program;

/// The kernel reads no more of the first line.
const MAX_LINE: u64 = 256;

/// Why a script cannot be run, if its interpreter does not exist. `search` is the `PATH` of the hook.
pub(super) fn missing_interpreter(file: &Path, search: Option<&OsStr>) -> Option<String> {
    let mut line = Vec::new();
    std::fs::File::open(file).ok()?.take(MAX_LINE).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let interpreter = OsStr::from_bytes(words.next()?);
    let missing = |interpreter: &OsStr| {
        let help = match interpreter.as_bytes().ends_with(b"\r") {
            true => ": its first line ends with a carriage return",
            false => "",
        };
        let (file, interpreter) = (file.display(), interpreter.to_string_lossy());
        let interpreter = interpreter.escape_debug();
        Some(format!("{file} cannot be run: its interpreter `{interpreter}` does not exist{help}"))
    };
    if !program::is_executable(Path::new(interpreter)) {
        return missing(interpreter);
    }
    if Path::new(interpreter).file_name() != Some(OsStr::new("env")) {
        return None;
    }
    // Options and assignments come before the program that `env` runs.
    let runs = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    let runs = OsStr::from_bytes(runs);
    let found = program::find(runs, search).is_some_and(|file| program::is_executable(&file));
    if found { None } else { missing(runs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interpreter_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hook");
        let search = Some(OsStr::new("/bin:/usr/bin"));
        for fine in [
            "#!/bin/sh\n",
            "#! /bin/sh -e\n",
            "#!/usr/bin/env sh\n",
            "#!/usr/bin/env -S sh -e",
            "x",
            "",
        ] {
            std::fs::write(&file, fine).unwrap();
            assert_eq!(missing_interpreter(&file, search), None, "{fine:?}");
        }
        for (script, named) in [
            ("#!/no/such/shell\n", "`/no/such/shell`"),
            ("#!/usr/bin/env no-such-python -u\n", "`no-such-python`"),
            ("#!/usr/bin/env -S A=1 no-such-python\n", "`no-such-python`"),
            ("#!/bin/sh\r\n", "`/bin/sh\\r` does not exist: its first line ends with"),
        ] {
            std::fs::write(&file, script).unwrap();
            let why = missing_interpreter(&file, search).unwrap();
            assert!(why.contains(named), "{script:?}: {why}");
        }
    }
}
