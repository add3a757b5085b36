//! Caller identity, and the credentials that servers get.

use serde_json::json;

use super::harness::*;

#[test]
fn only_a_token_names_an_agent() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t", "only_b"]))
        .stdio("n", "modern", names(&["t", "only_b"]))
        .agents(json!({
            "a": {"allow": {"servers": ["*"], "tools": {"*": ["t"]}}},
            "b": {"allow": {"servers": ["*"]}},
            // The hash of `token-of-agent-h`.
            "h": {"tokens": ["sha256:e6600588b3df400d1197d3f119f9553a36449a626ceba6982892c011e4eb2cf0"]},
        }))
        .start();
    assert_eq!(gate.agent("h").session().list(), Vec::<String>::new());
    let a = gate.agent("a");
    let begin = initialize(LEGACY).to_string();
    let as_header = |value: &str| gate.nobody().send("POST", &[("Authorization", value)], &begin);
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        assert_eq!(as_header(&format!("{scheme} token-of-agent-a")).status, 200, "{scheme}");
    }
    let missing = gate.nobody().send("POST", &[], &begin);
    assert_eq!(missing.status, 401);
    assert!(missing.header("www-authenticate").unwrap().starts_with("Bearer"));
    for wrong in [
        "Bearer token-of-agent-",
        "Bearer token-of-agent-c",
        "Bearer TOKEN-OF-AGENT-A",
        "Bearer",
        "Bearer token-of-agent-a x",
        "token-of-agent-a",
        "Basic token-of-agent-a",
        "Basic dG9rZW4tb2YtYWdlbnQtYTo=",
        "Token token-of-agent-a",
        "Bearer token-of-agent-a, Bearer token-of-agent-b",
        "Bearer \"token-of-agent-a\"",
        "Bearertoken-of-agent-a",
        "Digest token-of-agent-a",
        "Bearer ${TOKEN_OF_a}",
        "",
    ] {
        let reply = as_header(wrong);
        assert_eq!(reply.status, 401, "{wrong:?}");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"), "{wrong:?}");
        assert!(reply.body.is_empty() || !String::from_utf8_lossy(&reply.body).contains("token"));
    }
    for path in [
        "/mcp?token=token-of-agent-a",
        "/mcp?access_token=token-of-agent-a",
        "/mcp/s?Authorization=Bearer%20token-a",
    ] {
        assert_eq!(gate.nobody().at(path).send("POST", &[], &begin).status, 401, "{path}");
    }
    for (name, value) in [
        ("X-Agent", "b"),
        ("Cookie", "token=token-of-agent-a"),
        ("Proxy-Authorization", "Bearer token-of-agent-a"),
        ("X-Forwarded-User", "b"),
        ("Mcp-Agent", "b"),
    ] {
        assert_eq!(gate.nobody().send("POST", &[(name, value)], &begin).status, 401, "{name}");
    }
    for method in ["GET", "DELETE"] {
        assert_eq!(gate.nobody().send(method, &[], "").status, 401);
    }
    let listing = modern_body(json!(1), "tools/list", json!({}));
    assert_eq!(
        gate.nobody()
            .post(&[("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")], &listing)
            .status,
        401
    );
    assert!(gate.log("s").is_empty() && gate.log("n").is_empty());

    // The client's self-description has no effect.
    let mut hello = initialize(LEGACY);
    hello["params"]["clientInfo"]["name"] = json!("b");
    hello["params"]["agent"] = json!("b");
    hello["params"]["_meta"] = json!({"agent": "b", "io.toolward/agent": "b"});
    let headers = [("X-Agent", "b"), ("X-Forwarded-User", "b")];
    let reply = a.post(&headers, &hello);
    let id = reply.header("mcp-session-id").unwrap().to_string();
    let session = Session { agent: a.clone(), id, revision: LEGACY.into(), hello: json!({}) };
    assert_eq!(session.list(), ["s__t", "n__t"]);
    gate.refusal(&session.call("s__only_b", json!({"agent": "b"})));
    let mut body = modern_body(json!(1), "tools/list", json!({"agent": "b"}));
    body["params"]["_meta"][format!("{META}clientInfo")]["name"] = json!("b");
    let terms = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list"), ("X-Agent", "b")];
    let listed = a.post(&terms, &body).json();
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(
        tools.iter().filter(|tool| tool["name"].as_str().unwrap().contains("only_b")).count(),
        0
    );
    let of_agents =
        |record: &&serde_json::Value| record["kind"] != "turned-away" && record["agent"] != "h";
    for record in gate.records().iter().filter(of_agents) {
        assert_eq!((&record["agent"], &record["identity"]), (&json!("a"), &json!("token")));
    }
    let record = std::fs::read_to_string(gate.file("audit/audit.jsonl")).unwrap();
    assert!(
        !record.contains("token-of-agent-a")
            && !gate.said.lock().unwrap().contains("token-of-agent-a")
    );
}

