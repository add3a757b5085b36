//! Processes of hooks: without a shell, in a group of their own, with an environment that was
//! declared. What a hook started ends with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::Environment;
use crate::upstream::launch::INHERITED;

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
        let mut child = command.spawn()?;
        let group = Group::new(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
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

/// A process and everything it started, which ends with this value.
pub(super) struct Group(Option<Pid>);

/// Groups that have not ended yet.
static LIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Pid>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the processes of all hooks, for a program that is about to leave without further ado.
pub fn end_all() {
    for group in live().drain(..) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

impl Group {
    fn new(leader: Option<Pid>) -> Group {
        live().extend(leader);
        Group(leader)
    }

    pub(super) fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            let _ = kill_process_group(group, Signal::KILL);
            live().retain(|other| *other != group);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
