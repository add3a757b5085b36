//! A program that listens on a loopback port until it is dropped.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Result;
use crate::process::Process;

pub(super) struct Listening {
    pub(super) url: String,
    _process: Process,
}

impl Listening {
    /// Starts the program and waits until it listens.
    pub(super) fn start(
        name: &'static str,
        command: &mut Command,
        folder: &Path,
        (port, path): (u16, &str),
    ) -> Result<Listening> {
        let mut process = Process::start(name, command, folder)?;
        process.wait_for(Duration::from_millis(10), || {
            TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())
        })?;
        Ok(Listening { url: format!("http://127.0.0.1:{port}{path}"), _process: process })
    }
}
