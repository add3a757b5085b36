//! The endpoint's host names, CORS and proxies, and configurations that must not listen publicly.

use serde_json::{Value, json};

use crate::harness::*;
use crate::issuer::{Issuer, Key};
use crate::jwt::{begin, turned_away};

#[test]
fn hosts_and_origins_beside_loopback_are_those_of_the_configuration() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .agents(everyone())
        .set("allowed_hosts", json!(["Gate.example", "other.example:8443"]))
        .set("allowed_origins", json!(["https://App.example"]))
        .start();
    let ask = |host: &str, origin: Option<&str>| {
        let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\n{origin}Authorization: Bearer token-of-agent-a\r\n\
             Accept: */*\r\nContent-Type: application/json\r\n"
        );
        let body = initialize(LEGACY).to_string();
        gate.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).status
    };
    for host in
        ["gate.example", "GATE.EXAMPLE", "gate.example:1", "other.example:8443", "localhost"]
    {
        assert_eq!(ask(host, None), 200, "{host}");
    }
    for host in ["other.example", "evil.example", "gate.example.evil", "127.0.0.1.evil"] {
        assert_eq!(ask(host, None), 400, "{host}");
    }
    for origin in ["https://app.example", "http://localhost:3000"] {
        assert_eq!(ask("localhost", Some(origin)), 200, "{origin}");
    }
    for origin in ["http://app.example", "https://evil.example", "null", "https://app.example.x"] {
        assert_eq!(ask("localhost", Some(origin)), 403, "{origin}");
    }
    let recorded = turned_away(&gate, 8);
    assert!(recorded.contains(&"the host is not this gateway's".into()), "{recorded:?}");
    assert!(recorded.contains(&"the origin is not allowed".into()), "{recorded:?}");
}

#[test]
fn a_browser_gets_cors_headers_if_configured() {
    let start = |cors: bool| {
        setup()
            .stdio("s", "legacy", names(&["t"]))
            .agents(everyone())
            .set("allowed_origins", json!(["https://app.example"]))
            .set("cors", json!(cors))
            .start()
    };
    let gate = start(true);
    let page = ("Origin", "https://app.example");
    let asks = ("Access-Control-Request-Method", "POST");
    let wants = ("Access-Control-Request-Headers", "authorization, mcp-param-city, x-evil");
    for path in ["/mcp", "/mcp/s", "/mcp/nothing"] {
        let reply = gate.nobody().at(path).send("OPTIONS", &[page, asks, wants], "");
        assert_eq!(reply.status, 204, "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(reply.header("vary"), Some("Origin"));
        assert_eq!(reply.header("access-control-allow-methods"), Some("GET, POST, DELETE"));
        let headers = reply.header("access-control-allow-headers").unwrap();
        for wanted in ["Authorization", "Mcp-Session-Id", "MCP-Protocol-Version", "mcp-param-city"]
        {
            assert!(headers.contains(wanted), "{headers}");
        }
        assert!(!headers.contains("x-evil") && !headers.contains('*'), "{headers}");
        assert_eq!(reply.header("access-control-allow-credentials"), None);
    }
    // Responses have the headers too, also those that reject a request.
    let reply = gate.agent("a").post(&[page], &initialize(LEGACY));
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    let exposed = reply.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("Mcp-Session-Id") && exposed.contains("WWW-Authenticate"));
    let refused = gate.nobody().post(&[page], &initialize(LEGACY));
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example"));
    // Pages of this machine may send requests, and cannot read responses.
    let local = ("Origin", "http://localhost:3000");
    let reply = gate.nobody().send("OPTIONS", &[local, asks], "");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (401, None));
    let foreign = ("Origin", "https://evil.example");
    let reply = gate.nobody().send("OPTIONS", &[foreign, asks], "");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
    // Without `cors`, there are no such headers.
    let gate = start(false);
    let reply = gate.nobody().send("OPTIONS", &[page, asks], "");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (401, None));
    let reply = gate.agent("a").post(&[page], &initialize(LEGACY));
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, None));
}

#[test]
fn only_a_trusted_proxy_forwards_an_address_and_never_an_identity() {
    let start = |proxies: Value| {
        setup()
            .stdio("s", "legacy", names(&["t"]))
            .agents(everyone())
            .set("trusted_proxies", proxies)
            .start()
    };
    let sources = |gate: &Gate| -> Vec<String> {
        turned_away(gate, 1);
        let records = gate.records();
        let told = records.iter().filter(|one| one["kind"] == "turned-away");
        told.map(|one| one["source"].as_str().unwrap().to_string()).collect()
    };
    let said = [("X-Forwarded-For", "198.51.100.7, 203.0.113.9"), ("X-Forwarded-User", "a")];
    let gate = start(json!(["127.0.0.1"]));
    assert_eq!(gate.nobody().post(&said, &initialize(LEGACY)).status, 401);
    assert_eq!(sources(&gate), ["203.0.113.9"], "the last that is not a proxy of ours");
    let gate = start(json!(["10.0.0.0/8"]));
    assert_eq!(gate.nobody().post(&said, &initialize(LEGACY)).status, 401);
    assert_eq!(sources(&gate), ["127.0.0.1"]);
}

#[test]
fn nobody_listens_beyond_this_machine_without_asking_who_comes() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let open = || {
        setup()
            .stdio("s", "legacy", names(&["t"]))
            .set("listen", json!("0.0.0.0:0"))
            .set("public_url", json!("https://gate.example"))
    };
    let rules = json!({"allow": {"servers": ["*"]}});
    let jwt = issuer.identity(json!({}));
    for (why, setup) in [
        ("no agent has a credential", open().set("agents", json!({"dev": rules}))),
        // An issuer alone identifies no agent, and an allowlist alone authenticates no caller.
        (
            "no agent has a credential",
            open().set("identity", jwt.clone()).set("allowed_tools", json!(["*"])),
        ),
        (
            "no agent has a credential",
            open().set("identity", jwt.clone()).set("agents", json!({"dev": rules})),
        ),
        (
            "no agent has a credential",
            open().set("agents", json!({"dev": {"uid": 1, "allow": {"servers": ["*"]}}})),
        ),
        (
            "callers without a name are accepted",
            open()
                .set("identity", jwt)
                .set("agents", json!({"dev": {"claims": {"sub": "dev"}}}))
                .set("defaults", json!({"deny_on_missing_agent": false})),
        ),
    ] {
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{said}");
        assert!(
            said.contains("can be reached from other machines") && said.contains(why),
            "{said}"
        );
    }
}

#[test]
fn without_agents_no_caller_needs_a_name() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = setup()
        .stdio("s", "legacy", names(&["t", "more"]))
        .set("public_url", json!("https://gate.example"))
        .set("identity", issuer.identity(json!({})))
        .set("allowed_tools", json!(["t"]))
        .start();
    assert_eq!(gate.nobody().session().list(), ["s__t"]);
    assert_eq!(begin(&gate.agent("a")).status, 401, "a wrong token is never no name");
}
