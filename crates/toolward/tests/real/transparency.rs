//! With a policy that allows everything, a client sees the same with and without the gateway: its whole
//! output is compared, not a list of fields.

use serde_json::{Value, json};

use super::harness::{Gate, Setup};
use super::peers::*;

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Both must be equal. If the client uses another protocol version with the gateway than with the
/// server, the revision differs, and with it the fields of one of the versions.
fn assert_same(client: Client, mut direct: Value, mut through: Value, what: &str) {
    assert!(!direct["tools"].as_array().unwrap().is_empty(), "{what}");
    let alike = direct["revision"] == through["revision"];
    if !alike {
        without_era(client, &mut direct);
        without_era(client, &mut through);
    }
    // `initialize` does not wait for a server that needs over a second to start: the gateway then
    // responds with the configured name instead of the server's own.
    if through["server"]["version"] == "unknown" {
        direct["server"] = Value::Null;
        through["server"] = Value::Null;
    }
    // One by one first, for readable failures.
    for part in ["tools", "calls"] {
        let parts = direct[part].as_array().unwrap().iter().zip(through[part].as_array().unwrap());
        for (direct, through) in parts {
            assert_eq!(direct, through, "{what}: {part}");
        }
    }
    assert_eq!(direct, through, "{what}");
    for part in ["tools", "calls"] {
        let (direct, through) = (direct[part].to_string(), through[part].to_string());
        assert!(!alike || direct == through, "{what}: order in {part}: {direct} {through}");
    }
}

/// Removes fields that only one protocol version has.
fn without_era(client: Client, seen: &mut Value) {
    seen["revision"] = Value::Null;
    for call in seen["calls"].as_array_mut().unwrap() {
        call.as_object_mut().unwrap().shift_remove("resultType");
        without_server_info(call);
    }
    // These clients drop a field of tools in the modern version.
    if matches!(client, Client::TypeScript | Client::Inspector) {
        for tool in seen["tools"].as_array_mut().unwrap() {
            tool.as_object_mut().unwrap().shift_remove("execution");
        }
    }
}

fn without_server_info(call: &mut Value) {
    let call = call.as_object_mut().unwrap();
    if let Some(meta) = call.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.shift_remove(SERVER_INFO);
        if meta.is_empty() {
            call.shift_remove("_meta");
        }
    }
}

/// The expected output for all servers together: one list, in the order of the configuration. Servers
/// of both protocol versions have no revision in common.
fn together(all: &[(&str, Value)]) -> Value {
    let first = &all[0].1["revision"];
    let common = all.iter().all(|(_, seen)| seen["revision"] == *first);
    let revision = if common { first.clone() } else { Value::Null };
    let joined = |part: &str| -> Value {
        // One client does not report progress.
        let parts: Option<Vec<&Vec<Value>>> =
            all.iter().map(|(_, seen)| seen[part].as_array()).collect();
        parts.map(|parts| parts.into_iter().flatten().cloned().collect()).unwrap_or_default()
    };
    let mut tools = joined("tools");
    let names = all.iter().flat_map(|(server, seen)| {
        tools_of(seen).into_iter().map(move |name| format!("{server}__{name}"))
    });
    for (tool, name) in tools.as_array_mut().unwrap().iter_mut().zip(names) {
        tool["name"] = json!(name);
    }
    json!({
        "revision": revision, "server": null, "tools": tools,
        "calls": joined("calls"), "progress": joined("progress"),
    })
}

/// One client in one mode, and its output for servers without the gateway.
struct Direct<'a> {
    client: Client,
    mode: &'a str,
    work: &'a Work,
    seen: Vec<(&'a str, Value)>,
}

