//! How a server is started: as a child process in a process group of its own, with a reduced
//! environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{Log, Sparing, Unavailable};

/// Variables that every child gets, where they are set.
pub(crate) const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// A line of a child's standard error is logged up to this length.
const LONGEST_LINE: u64 = 8 << 10;

/// How to start a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    pub name: String,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Declared variables, beside the few that every child gets.
    pub environment: Vec<(OsString, OsString)>,
    pub folder: Option<PathBuf>,
}

impl Launch {
    /// What cannot be started.
    pub(super) fn nothing(name: &str) -> Launch {
        let (name, program) = (name.into(), OsString::new());
        let (arguments, environment) = (Vec::new(), Vec::new());
        Launch { name, program, arguments, environment, folder: None }
    }

    /// Starts it; what it says on its standard error goes to the log.
    pub(super) fn spawn(&self, log: &Log) -> Result<Child, Unavailable> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let program = self.program.to_string_lossy();
        let mut child = command.spawn().map_err(|error| {
            Unavailable::Down(format!("`{program}` cannot be started: {error}"))
        })?;
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log_lines(stderr, log.clone(), self.name.clone()));
        }
        Ok(child)
    }
}

/// What a child says on its standard error goes to the log, line by line.
pub(crate) async fn log_lines(stderr: impl tokio::io::AsyncRead + Unpin, log: Log, name: String) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut sparing = Sparing::default();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        if !sparing.may_say() {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        log(&format!("{name}: {}", text.trim_end_matches(['\n', '\r'])));
    }
}
