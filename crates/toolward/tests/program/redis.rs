//! Real Redis servers on loopback, started by a test and ended with it: one server, a Sentinel group, a Cluster.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use toolward_testkit::wait::eventually;

/// The master's name in a [`SentinelGroup`].
pub const MASTER: &str = "main";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One `redis-server`.
pub struct Server {
    child: Option<Child>,
    pub port: u16,
    pub password: Option<&'static str>,
    /// With `cert.pem` and `key.pem` in the folder.
    pub tls: bool,
    /// Further arguments.
    pub arguments: Vec<String>,
    pub folder: tempfile::TempDir,
}

impl Server {
    /// A server that does not run yet.
    pub fn absent() -> Server {
        let (child, password, tls, arguments) = (None, None, false, Vec::new());
        let folder = tempfile::tempdir().unwrap();
        Server { child, port: free_port(), password, tls, arguments, folder }
    }

    pub fn start() -> Server {
        Server::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Server {
        let mut server = Server::absent();
        server.arguments = arguments.iter().map(|one| (*one).into()).collect();
        server.run();
        server
    }

    /// A server that other servers replicate or monitor.
    fn replica_of(master: &Server) -> Server {
        Server::start_with(&["--replicaof", "127.0.0.1", &master.port.to_string()])
    }

    fn sentinel_of(master: &Server, quorum: usize) -> Server {
        let mut sentinel = Server::absent();
        let text = format!(
            "port {}\nbind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {} {quorum}\n\
             sentinel down-after-milliseconds {MASTER} 500\nsentinel failover-timeout {MASTER} 3000\n",
            sentinel.port, master.port
        );
        let file = sentinel.folder.path().join("sentinel.conf");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel");
        sentinel.spawn(command);
        sentinel
    }

    /// Starts the server, again if need be.
    pub fn run(&mut self) {
        let mut command = Command::new("redis-server");
        let (port, off) = (self.port.to_string(), "0".to_string());
        let (plain, secure) = if self.tls { (&off, &port) } else { (&port, &off) };
        command.args(["--bind", "127.0.0.1", "--port", plain]);
        if self.tls {
            let file = |name: &str| self.folder.path().join(name);
            command.args(["--tls-port", secure, "--tls-auth-clients", "no"]);
            command.arg("--tls-cert-file").arg(file("cert.pem"));
            command.arg("--tls-key-file").arg(file("key.pem"));
        }
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(self.folder.path());
        if let Some(password) = self.password {
            command.args(["--requirepass", password]);
        }
        command.args(&self.arguments);
        self.spawn(command);
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

    /// What the server answers, in the plain form of `redis-cli`.
    pub fn ask(&self, command: &[&str]) -> String {
        redis_cli(&[&["-p", &self.port.to_string()], command].concat())
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
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

fn redis_cli(arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A master, a replica and three Sentinels.
pub struct SentinelGroup {
    pub servers: Vec<Server>,
    pub sentinels: Vec<Server>,
}

impl SentinelGroup {
    pub fn start() -> SentinelGroup {
        let master = Server::start();
        let replica = Server::replica_of(&master);
        eventually("the replica is in sync", || {
            replica.ask(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinels: Vec<Server> = (0..3).map(|_| Server::sentinel_of(&master, 2)).collect();
        let group = SentinelGroup { servers: vec![master, replica], sentinels };
        for sentinel in &group.sentinels {
            eventually("the Sentinels know each other and the replica", || {
                let state = sentinel.ask(&["SENTINEL", "MASTER", MASTER]);
                let field = |name: &str, value: &str| state.contains(&format!("{name}\n{value}\n"));
                field("num-slaves", "1") && field("num-other-sentinels", "2")
            });
        }
        group
    }

    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis-sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// The server that accepts writes.
    pub fn master(&self) -> Option<&Server> {
        let mut running = self.servers.iter().filter(|server| server.is_running());
        running.find(|server| server.ask(&["ROLE"]).starts_with("master"))
    }

    /// Ends the master and waits until the replica has taken its place.
    pub fn fail_over(&mut self) {
        let port = self.master().unwrap().port;
        for server in self.servers.iter_mut().filter(|server| server.port == port) {
            server.kill();
        }
        eventually("the replica becomes the master", || self.master().is_some());
    }
}

/// Three masters of a Cluster.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Cluster {
        let cluster = Cluster { nodes: (0..3).map(|_| Cluster::node()).collect() };
        let hosts: Vec<String> =
            cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(&hosts);
        let said = redis_cli(&[&create[..], &["--cluster-yes"]].concat());
        assert!(said.contains("All 16384 slots covered"), "{said}");
        cluster.settled();
        cluster
    }

    fn node() -> Server {
        let bus = free_port().to_string();
        Server::start_with(&[
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            "1000",
            "--cluster-port",
            &bus,
        ])
    }

    fn settled(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            eventually("the cluster is complete", || {
                node.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
            });
        }
    }

    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The master that has a key.
    pub fn owner(&self, key: &str) -> Option<&Server> {
        let slot = self.slot(key);
        let mut running = self.nodes.iter().filter(|node| node.is_running());
        running.find(|node| {
            let count = node.ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot]);
            let own = node.ask(&["CLUSTER", "NODES"]);
            let own = own.lines().find(|line| line.contains("myself")).unwrap_or_default();
            count.parse::<u32>().is_ok() && own.contains("master") && has_slot(own, &slot)
        })
    }

    fn slot(&self, key: &str) -> String {
        let mut running = self.nodes.iter().filter(|node| node.is_running());
        running.next().unwrap().ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// Adds a replica of the master that has a key.
    pub fn add_replica(&mut self, key: &str) {
        let replica = Cluster::node();
        let (host, master) = {
            let owner = self.owner(key).unwrap();
            (format!("127.0.0.1:{}", owner.port), owner.ask(&["CLUSTER", "MYID"]))
        };
        let new = format!("127.0.0.1:{}", replica.port);
        let add = ["--cluster", "add-node", &new, &host, "--cluster-slave"];
        redis_cli(&[&add[..], &["--cluster-master-id", &master]].concat());
        eventually("the replica is in sync", || {
            replica.ask(&["INFO", "replication"]).contains("master_link_status:up")
        });
        self.nodes.push(replica);
        self.settled();
    }

    /// Ends the master that has a key and waits until its replica has taken its place.
    pub fn fail_over(&mut self, key: &str) {
        let port = self.owner(key).unwrap().port;
        for node in self.nodes.iter_mut().filter(|node| node.port == port) {
            node.kill();
        }
        eventually("the replica becomes a master", || self.owner(key).is_some());
        self.settled();
    }

    /// Moves the slot of a key, with all its keys, to another master.
    pub fn move_slot(&self, key: &str) {
        let slot = self.slot(key);
        let from = self.owner(key).unwrap();
        let to = self.nodes.iter().find(|node| node.port != from.port).unwrap();
        let (source, target) = (from.ask(&["CLUSTER", "MYID"]), to.ask(&["CLUSTER", "MYID"]));
        let port = to.port.to_string();
        assert_eq!(to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]), "OK");
        assert_eq!(from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]), "OK");
        eventually("all keys have moved", || {
            let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            for key in keys.lines().filter(|key| !key.is_empty()) {
                from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            }
            keys.is_empty()
        });
        for node in [to, from] {
            assert_eq!(node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]), "OK");
        }
    }
}

/// Whether a line of `CLUSTER NODES` has a slot.
fn has_slot(line: &str, slot: &str) -> bool {
    let slot: u32 = slot.parse().unwrap();
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = (first.parse::<u32>(), last.parse::<u32>());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}
