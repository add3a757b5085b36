//! Processes of hooks: without a shell, in a group of their own, with an environment that was
//! declared. What a hook started ends with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::Environment;
pub use crate::groups::end_all;
use crate::groups::{self, Group};
use crate::program;
use crate::upstream::transport::environment::INHERITED;

/// How to start a hook.
pub(super) struct Program {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Environment,
    /// It sees all variables of the gateway.
    everything: bool,
}

impl Program {
    pub(super) fn new(
        program: OsString,
        arguments: Vec<OsString>,
        environment: Environment,
    ) -> Program {
        Program { program, arguments, environment, everything: false }
    }

    /// The same, with its file found: a bare name is looked for in `PATH` once. The error says why it
    /// cannot be started.
    pub(super) fn resolved(self) -> Result<Program, String> {
        let declared = self.environment.declared.iter().rev().find(|(name, _)| name == "PATH");
        let search = declared.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("PATH"));
        let file = runnable(&self.program, search.as_deref())?;
        Ok(Program { program: file.into(), ..self })
    }

    /// The same, with the gateway's whole environment.
    pub(super) fn with_everything(self) -> Program {
        Program { everything: true, ..self }
    }

    pub(super) fn start(&self) -> io::Result<Running> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if !self.everything {
            let passes = |name: &OsString| {
                let name = name.to_string_lossy();
                self.environment.passed.iter().any(|glob| glob.matches(&name))
            };
            command
                .env_clear()
                .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
                .envs(std::env::vars_os().filter(|(name, _)| passes(name)));
        } else {
            // Some are not for the policy: they would be code for the shell, or change what it does.
            for name in std::env::vars_os().map(|(name, _)| name).filter(|name| is_of_shell(name)) {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.declared.iter().map(|(name, value)| (name, value)));
        groups::prepare();
        let mut child = command.spawn()?;
        let group = Group::led_by(child.id());
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, child.stderr.take()) else {
            return Err(io::Error::other("it has no standard streams"));
        };
        Ok(Running { group, child, stdin, stdout, stderr })
    }

    /// Why it could not be started.
    pub(super) fn cannot_start(&self, error: &io::Error) -> String {
        format!("`{}` cannot be started: {error}", self.program.to_string_lossy())
    }
}

/// The file of a hook's program, or why it cannot be run.
pub fn runnable(program: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, String> {
    let shown = program.to_string_lossy();
    let Some(file) = program::find(program, search) else {
        return Err(format!("`{shown}` was not found in PATH"));
    };
    match file.metadata() {
        Err(error) => Err(format!("{} cannot be run: {error}", file.display())),
        Ok(found) if !found.is_file() => Err(format!("{} is not a file", file.display())),
        Ok(_) if !program::is_executable(&file) => {
            Err(format!("{} is not executable: `chmod +x` it", file.display()))
        }
        Ok(_) => Ok(file),
    }
}

/// Variables that a shell reads for itself.
fn is_of_shell(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let own = ["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS"];
    name.starts_with(b"BASH_FUNC_") || own.iter().any(|own| own.as_bytes() == name)
}

/// A hook's process and its streams.
pub(super) struct Running {
    pub(super) group: Group,
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}
