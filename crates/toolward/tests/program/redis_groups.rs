//! A Sentinel group and a Cluster, with and without TLS.

use std::process::Command;
use std::sync::Arc;

use toolward_testkit::wait::eventually;

use super::{Server, free_port, redis_cli};
use crate::tls::Certificate;

/// The master's name in a [`SentinelGroup`].
const MASTER: &str = "main";

/// A master, a replica and three Sentinels.
pub struct SentinelGroup {
    pub servers: Vec<Server>,
    pub sentinels: Vec<Server>,
}

impl SentinelGroup {
    pub fn start() -> SentinelGroup {
        SentinelGroup::start_with(None)
    }

    /// A group whose connections all use TLS, also those among its members.
    pub fn with_tls(certificate: &Arc<Certificate>) -> SentinelGroup {
        SentinelGroup::start_with(Some(certificate))
    }

    fn start_with(tls: Option<&Arc<Certificate>>) -> SentinelGroup {
        let master = Server::start_with(tls, &[]);
        let of = ["--replicaof", "127.0.0.1", &master.port.to_string()];
        let replica = Server::start_with(tls, &of);
        in_sync(&replica);
        let sentinels: Vec<Server> = (0..3).map(|_| sentinel_of(&master, 2)).collect();
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
        let scheme = self.servers[0].scheme();
        format!("{scheme}-sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// The server that accepts writes.
    pub fn master(&self) -> Option<&Server> {
        let mut running = self.servers.iter().filter(|server| server.is_running());
        running.find(|server| server.ask(&["ROLE"]).starts_with("master"))
    }

    /// Makes the replica the master, and the master its replica. On a busy machine, Sentinel aborts a failover that
    /// takes longer than its timeout, and does not begin again by itself.
    pub fn exchange_roles(&self) {
        let masters = || -> Vec<u16> {
            let is_master = |one: &&Server| one.ask(&["ROLE"]).starts_with("master");
            self.servers.iter().filter(is_master).map(|one| one.port).collect()
        };
        let before = masters();
        eventually("the roles are exchanged", || {
            let now = masters();
            if now == before {
                // An error while a failover is in progress.
                self.sentinels[0].ask(&["SENTINEL", "FAILOVER", MASTER]);
            }
            now.len() == 1 && now != before
        });
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

fn sentinel_of(master: &Server, quorum: usize) -> Server {
    let mut sentinel = Server::absent();
    sentinel.tls = master.tls.clone();
    let text = format!(
        "bind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {} {quorum}\n\
         sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 3000\n",
        master.port
    );
    let file = sentinel.folder.path().join("sentinel.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("redis-server");
    command.arg(&file).arg("--sentinel").args(sentinel.listening());
    sentinel.spawn(command);
    // By default, Sentinels learn about each other and about roles every two and ten seconds.
    let periods = ["info-period", "100", "publish-period", "100", "ask-period", "100"];
    assert_eq!(sentinel.ask(&[&["SENTINEL", "DEBUG"][..], &periods].concat()), "OK");
    sentinel
}

fn in_sync(replica: &Server) {
    eventually("the replica is in sync", || {
        replica.ask(&["INFO", "replication"]).contains("master_link_status:up")
    });
}

/// Three masters of a Cluster.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::start_with(None)
    }

    /// A Cluster whose connections all use TLS, also those among its nodes.
    pub fn with_tls(certificate: &Arc<Certificate>) -> Cluster {
        Cluster::start_with(Some(certificate))
    }

    fn start_with(tls: Option<&Arc<Certificate>>) -> Cluster {
        let cluster = Cluster { nodes: (0..3).map(|_| Cluster::node(tls)).collect() };
        let hosts: Vec<String> =
            cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(&hosts);
        let said = redis_cli(tls.map(|tls| &**tls), &[&create[..], &["--cluster-yes"]].concat());
        assert!(said.contains("All 16384 slots covered"), "{said}");
        cluster.settled();
        cluster
    }

    fn node(tls: Option<&Arc<Certificate>>) -> Server {
        let bus = free_port().to_string();
        let options = [
            ("--cluster-enabled", "yes"),
            ("--cluster-config-file", "nodes.conf"),
            ("--cluster-node-timeout", "1000"),
            ("--cluster-port", &bus),
            ("--tls-cluster", if tls.is_some() { "yes" } else { "no" }),
        ];
        let options: Vec<&str> = options.iter().flat_map(|(name, value)| [*name, *value]).collect();
        Server::start_with(tls, &options)
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
        format!("{}-cluster://{}", self.nodes[0].scheme(), hosts.join(","))
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
        let tls = self.nodes[0].tls.clone();
        let replica = Cluster::node(tls.as_ref());
        let (host, master) = {
            let owner = self.owner(key).unwrap();
            (format!("127.0.0.1:{}", owner.port), owner.ask(&["CLUSTER", "MYID"]))
        };
        let new = format!("127.0.0.1:{}", replica.port);
        let add = ["--cluster", "add-node", &new, &host, "--cluster-slave"];
        redis_cli(tls.as_deref(), &[&add[..], &["--cluster-master-id", &master]].concat());
        in_sync(&replica);
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
