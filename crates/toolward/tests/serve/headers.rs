//! The headers of modern requests, which must match the body.

use serde_json::{Value, json};

use super::harness::*;

fn call(agent: &Agent, headers: &[(&str, &str)], name: &str, arguments: Value) -> (u16, i64) {
    let body = modern_body(json!(1), "tools/call", json!({"name": name, "arguments": arguments}));
    let reply = agent.post(headers, &body);
    (reply.status, reply.code())
}

#[test]
fn headers_that_differ_from_the_body_are_refused() {
    let gate = setup().stdio("s", "modern", names(&["a", "b", "größe"])).agents(everyone()).start();
    let a = gate.agent("a").at("/mcp/s");
    assert_eq!(a.list().len(), 3);
    const VERSION: (&str, &str) = ("MCP-Protocol-Version", MODERN);
    const METHOD: (&str, &str) = ("Mcp-Method", "tools/call");
    const NAME: (&str, &str) = ("Mcp-Name", "a");
    let mismatch = (400, -32020);
    for headers in [
        &[METHOD, NAME][..],
        &[VERSION, NAME],
        &[VERSION, METHOD],
        &[],
        &[("MCP-Protocol-Version", "2025-06-18"), METHOD, NAME],
        &[("MCP-Protocol-Version", "2030-01-01"), METHOD, NAME],
        &[("MCP-Protocol-Version", ""), METHOD, NAME],
        &[VERSION, ("Mcp-Method", "tools/list"), NAME],
        &[VERSION, ("Mcp-Method", "Tools/Call"), NAME],
        &[VERSION, ("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?="), NAME],
        &[VERSION, METHOD, ("Mcp-Name", "b")],
        &[VERSION, METHOD, ("Mcp-Name", "A")],
        &[VERSION, METHOD, ("Mcp-Name", "s__a")],
        &[VERSION, METHOD, ("Mcp-Name", "a, b")],
        &[VERSION, METHOD, ("Mcp-Name", "\"a\"")],
        &[VERSION, METHOD, ("Mcp-Name", "=?base64?Yg==?=")],
        &[VERSION, METHOD, ("Mcp-Name", "=?base64?YQ?=")],
        &[VERSION, METHOD, ("Mcp-Name", "=?base64?*?=")],
        &[VERSION, METHOD, ("Mcp-Name", "=?BASE64?YQ==?=")],
    ] {
        assert_eq!(call(&a, headers, "a", json!({})), mismatch, "{headers:?}");
    }
    assert!(gate.calls("s").is_empty());
    for name in ["a", "=?base64?YQ==?="] {
        assert_eq!(call(&a, &[VERSION, METHOD, ("Mcp-Name", name)], "a", json!({})), (200, 0));
        assert_eq!(call(&a, &[VERSION, METHOD, ("mcp-name", name)], "a", json!({})), (200, 0));
    }
    let encoded = ("Mcp-Name", "=?base64?Z3LDtsOfZQ==?=");
    assert_eq!(call(&a, &[VERSION, METHOD, encoded], "größe", json!({})), (200, 0));
    assert_eq!(call(&a, &[VERSION, METHOD, ("Mcp-Name", "größe")], "größe", json!({})), mismatch);
    assert_eq!(gate.calls("s").len(), 5);

    // A header without a counterpart.
    let list = modern_body(json!(1), "tools/list", json!({}));
    let reply = a.post(&[VERSION, ("Mcp-Method", "tools/list"), NAME], &list);
    assert_eq!((reply.status, reply.code()), mismatch);
    for twice in [VERSION, METHOD, NAME] {
        let headers = [VERSION, METHOD, NAME, twice];
        assert_eq!(call(&a, &headers, "a", json!({})).0, 400, "{twice:?} twice");
    }
    // A hidden tool is refused like one that does not exist, with any header.
    assert_eq!(call(&a, &[VERSION, METHOD, ("Mcp-Name", "b")], "c", json!({})), mismatch);
}

