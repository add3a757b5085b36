//! Costs that must not grow with the number of agents, rules or simultaneous clients.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::harness::*;

/// The longest queue that the kernel allows.
fn most_waiting() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    text.trim().parse().unwrap_or(128)
}

#[test]
fn many_clients_that_connect_at_once_all_find_a_place_in_the_queue() {
    let gate = setup().web("s", "modern", names(&["t"])).agents(everyone()).start();
    let address = SocketAddr::from(([127, 0, 0, 1], gate.port));
    let clients = most_waiting().min(1000);
    // Nothing is accepted meanwhile: connections beyond the queue are not established.
    gate.signal("-STOP");
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(5));
    let connected: Result<Vec<TcpStream>, _> = (0..clients).map(connect).collect();
    gate.signal("-CONT");
    let connected = connected.unwrap_or_else(|error| panic!("not all of {clients}: {error}"));
    assert_eq!(connected.len(), clients);
    drop(connected);
    assert_eq!(text(&gate.agent("a").call("s__t", json!({}))), "did t");
}

#[test]
fn each_of_many_agents_is_known_by_its_token() {
    let mut agents = everyone();
    for number in 0..2000 {
        let name = format!("agent-{number}");
        let tools = if number % 2 == 0 { "t" } else { "u" };
        agents[&name] = json!({
            "tokens": [format!("${{TOKEN_{number}}}")],
            "allow": {"servers": ["s"], "tools": {"s": [tools]}},
        });
    }
    let mut setup = setup().web("s", "modern", names(&["t", "u"])).agents(agents);
    for number in 0..2000 {
        setup = setup.env(&format!("TOKEN_{number}"), &format!("a-token-of-agent-{number}"));
    }
    let gate = setup.start();
    for number in [0, 1, 998, 1999] {
        let agent = agent_at(gate.port, &format!("a-token-of-agent-{number}"));
        let listed = if number % 2 == 0 { "s__t" } else { "s__u" };
        assert_eq!(agent.list(), [listed]);
    }
    let stranger = agent_at(gate.port, "a-token-of-agent-2000");
    let list = modern_body(json!(1), "tools/list", json!({}));
    let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")];
    assert_eq!(stranger.post(&headers, &list).status, 401);
}
