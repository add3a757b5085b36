//! Processes of hooks: started without a shell, in their own process group, with a declared environment.
//! Processes that a hook started are killed with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::Environment;
use super::interpreter::missing_interpreter;
use super::script::{Script, Scripts};
pub use crate::groups::end_all;
use crate::groups::{self, Group};
use crate::program;
use crate::upstream::transport::environment::INHERITED;

/// How to start a hook.
pub(in crate::guard) struct Program {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Environment,
    /// It inherits all environment variables of the gateway.
    whole_environment: bool,
    script: Option<Arc<Script>>,
}

impl Program {
    pub(in crate::guard) fn new(
        program: OsString,
        arguments: Vec<OsString>,
        environment: Environment,
    ) -> Program {
        Program { program, arguments, environment, whole_environment: false, script: None }
    }

    /// Resolves the program's file: a bare name is searched in `PATH` once. The error is why it cannot be
    /// started.
    pub(in crate::guard) fn resolved(self) -> Result<Program, String> {
        let declared = self.environment.declared.iter().rev().find(|(name, _)| name == "PATH");
        let search = declared.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("PATH"));
        let file = runnable(&self.program, search.as_deref())?;
        Ok(Program { program: file.into(), ..self })
    }

    /// Refuses to start if the script was truncated, now and later.
    pub(in crate::guard) fn with_whole_script(
        self,
        scripts: &mut Scripts,
        before: &Scripts,
    ) -> Result<Program, String> {
        let script = scripts.of(Path::new(&self.program), &self.arguments, before)?;
        Ok(Program { script, ..self })
    }

    /// Passes the gateway's whole environment.
    pub(in crate::guard) fn with_whole_environment(self) -> Program {
        Program { whole_environment: true, ..self }
    }

    pub(in crate::guard) fn start(&self) -> io::Result<Running> {
        if let Some(script) = &self.script {
            script.check().map_err(io::Error::other)?;
        }
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if !self.whole_environment {
            let passes = |name: &OsString| {
                let name = name.to_string_lossy();
                self.environment.passed.iter().any(|glob| glob.matches(&name))
            };
            command
                .env_clear()
                .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
                .envs(std::env::vars_os().filter(|(name, _)| passes(name)));
        } else {
            // Removes variables that the shell would run as code or that change its behavior.
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

    /// The message for a failed start.
    pub(in crate::guard) fn cannot_start(&self, error: &io::Error) -> String {
        format!("`{}` cannot be started: {error}", self.program.to_string_lossy())
    }
}

/// The file of a hook's program; the error is why it cannot be run.
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
        Ok(_) => match missing_interpreter(&file, search) {
            Some(why) => Err(why),
            None => Ok(file),
        },
    }
}

/// Whether a shell interprets this variable itself.
fn is_of_shell(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let own = ["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS"];
    name.starts_with(b"BASH_FUNC_") || own.iter().any(|own| own.as_bytes() == name)
}

/// A hook's process and its streams.
pub(in crate::guard) struct Running {
    pub(in crate::guard) group: Group,
    pub(in crate::guard) child: Child,
    pub(in crate::guard) stdin: ChildStdin,
    pub(in crate::guard) stdout: ChildStdout,
    pub(in crate::guard) stderr: ChildStderr,
}
