//! A gateway from a package, at its default address.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use toolward_testkit::load::{self, Kind, Target};

use crate::dist::Result;
use crate::process::Process;

use super::installed::expect;

const ADDRESS: &str = "127.0.0.1:7410";

pub(super) struct Gateway(Process);

impl Gateway {
    /// Starts it, and waits until `/readyz` reports that it can forward calls.
    pub(super) fn start(command: &mut Command, folder: &Path) -> Result<Gateway> {
        let mut process = Process::start("the gateway", command, folder)?;
        process.wait_for(Duration::from_millis(20), || {
            let answer = ready().map_err(|error| error.to_string())?;
            expect(answer.starts_with("HTTP/1.1 200 "), || answer)
        })?;
        Ok(Gateway(process))
    }

    pub(super) fn list(&self) -> Result<String> {
        self.ask(Kind::List, "")
    }

    /// Calls a tool of the test kit's server.
    pub(super) fn call(&self, tool: &str) -> Result<String> {
        self.ask(Kind::Call, tool)
    }

    fn ask(&self, kind: Kind, tool: &str) -> Result<String> {
        let target = Target::parse(&format!("http://{ADDRESS}/mcp"));
        let answer =
            target.and_then(|target| load::once(&Target { tool: tool.into(), ..target }, kind));
        let answer = answer.map_err(|error| format!("{kind:?} {tool}: {error}"))?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        expect(answer.contains("\"result\""), || format!("{kind:?} {tool}: {answer}"))?;
        Ok(answer)
    }

    /// Shuts it down gracefully; returns its process id.
    pub(super) fn end(self) -> Result<u32> {
        let id = self.0.id();
        let status = self.0.end_with(Signal::TERM)?;
        expect(status.success(), || format!("the gateway ended with {status}"))?;
        Ok(id)
    }
}

fn ready() -> std::io::Result<String> {
    let mut stream = TcpStream::connect(ADDRESS)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
