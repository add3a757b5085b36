//! OAuth discovery without a token: challenge and metadata, and nothing else.

use serde_json::{Value, json};

use crate::harness::*;
use crate::issuer::{Issuer, Key};
use crate::jwt::{begin, dev, gate_with};
use crate::wire::Reply;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

fn get(gate: &Gate, path: &str, headers: &[(&str, &str)]) -> Reply {
    gate.nobody().at(path).send("GET", headers, "")
}

#[test]
fn the_challenge_leads_to_the_metadata_and_that_to_the_issuer() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate_with(&issuer, json!({}), dev()).start();
    for path in ["/mcp", "/mcp/s", "/mcp/nothing"] {
        let reply = begin(&gate.nobody().at(path));
        assert_eq!(reply.status, 401, "{path}");
        let challenge = reply.header("www-authenticate").unwrap();
        let url = format!("https://gate.example{WELL_KNOWN}{path}");
        assert_eq!(challenge, format!("Bearer resource_metadata=\"{url}\""));
        let document = get(&gate, &format!("{WELL_KNOWN}{path}"), &[]);
        assert_eq!(document.status, 200, "{path}");
        assert_eq!(document.header("content-type"), Some("application/json"));
        let document: Value = serde_json::from_slice(&document.body).unwrap();
        assert_eq!(document["resource"], format!("https://gate.example{path}"));
        assert_eq!(document["authorization_servers"], json!([issuer.url]));
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
    }
    let root: Value = serde_json::from_slice(&get(&gate, WELL_KNOWN, &[]).body).unwrap();
    assert_eq!(root["resource"], "https://gate.example/mcp");
    for path in ["/mcpx", "/other", "x", "/../mcp", "//mcp"] {
        assert_eq!(get(&gate, &format!("{WELL_KNOWN}{path}"), &[]).status, 404, "{path}");
    }
    assert_eq!(gate.nobody().at(WELL_KNOWN).send("POST", &[], "{}").status, 405);
    assert_eq!(get(&gate, "/.well-known/oauth-authorization-server", &[]).status, 404);
}

#[test]
fn without_an_issuer_there_is_neither() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    assert_eq!(get(&gate, WELL_KNOWN, &[]).status, 404);
    assert_eq!(get(&gate, &format!("{WELL_KNOWN}/mcp"), &[]).status, 404);
    assert_eq!(begin(&gate.nobody()).header("www-authenticate"), Some("Bearer"));
    let wrong = begin(&gate.agent("nobody"));
    assert_eq!(wrong.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
}

#[test]
fn without_a_public_url_the_address_is_what_the_client_wrote() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let start = |proxies: Value| {
        setup()
            .stdio("s", "legacy", names(&["t"]))
            .set("identity", issuer.identity(json!({"audience": "gate"})))
            .set("agents", dev())
            .set("allowed_hosts", json!(["gate.example"]))
            .set("trusted_proxies", proxies)
            .start()
    };
    let resource = |gate: &Gate, headers: &[(&str, &str)]| -> String {
        let document = get(gate, WELL_KNOWN, headers);
        let document: Value = serde_json::from_slice(&document.body).unwrap();
        document["resource"].as_str().unwrap().into()
    };
    let forwarded = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "gate.example")];
    let gate = start(json!([]));
    let plain = format!("http://127.0.0.1:{}/mcp", gate.port);
    assert_eq!(resource(&gate, &[]), plain);
    assert_eq!(resource(&gate, &forwarded), plain, "anyone can say that it is a proxy");
    let gate = start(json!(["127.0.0.0/8"]));
    assert_eq!(resource(&gate, &forwarded), "https://gate.example/mcp");
    let evil = [("X-Forwarded-Host", "evil.example")];
    assert_eq!(resource(&gate, &evil), format!("http://127.0.0.1:{}/mcp", gate.port));
}
