//! A real PostgreSQL on loopback, started by a test and ended with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot start its database fails")]

use std::hash::{BuildHasher, RandomState};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::wait::eventually;

/// The user that Debian's package creates: the server does not run as root.
const USER: &str = "postgres";

/// A database server with a directory of its own. Everyone on loopback may log in.
pub struct Postgres {
    child: Option<Child>,
    pub port: u16,
    folder: PathBuf,
}

impl Postgres {
    pub fn start() -> Postgres {
        let folder = std::env::temp_dir().join(format!("toolward-postgres-{:x}", random()));
        std::fs::create_dir(&folder).unwrap();
        if is_root() {
            let status = Command::new("chown").arg(USER).arg(&folder).status().unwrap();
            assert!(status.success(), "the package `postgresql` is not installed");
        }
        let mut command = as_user(&program("initdb"));
        command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        command.args(["--locale=C", "-D"]).arg(folder.join("data"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut postgres = Postgres { child: None, port: free_port(), folder };
        postgres.run();
        postgres
    }

    /// The URL of a database; `postgres` exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates a database, and returns its URL.
    pub fn create(&self, database: &str) -> String {
        self.query("postgres", &format!("create database {database}"));
        self.url(database)
    }

    /// The output of a statement, one line for each row.
    pub fn query(&self, database: &str, statement: &str) -> String {
        let output = Command::new(program("psql"))
            .args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement])
            .arg(self.url(database))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Starts the server, or restarts it.
    pub fn run(&mut self) {
        self.stop();
        let mut command = as_user(&program("postgres"));
        command.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        command.args(["-p", &self.port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "max_connections=100", "shared_buffers=32MB"]
        {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.folder.with_extension("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        eventually("PostgreSQL accepts connections", || {
            let mut ready = Command::new(program("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            ready.status().unwrap().success().then_some(())
        });
    }

    /// Ends the server and all its connections.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        eventually("PostgreSQL ends", || child.try_wait().unwrap());
        assert!(TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Its processes end with it.
            let _ = Command::new("kill").args(["-QUIT", &child.id().to_string()]).status();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.folder.with_extension("log"));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program of the package, which Debian does not put into the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions
        .map(|entry| entry.path().join("bin").join(name))
        .filter(|one| one.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

fn as_user(program: &std::path::Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // Unlike `runuser`, it becomes the program, so that signals reach it.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(program);
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// A port below those that the system gives to connections.
fn free_port() -> u16 {
    eventually("a port is free", || {
        let port = 10_000 + (random() % 20_000) as u16;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    })
}
