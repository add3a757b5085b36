//! Child processes: started in their own process group, with a reduced environment.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::environment::Inherit;
use crate::log::{LogRateLimit, Source};
use crate::upstream::Unavailable;
use crate::{groups, program};

/// Longer lines of a child's standard error are split in the log.
const MAX_LOG_LINE_BYTES: u64 = 8 << 10;

/// How to start a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    pub name: String,
    /// As configured: a path, or a bare name.
    pub program: OsString,
    /// The program's path, resolved when the configuration was loaded.
    pub file: Option<PathBuf>,
    pub arguments: Vec<OsString>,
    /// Declared variables, in addition to the inherited ones.
    pub environment: Vec<(OsString, OsString)>,
    pub inherit: Inherit,
    pub folder: Option<PathBuf>,
}

impl Launch {
    /// A command that cannot be started.
    pub(in crate::upstream) fn nothing(name: &str) -> Launch {
        let (name, program) = (name.into(), OsString::new());
        let (arguments, environment) = (Vec::new(), Vec::new());
        let inherit = Inherit::default();
        Launch { name, program, file: None, arguments, environment, inherit, folder: None }
    }

    /// Resolves a bare program name in `PATH`: the declared one, or the gateway's.
    pub fn resolved(mut self) -> Launch {
        let declared = self.environment.iter().rev().find(|(name, _)| name == "PATH");
        let search = declared.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("PATH"));
        self.file = program::find(&self.program, search.as_deref());
        self
    }

    /// Names the variables that the server does not get, for the log if it does not respond.
    pub(in crate::upstream) fn withheld(&self) -> Option<String> {
        let all = std::env::vars_os().map(|(name, _)| name);
        self.inherit.withheld(&self.program, &self.environment, all)
    }

    /// Starts the program. Its standard error is logged.
    pub(in crate::upstream) fn spawn(&self) -> Result<Child, Unavailable> {
        let program = self.program.to_string_lossy();
        let Some(file) = &self.file else {
            return Err(Unavailable::Unstartable(format!("`{program}` was not found in PATH")));
        };
        let mut command = Command::new(file);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.inherit.variables(&self.program, std::env::vars_os()))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        groups::prepare();
        let mut child = command.spawn().map_err(|error| {
            let why = format!("`{program}` cannot be started: {error}");
            match is_permanent(&error) {
                true => Unavailable::Unstartable(why),
                false => Unavailable::Down(why),
            }
        })?;
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log_lines(stderr, Source::Server(self.name.clone())));
        }
        Ok(child)
    }
}

/// Whether starting the same program again would fail with the same error. A shortage of memory,
/// processes or file descriptors is temporary.
fn is_permanent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let kinds = [InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied];
    let is_no_program = error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    is_no_program || kinds.contains(&error.kind())
}

/// Logs a child's standard error, line by line.
pub(crate) async fn log_lines(stderr: impl tokio::io::AsyncRead + Unpin, source: Source) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut sparing = LogRateLimit::default();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LOG_LINE_BYTES).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        if !sparing.allow() {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        source.log_stderr(text.trim_end_matches(['\n', '\r']));
    }
}