impl<'a> Direct<'a> {
    fn new(work: &'a Work, client: Client, mode: &'a str, servers: &[&'a str]) -> Direct<'a> {
        let see = |server: &&'a str| (*server, work.direct(client, mode, server));
        Direct { client, mode, work, seen: servers.iter().map(see).collect() }
    }

    fn what(&self, at: &At) -> String {
        format!("{:?} {} at {at:?}", self.client, self.mode)
    }

    fn one_is_same(&self, server: &str, direct: &Value, at: &At) {
        let calls = self.work.calls(self.client, server);
        let through = self.work.see(self.client, self.mode, &calls, at);
        assert_same(self.client, direct.clone(), through, &self.what(at));
    }

    /// Each server behind `toolward wrap`.
    fn is_same_through_wrap(&self) {
        let policy = self.work.policy("all.yaml", "allowed_tools: [\"*\"]\n");
        for (server, direct) in &self.seen {
            let at = self.work.wrapped(&["--policy", &policy], server);
            self.one_is_same(server, direct, &at);
        }
    }

    /// Each server at its own address.
    fn is_same_at_own_address(&self, gate: &Gate) {
        for (server, direct) in &self.seen {
            self.one_is_same(server, direct, &place(gate, "a", &format!("/mcp/{server}")));
        }
    }

    /// All servers at once.
    fn is_same_together(&self, at: &At) {
        let calls = self
            .seen
            .iter()
            .flat_map(|(server, _)| named(server, &self.work.calls(self.client, server)));
        let mut through = self.work.see(self.client, self.mode, &calls.collect(), at);
        // A client that did not ask does not know the server's name.
        assert!(through["server"].is_null() || through["server"]["name"] == "toolward");
        through["server"] = Value::Null;
        assert_same(self.client, together(&self.seen), through, &self.what(at));
    }
}

fn everything_allowed(setup: Setup) -> Gate {
    setup.agents(json!({"a": {"allow": {"servers": ["*"]}}})).start()
}

/// `toolward stdio` with a configuration.
fn standard(setup: Setup) -> (Setup, At) {
    let setup = setup.set("agents", json!({"a": {"allow": {"servers": ["*"]}}}));
    let file = setup.file().to_str().unwrap().to_string();
    let words = [env!("CARGO_BIN_EXE_toolward"), "stdio", "--agent", "a", "-c", &file];
    let at = At::Command(words.map(String::from).to_vec());
    (setup, at)
}

/// The other two are written in TypeScript, below.
#[test]
fn python_sees_servers_the_same_through_wrap() {
    let Some(peers) = peers() else { return };
    let servers = ["files", "git", "memory"];
    Direct::new(&Work::new(peers), Client::Python, "", &servers).is_same_through_wrap();
}

#[test]
fn python_sees_every_server_the_same_through_serve_and_stdio() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let direct = Direct::new(&work, Client::Python, "", &SERVERS);
    let gate = everything_allowed(work.setup(&SERVERS));
    direct.is_same_at_own_address(&gate);
    direct.is_same_together(&place(&gate, "a", "/mcp"));
    let (_setup, at) = standard(work.setup(&SERVERS));
    direct.is_same_together(&at);
}

#[test]
fn typescript_sees_servers_of_both_eras_the_same() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let servers = ["everything", "time"];
    let gate = everything_allowed(work.setup(&servers));
    let direct = Direct::new(&work, Client::TypeScript, "", &servers);
    direct.is_same_together(&place(&gate, "a", "/mcp"));
    direct.is_same_through_wrap();
    // The modern version if the server supports it.
    let direct = Direct::new(&work, Client::TypeScript, "--auto", &["time"]);
    direct.is_same_at_own_address(&gate);
}

#[test]
fn the_inspector_sees_a_server_the_same() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let servers = ["files"];
    let gate = everything_allowed(work.setup(&servers));
    Direct::new(&work, Client::Inspector, "", &servers).is_same_at_own_address(&gate);
}

#[test]
fn the_rust_client_sees_servers_of_both_eras_the_same() {
    let Some(peers) = peers().filter(|peers| peers.has(Client::Rust)) else { return };
    let work = Work::new(peers);
    let servers = ["everything", "git"];
    let gate = everything_allowed(work.setup(&servers));
    let direct = Direct::new(&work, Client::Rust, "", &servers);
    direct.is_same_together(&place(&gate, "a", "/mcp"));
}

#[test]
fn servers_over_http_look_the_same() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let (streamable, sse) =
        (work.everything_on_http("streamableHttp"), work.everything_on_http("sse"));
    let plain = work.plain_on_http();
    let gate = everything_allowed(
        work.setup(&[])
            .server("streamable", json!({"url": streamable.url("/mcp")}))
            .server("sse", json!({"url": sse.url("/sse"), "transport": "sse"}))
            .server("detected", json!({"url": sse.url("/sse")}))
            .server("plain", json!({"url": plain.url("/mcp")})),
    );
    let see = |server: &str, at: &At| {
        work.see(Client::Python, "", &work.calls(Client::Python, server), at)
    };
    let direct = see("everything", &streamable.at("/mcp"));
    for server in ["streamable", "sse", "detected"] {
        let through = see("everything", &place(&gate, "a", &format!("/mcp/{server}")));
        assert_same(Client::Python, direct.clone(), through, server);
    }
    let direct = see("plain", &plain.at("/mcp"));
    let through = see("plain", &place(&gate, "a", "/mcp/plain"));
    assert_same(Client::Python, direct, through, "plain");
}

/// Every server, every transport. The Inspector restarts for each step, and with it every stdio server:
/// so it runs fewer of those.
fn every_way(client: Client) {
    let Some(peers) = peers().filter(|peers| full() && peers.has(client)) else { return };
    let work = Work::new(peers);
    let slow = client == Client::Inspector;
    // One gateway for all: the second client is also served in its own protocol version.
    let gate = everything_allowed(work.setup(&SERVERS));
    let all = place(&gate, "a", "/mcp");
    for mode in ["--legacy", "--auto"] {
        let direct = Direct::new(&work, client, mode, &SERVERS);
        direct.is_same_together(&all);
        if !slow || mode == "--legacy" {
            direct.is_same_at_own_address(&gate);
            direct.is_same_through_wrap();
        }
        if !slow {
            let (_setup, at) = standard(work.setup(&SERVERS));
            direct.is_same_together(&at);
        }
        // The modern version only, which most of the servers do not support.
        if !slow || mode == "--auto" {
            Direct { mode: "--modern", ..direct }.is_same_together(&all);
        }
    }
}

#[test]
fn python_meets_every_server_in_every_way() {
    every_way(Client::Python);
}

#[test]
fn typescript_meets_every_server_in_every_way() {
    every_way(Client::TypeScript);
}

#[test]
fn the_inspector_meets_every_server_in_every_way() {
    every_way(Client::Inspector);
}

#[test]
fn the_rust_client_meets_every_server_in_every_way() {
    every_way(Client::Rust);
}