#[test]
fn headers_are_compared_before_the_method_is_looked_up() {
    let gate = setup().stdio("s", "modern", names(&["a"])).agents(everyone()).start();
    let unknown = modern_body(json!(1), "no/such", json!({}));
    for method in ["tools/list", "no/such/thing"] {
        let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        let reply = gate.agent("a").post(&headers, &unknown);
        assert_eq!((reply.status, reply.code()), (400, -32020), "{method}");
    }
}

#[test]
fn parameters_in_headers_are_checked_and_regenerated_for_the_server() {
    let marked = |header: Value| {
        json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": header},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "free": {"type": "string"},
        }})
    };
    let tools = json!([
        {"name": "q", "inputSchema": marked(json!("Region"))},
        {"name": "bad", "inputSchema": marked(json!("no header"))},
        {"name": "internal", "inputSchema": marked(json!("Region"))},
    ]);
    let gate = setup()
        .web("w", "modern", tools.clone())
        .with("w", "expose", json!(["q", "bad", {"tool": "internal", "display_name": "shown"}]))
        .stdio("s", "modern", tools)
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    assert_eq!(
        a.list(),
        ["w__q", "w__shown", "s__q", "s__bad", "s__internal"],
        "an invalid mark drops the tool"
    );
    let send = |name: &str, arguments: Value, headers: &[(&str, &str)]| {
        let mut all = vec![
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", name),
        ];
        all.extend(headers);
        call(&a, &all, name, arguments)
    };
    let both = json!({"region": "eu", "count": 3, "free": "x"});
    let (region, count) = (("Mcp-Param-Region", "eu"), ("Mcp-Param-Count", "3"));
    for server in ["w", "s"] {
        let name = format!("{server}__q");
        for headers in [
            &[][..],
            &[region],
            &[count],
            &[("Mcp-Param-Region", "us"), count],
            &[("Mcp-Param-Region", "EU"), count],
            &[("Mcp-Param-Region", "=?base64?dXM=?="), count],
            &[region, ("Mcp-Param-Count", "4")],
            &[region, ("Mcp-Param-Count", "3.5")],
            &[region, ("Mcp-Param-Count", "3e0")],
        ] {
            assert_eq!(send(&name, both.clone(), headers), (400, -32020), "{server} {headers:?}");
        }
        assert_eq!(send(&name, json!({}), &[region]), (400, -32020), "no such argument");
        assert_eq!(send(&name, json!({"region": null}), &[region]), (400, -32020));
        assert_eq!(send(&name, both.clone(), &[region, count, region]).0, 400, "twice");
        assert!(gate.calls(server).is_empty());
        assert_eq!(send(&name, both.clone(), &[region, count]), (200, 0));
        assert_eq!(
            send(
                &name,
                both.clone(),
                &[("mcp-param-region", "=?base64?ZXU=?="), ("Mcp-Param-Count", "3.0")]
            ),
            (200, 0)
        );
        assert_eq!(send(&name, json!({"region": null}), &[]), (200, 0));
        assert_eq!(gate.calls(server).len(), 3);
    }
    assert_eq!(
        send(
            "w__shown",
            json!({"region": "größe"}),
            &[("Mcp-Param-Region", "=?base64?Z3LDtsOfZQ==?="), ("Mcp-Param-Free", "forged")]
        ),
        (200, 0)
    );
    let calls: Vec<Value> = gate
        .log("w")
        .into_iter()
        .filter(|one| one["headers"]["mcp-method"] == "tools/call")
        .collect();
    let headers = &calls[0]["headers"];
    assert_eq!(headers["mcp-name"], "q");
    assert_eq!(headers["mcp-protocol-version"], MODERN);
    assert_eq!(
        (&headers["mcp-param-region"], &headers["mcp-param-count"]),
        (&json!("eu"), &json!("3"))
    );
    let headers = &calls.last().unwrap()["headers"];
    assert_eq!(headers["mcp-name"], "internal", "the server's own name");
    assert_eq!(headers["mcp-param-region"], "=?base64?Z3LDtsOfZQ==?=");
    assert!(headers.get("mcp-param-free").is_none() && headers.get("mcp-param-count").is_none());
    assert!(calls[2]["headers"].get("mcp-param-region").is_none());
}