#[test]
fn unnamed_callers_are_the_default_agent_if_configured() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t", "more"]))
        .agents(json!({
            "a": {"allow": {"servers": ["*"]}},
            "default": {"allow": {"servers": ["*"], "tools": {"s": ["t"]}}},
        }))
        .set("defaults", json!({"deny_on_missing_agent": false}))
        .start();
    let anyone = gate.nobody().session();
    assert_eq!(anyone.list(), ["s__t"]);
    gate.refusal(&anyone.call("s__more", json!({})));
    assert_eq!(gate.agent("a").session().list(), ["s__t", "s__more"]);
    let wrong = gate.agent("nobody").post(&[], &initialize(LEGACY));
    assert_eq!(wrong.status, 401, "a wrong token is never no name");
    // Sessions of an unnamed caller and of an agent are separate.
    let list = request(json!(1), "tools/list", json!({}));
    assert_eq!(gate.agent("a").post(&anyone.headers(), &list).status, 404);
}

#[test]
fn a_token_names_the_agent_on_stdio_too() {
    let start = |token: &str, arguments: &[&str]| {
        setup()
            .stdio("s", "legacy", names(&["t", "only_b"]))
            .agents(json!({
                "a": {"allow": {"servers": ["*"], "tools": {"s": ["t"]}}},
                "b": {"allow": {"servers": ["*"]}},
            }))
            .env("TOOLWARD_TOKEN", token)
            .standard(arguments)
            .ready()
    };
    let listed = start("token-of-agent-a", &[]).ask(&request(json!(1), "tools/list", json!({})));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_client_s_credentials_stay_here_and_a_server_s_come_from_the_configuration() {
    for era in ["legacy", "modern"] {
        let gate = setup()
            .web("w", era, names(&["t"]))
            .with(
                "w",
                "headers",
                json!({"Authorization": "Bearer ${UPSTREAM}", "X-Team": "${TEAM}-1"}),
            )
            .env("UPSTREAM", "upstream-secret")
            .env("TEAM", "blue")
            .agents(everyone())
            .start();
        let a = gate.agent("a");
        let answer = match era {
            "legacy" => {
                let session = a.session();
                let mut headers = session.headers().to_vec();
                headers.extend([
                    ("Cookie", "c=client-secret"),
                    ("X-Team", "red"),
                    ("X-Api-Key", "client-secret"),
                    ("Traceparent", "x"),
                ]);
                let answer = a
                    .post(&headers, &request(json!(1), "tools/call", json!({"name": "w__t"})))
                    .json();
                session.delete();
                answer
            }
            _ => a.call("w__t", json!({})),
        };
        assert_eq!(text(&answer), "did t");
        if era == "legacy" {
            eventually("the session ends upstream", || {
                gate.log("w").iter().any(|one| one["http"] == "DELETE").then_some(())
            });
        }
        let log = gate.log("w");
        assert!(log.len() >= 3);
        for entry in &log {
            let headers = &entry["headers"];
            assert_eq!(headers["authorization"], "Bearer upstream-secret", "{entry}");
            assert_eq!(headers["x-team"], "blue-1", "{entry}");
            assert_eq!(headers["accept-encoding"], "identity", "{entry}");
            assert!(headers.get("cookie").is_none() && headers.get("x-api-key").is_none());
            assert!(headers.get("origin").is_none());
        }
        let all = json!(log).to_string();
        assert!(!all.contains("token-of-agent-a") && !all.contains("client-secret"));
        // An unset variable is an error, and the value of a set one is in no message.
        assert!(!gate.said.lock().unwrap().contains("upstream-secret"));
        let (code, said) = setup()
            .server(
                "w",
                json!({"url": "http://127.0.0.1:1/", "headers": {"Authorization": "${NOT_SET}"}}),
            )
            .agents(everyone())
            .fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("NOT_SET"), "{said}");
    }
}
