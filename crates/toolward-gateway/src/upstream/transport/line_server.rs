//! The server behind a line transport: a child process, or a task of this process.
//!
//! Tests use the latter: framing, ids, negotiation, budgets and timeouts run over an in-memory
//! stream exactly as they run over the pipes of a process, and time can be paused.

use std::io;
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio::process::Child;

use super::stdio::Launch;
use crate::upstream::Unavailable;

/// How a server that reads and writes one message per line is started.
#[derive(Clone)]
pub(in crate::upstream) enum LineServer {
    Process(Launch),
    /// The server's name, and how to connect to it.
    InMemory(String, InMemory),
}

/// A started server.
pub(in crate::upstream) enum Started {
    Process(Child),
    InMemory(DuplexStream),
}

impl LineServer {
    pub(in crate::upstream) fn name(&self) -> &str {
        match self {
            LineServer::Process(launch) => &launch.name,
            LineServer::InMemory(name, _) => name,
        }
    }

    /// Names the variables that the server does not get, for the log if it does not respond.
    pub(in crate::upstream) fn withheld(&self) -> Option<String> {
        match self {
            LineServer::Process(launch) => launch.withheld(),
            LineServer::InMemory(..) => None,
        }
    }

    pub(in crate::upstream) fn start(&self) -> Result<Started, Unavailable> {
        match self {
            LineServer::Process(launch) => Ok(Started::Process(launch.spawn()?)),
            LineServer::InMemory(_, server) => match (server.0)() {
                Ok(stream) => Ok(Started::InMemory(stream)),
                Err(error) => Err(Unavailable::Down(format!("it cannot be started: {error}"))),
            },
        }
    }
}

type Connect = dyn Fn() -> io::Result<DuplexStream> + Send + Sync;

/// A server in this process, for tests. Every connection has its own stream, as every child process
/// has its own pipes.
#[derive(Clone)]
pub struct InMemory(Arc<Connect>);

impl InMemory {
    /// `connect` starts the server and returns the stream on which it reads and writes.
    #[cfg(feature = "in-memory")]
    pub fn new(connect: impl Fn() -> io::Result<DuplexStream> + Send + Sync + 'static) -> InMemory {
        InMemory(Arc::new(connect))
    }
}

impl PartialEq for InMemory {
    fn eq(&self, other: &InMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for InMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InMemory")
    }
}
