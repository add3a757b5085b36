//! A real PostgreSQL server on loopback, started by a test and ended with it.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use toolward_testkit::wait::eventually;

pub const PASSWORD: &str = "password-of-the-database";

/// One `postgres`, with the user `toolward` and a database of that name.
pub struct Postgres {
    child: Option<Child>,
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Postgres {
    pub fn start() -> Postgres {
        let folder = tempfile::tempdir().unwrap();
        // The server refuses to run as root, and its own user must reach the directory.
        open_to_all(folder.path());
        let password = folder.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        let data = folder.path().join("data");
        let mut init = unprivileged(&program("initdb"));
        init.args(["-U", "toolward", "-A", "scram-sha-256", "--no-sync", "-E", "UTF8", "-D"])
            .arg(&data)
            .arg("--pwfile")
            .arg(&password);
        let made = init.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = Postgres { child: None, port: free_port(), folder };
        server.run();
        server.query("create database toolward");
        server
    }

    /// Starts the server, or restarts it.
    pub fn run(&mut self) {
        let mut command = unprivileged(&program("postgres"));
        command
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .args([
                "-p",
                &self.port.to_string(),
                "-h",
                "127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ])
            .args(["-c", "fsync=off", "-c", "max_connections=50"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let port = self.port;
        eventually("the database listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        eventually("the database answers", || self.try_query("postgres", "select 1").is_some());
    }

    /// Ends the server at once, with all connections.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal(child.id(), "-QUIT");
            let _ = child.wait();
        }
    }

    /// Sends a signal to the server and to the processes of its connections.
    pub fn signal_all(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            signal(child.parse().unwrap(), name);
        }
        signal(pid, name);
    }

    pub fn url(&self) -> String {
        format!("postgres://toolward:{PASSWORD}@127.0.0.1:{}/toolward", self.port)
    }

    /// Executes a statement in the database `postgres` or, if it exists, `toolward`.
    pub fn query(&self, sql: &str) -> Vec<String> {
        let database = if sql.starts_with("create database") { "postgres" } else { "toolward" };
        self.try_query(database, sql).unwrap_or_else(|| panic!("{sql}"))
    }

    /// The rows, each with columns separated by `|`.
    pub fn try_query(&self, database: &str, sql: &str) -> Option<Vec<String>> {
        let output = Command::new(program("psql"))
            .args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", "toolward", "-d", database])
            .args(["-p", &self.port.to_string(), "-c", sql])
            .env("PGPASSWORD", PASSWORD)
            .env("PGCONNECT_TIMEOUT", "5")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.lines().map(Into::into).collect())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal_all("-CONT");
        }
        self.stop();
    }
}

fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Debian keeps the programs of each version in a directory of their own.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    found.filter(|path| path.exists()).max().unwrap_or_else(|| name.into())
}

/// A command that runs as the database's own user if the test runs as root.
fn unprivileged(program: &Path) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    let mut command = Command::new(if is_root { Path::new("setpriv") } else { program });
    if is_root {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    }
    command.current_dir("/");
    command
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// A port below those that the system gives to connections and to other tests.
fn free_port() -> u16 {
    use std::hash::{BuildHasher, RandomState};
    eventually("a port is free", || {
        let random = RandomState::new().hash_one(0);
        let port = 10_000 + (random % 20_000) as u16;
        std::net::TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    })
}
