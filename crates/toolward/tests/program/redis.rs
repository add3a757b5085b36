//! Real Redis servers on loopback, started by a test and ended with it: one server, a Sentinel group, a Cluster.

#[path = "redis_groups.rs"]
pub mod groups;

use std::hash::{BuildHasher, RandomState};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use toolward_testkit::wait::eventually;

use crate::tls::Certificate;

/// A port below those that the system gives to connections and to other tests, so that no other process takes it
/// before the server listens.
fn free_port() -> u16 {
    eventually("a port is free", || {
        let random = RandomState::new().hash_one(0);
        let port = 10_000 + (random % 20_000) as u16;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    })
}

/// One `redis-server`.
pub struct Server {
    child: Option<Child>,
    pub port: u16,
    pub password: Option<&'static str>,
    /// Listens with TLS only, and uses it for replication and the cluster bus.
    pub tls: Option<Arc<Certificate>>,
    /// Additional arguments.
    pub arguments: Vec<String>,
    pub folder: tempfile::TempDir,
}

impl Server {
    /// A server that does not run yet.
    pub fn absent() -> Server {
        let (child, password, tls, arguments) = (None, None, None, Vec::new());
        let folder = tempfile::tempdir().unwrap();
        Server { child, port: free_port(), password, tls, arguments, folder }
    }

    pub fn start() -> Server {
        Server::start_with(None, &[])
    }

    fn start_with(tls: Option<&Arc<Certificate>>, arguments: &[&str]) -> Server {
        let mut server = Server::absent();
        server.tls = tls.cloned();
        server.arguments = arguments.iter().map(|one| (*one).into()).collect();
        server.run();
        server
    }

    /// Starts the server, or restarts it.
    pub fn run(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1"]).args(self.listening());
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(self.folder.path());
        if let Some(password) = self.password {
            command.args(["--requirepass", password]);
        }
        command.args(&self.arguments);
        self.spawn(command);
    }

    /// The options of the port, with and without TLS.
    fn listening(&self) -> Vec<String> {
        let port = self.port.to_string();
        let Some(tls) = &self.tls else { return vec!["--port".into(), port] };
        let options = [
            ("--port", "0"),
            ("--tls-port", &port),
            ("--tls-auth-clients", "no"),
            ("--tls-cert-file", &tls.path()),
            ("--tls-key-file", &tls.key()),
            ("--tls-ca-cert-file", &tls.path()),
            ("--tls-replication", "yes"),
        ];
        options.iter().flat_map(|(name, value)| [(*name).into(), (*value).into()]).collect()
    }

    fn spawn(&mut self, mut command: Command) {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        let child = child.unwrap_or_else(|_| panic!("redis-server is needed; ./test installs it"));
        self.child = Some(child);
        eventually("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// The server's reply, in the plain format of `redis-cli`.
    pub fn ask(&self, command: &[&str]) -> String {
        let port = self.port.to_string();
        let mut arguments = vec!["-p", &*port];
        if let Some(password) = self.password {
            arguments.extend(["--no-auth-warning", "-a", password]);
        }
        arguments.extend(command);
        redis_cli(self.tls.as_deref(), &arguments)
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.port)
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "rediss" } else { "redis" }
    }

    fn is_running(&self) -> bool {
        self.child.is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal("-CONT");
        }
        self.kill();
    }
}

fn redis_cli(tls: Option<&Certificate>, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    if let Some(tls) = tls {
        command.args(["--tls", "--cacert", &tls.path()]);
    }
    let output = command.args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}
