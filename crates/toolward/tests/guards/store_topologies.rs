//! Rate limits that are counted in a Sentinel group or a Cluster, and with a Redis user of their own.

use serde_json::{Value, json};

use super::harness::*;
use super::redis::Server;
use super::redis::groups::{Cluster, SentinelGroup};
use super::support::*;
use super::tls::Certificate;

/// All counters have this tag.
const KEY: &str = "{toolward}";

fn counting(store: &str, rate: &str) -> Setup {
    let limits = json!({"store": store, "timeout": "5s", "calls": rate});
    with_tools(&["t"]).set("limits", limits)
}

fn call(agent: &Agent) -> Value {
    agent.call("s__t", json!({}))
}

/// Makes calls until one passes.
fn passes_again(agent: &Agent, after: &str) {
    eventually(&format!("limited calls work again after {after}"), || passed(&call(agent)));
}

/// Makes calls until the limit is used up; returns how many passed.
fn rest(agent: &Agent) -> usize {
    let mut count = 0;
    eventually("the limit is used up", || {
        let answer = call(agent);
        count += usize::from(passed(&answer));
        !passed(&answer) && limited(&answer)["error"] == "limit_exceeded"
    });
    count
}

#[test]
fn a_user_needs_only_the_commands_of_the_scripts() {
    let store = Server::start();
    let rights =
        "on >s3cr3t resetkeys ~{toolward}:* -@all +eval +evalsha +script|load +time +get +set +del";
    let mut user = vec!["ACL", "SETUSER", "gateway"];
    user.extend(rights.split(' '));
    assert_eq!(store.ask(&user), "OK");
    let url = format!("redis://gateway:${{STORE_PASSWORD}}@127.0.0.1:{}", store.port);
    let gate = counting(&url, "2/day").env("STORE_PASSWORD", "s3cr3t").start();
    let a = gate.agent("a");
    assert_eq!((0..5).filter(|_| passed(&call(&a))).count(), 2);
    // The units of a refused call are returned, by the other script.
    assert_eq!(store.ask(&["ACL", "LOG"]), "", "nothing was denied");
}

#[test]
fn a_sentinel_group_fails_over_and_its_counts_stay() {
    let mut group = SentinelGroup::start();
    let gate = counting(&group.url(), "5/day").start();
    let a = gate.agent("a");
    assert_eq!((0..3).filter(|_| passed(&call(&a))).count(), 3);
    let master = group.master().unwrap().port;
    let replica = group.servers.iter().find(|server| server.port != master).unwrap();
    eventually("the counter is replicated", || replica.ask(&["DBSIZE"]) == "1");
    group.fail_over();
    passes_again(&a, "the replica became the master");
    assert_eq!(rest(&a), 1, "three before and two after");
}

#[test]
fn a_sentinel_that_is_down_or_silent_delays_nothing() {
    let mut group = SentinelGroup::start();
    group.sentinels[0].signal("-STOP");
    group.sentinels[1].kill();
    let gate = counting(&group.url(), "2/day").start();
    let a = gate.agent("a");
    assert_eq!((0..5).filter(|_| passed(&call(&a))).count(), 2);
}

#[test]
fn an_old_master_that_became_a_replica_is_left() {
    let group = SentinelGroup::start();
    let gate = counting(&group.url(), "1000/s").start();
    let a = gate.agent("a");
    assert!(passed(&call(&a)));
    group.exchange_roles();
    passes_again(&a, "the roles were exchanged");
}

#[test]
fn a_cluster_counts_on_one_server_and_follows_a_slot_that_moves() {
    let cluster = Cluster::start();
    let gates = [(), ()].map(|()| counting(&cluster.url(), "20/day").start());
    let agents = [gates[0].agent("a"), gates[1].agent("a")];
    let count = |at: usize| (0..5).filter(|_| passed(&call(&agents[at]))).count();
    assert_eq!((count(0), count(1)), (5, 5));
    let before = cluster.owner(KEY).unwrap().port;
    cluster.move_slot(KEY);
    let after = cluster.owner(KEY).unwrap();
    assert!(after.port != before && after.ask(&["DBSIZE"]) == "1");
    // Each gateway follows the redirect, and no call is refused because of it.
    assert_eq!((count(0), count(1)), (5, 5));
    assert!(limited(&call(&agents[0]))["error"] == "limit_exceeded");
}

#[test]
fn a_cluster_fails_over_and_its_counts_stay() {
    let mut cluster = Cluster::start();
    cluster.add_replica(KEY);
    let gate = counting(&cluster.url(), "5/day").start();
    let a = gate.agent("a");
    assert_eq!((0..3).filter(|_| passed(&call(&a))).count(), 3);
    let replica = cluster.nodes.last().unwrap();
    eventually("the counter is replicated", || replica.ask(&["DBSIZE"]) == "1");
    cluster.fail_over(KEY);
    passes_again(&a, "the replica became a master");
    assert_eq!(rest(&a), 1, "three before and two after");
}

#[test]
fn a_sentinel_group_and_a_cluster_are_used_over_tls() {
    let certificate = Certificate::new();
    let group = SentinelGroup::with_tls(&certificate);
    let cluster = Cluster::with_tls(&certificate);
    for url in [group.url(), cluster.url()] {
        let gate = counting(&url, "2/day").env("SSL_CERT_FILE", &certificate.path()).start();
        let a = gate.agent("a");
        passes_again(&a, "its start");
        assert_eq!(rest(&a), 1, "{url}");
        // A certificate that is not trusted is not used.
        let gate = counting(&url, "2/day").start();
        let data = limited(&call(&gate.agent("a")));
        assert_eq!(data["error"], "limits_unavailable", "{url}: {data}");
    }
    let counter = cluster.owner(KEY).unwrap();
    assert_eq!(counter.ask(&["DBSIZE"]), "1");
    assert_eq!(group.master().unwrap().ask(&["DBSIZE"]), "1");
}
