//! Resources and templates: lists, owners, reads.

use serde_json::{Value, json};

use crate::kit::{Gate, Kind, Server, Step, gate};

fn whole(more: &str) -> String {
    format!(
        "servers: {{s: {{command: x}}}}\nagents: {{dev: {{allow: {{servers: [s]}}, {more}}}}}\n"
    )
}

fn server(uris: &[&str], templates: &[&str]) -> Server {
    let server = Server::both(&["echo"]);
    server.set_resources(uris).set_templates(templates);
    server
}

/// Two servers, `s` before `t`.
fn pair(first: &Server, second: &Server) -> Gate {
    let config = "servers: {s: {command: x}, t: {command: x}}\n\
         agents: {dev: {allow: {servers: [\"*\"]}}}\n";
    gate(config, first).server("t", second).start()
}

async fn read(client: &crate::kit::Client, uri: &str) -> Value {
    client.request("resources/read", json!({ "uri": uri })).await
}

/// The code of the gateway's own not-found.
fn not_found(kind: Kind) -> i64 {
    if kind.is_modern() { -32602 } else { -32002 }
}

#[tokio::test(start_paused = true)]
async fn listed_resources_are_read_from_their_server() {
    let server = server(&["note:1", "file:///srv/a.txt"], &["file:///srv/{name}"]);
    let gate = gate(&whole(""), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        assert_eq!(client.entries("resources/list").await, ["note:1", "file:///srv/a.txt"]);
        assert_eq!(client.entries("resources/templates/list").await, ["file:///srv/{name}"]);
        // Listed, from a template, and in another spelling of a listed URI: the bytes are forwarded as sent.
        for uri in ["note:1", "file:///srv/b.txt", "FILE:///srv/a.txt"] {
            let answer = read(&client, uri).await;
            assert_eq!(answer["result"]["contents"][0]["uri"], uri, "{kind:?} {answer}");
            let modern = answer["result"]["cacheScope"] == "private"
                && answer["result"]["ttlMs"].as_i64().is_some_and(|ttl| ttl <= 5000);
            assert_eq!(modern, kind.is_modern(), "{kind:?} {answer}");
        }
    }
    let record = &gate.records_of("intent").await[0];
    assert_eq!((&record["method"], &record["uri"]), (&json!("resources/read"), &json!("note:1")));
}

#[tokio::test(start_paused = true)]
async fn hidden_and_nonexistent_resources_are_not_found_alike() {
    let server = server(&["note:1", "note:secret"], &["note:{id}"]);
    server.on("resources/read", |request| {
        vec![Step::Error(request["id"].clone(), -32002, "there is no such note")]
    });
    let gate = gate(&whole("deny: {resources: {s: [\"note:secret*\"]}}"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        assert_eq!(client.entries("resources/list").await, ["note:1"], "{kind:?}");
        let mut refusals = Vec::new();
        // By its name, by other spellings, by the template, and not existing at all.
        for uri in ["note:secret", "NOTE:secret", "note:s%65cret", "note:secret2", "other:absent"] {
            let mut answer = read(&client, uri).await;
            assert_eq!(answer["error"]["code"], not_found(kind), "{kind:?} {uri} {answer}");
            assert_eq!(answer["error"]["data"]["uri"], uri);
            for hidden in ["decision_id", "uri"] {
                answer["error"]["data"][hidden].take();
            }
            answer["id"].take();
            refusals.push(answer);
        }
        refusals.dedup();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
    }
    let forwarded = server.received("resources/read");
    assert!(forwarded.iter().all(|one| one["params"]["uri"] == "other:absent"), "{forwarded:?}");
}

#[tokio::test(start_paused = true)]
async fn unsafe_spellings_are_never_forwarded() {
    let server = server(&["file:///srv/a.txt"], &["file:///srv/{+path}"]);
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for uri in [
        "file:///srv/../etc/passwd",
        "file:///srv/%2e%2e/etc/passwd",
        "file:///srv%2f..%2fetc",
        "file:///srv/a%5cb",
        "no-scheme",
        "",
    ] {
        let answer = read(&client, uri).await;
        assert!(answer["error"]["code"].is_number(), "{uri} {answer}");
    }
    let long = format!("file:///srv/{}", "x".repeat(64 << 10));
    assert!(read(&client, &long).await["result"].is_object());
    assert_eq!(server.received("resources/read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_part_of_a_result_is_decided() {
    let server = server(&["dir:a"], &[]);
    server.on("resources/read", |request| {
        let part = |uri: &str| json!({"uri": uri, "text": uri});
        let parts = match request["params"]["uri"].as_str() {
            Some("dir:a") => json!([part("dir:a/1"), part("dir:a/secret"), {"text": "no uri"}]),
            _ => json!([part("dir:a/secret")]),
        };
        vec![Step::Result(request["id"].clone(), json!({ "contents": parts, "extra": 1 }))]
    });
    let gate = gate(&whole("deny: {resources: {s: [\"dir:a/secret\"]}}"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let answer = read(&client, "dir:a").await;
        let contents = json!([{"uri": "dir:a/1", "text": "dir:a/1"}]);
        assert_eq!(answer["result"]["contents"], contents, "{kind:?} {answer}");
        assert_eq!(answer["result"]["extra"], 1);
        let answer = read(&client, "dir:b").await;
        assert_eq!(answer["error"]["code"], not_found(kind), "{kind:?} {answer}");
        assert!(!answer.to_string().contains("secret"));
    }
    assert_eq!(gate.outcomes().await[..2], ["ok", "not-found"]);
}

#[tokio::test(start_paused = true)]
async fn not_found_is_always_the_text_of_the_gateway() {
    for code in [-32002, -32602] {
        let server = server(&["note:1"], &[]);
        server.on("resources/read", move |request| {
            vec![Step::Error(request["id"].clone(), code, "no file /srv/notes/1")]
        });
        let gate = gate(&whole(""), &server).start();
        for kind in Kind::ALL {
            let client = gate.client(kind).await;
            let answer = read(&client, "note:1").await;
            assert_eq!(answer["error"]["code"], not_found(kind), "{answer}");
            assert_eq!(answer["error"]["message"], "Resource not found");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_resource_is_an_error() {
    let server = server(&["note:1"], &[]);
    server.on("resources/read", |request| {
        vec![Step::Error(request["id"].clone(), -32603, "the disk is broken")]
    });
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::HttpLegacy).await;
    let answer = read(&client, "note:1").await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_first_server_owns_a_uri_that_two_list() {
    let [first, second] = [server(&["note:1", "note:2"], &[]), server(&["note:2", "note:3"], &[])];
    let gate = pair(&first, &second);
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        assert_eq!(client.entries("resources/list").await, ["note:1", "note:2", "note:3"]);
        for uri in ["note:1", "note:2", "note:3"] {
            assert!(read(&client, uri).await["result"].is_object(), "{kind:?} {uri}");
        }
        // Both list the scheme, so a URI that neither lists has no owner.
        assert_eq!(read(&client, "note:4").await["error"]["code"], not_found(kind));
    }
    let uris = |server: &Server| -> Vec<Value> {
        server.received("resources/read").iter().map(|one| one["params"]["uri"].clone()).collect()
    };
    assert!(uris(&first).iter().all(|uri| uri != "note:3"));
    assert!(uris(&second).iter().all(|uri| uri == "note:3"));
}

#[tokio::test(start_paused = true)]
async fn a_scheme_that_one_server_lists_belongs_to_it() {
    let [first, second] = [server(&["note:1"], &[]), server(&["https://docs.example/a"], &[])];
    let gate = pair(&first, &second);
    let client = gate.client(Kind::StdioModern).await;
    assert!(read(&client, "note:9").await["result"].is_object());
    assert!(read(&client, "https://docs.example/b").await["result"].is_object());
    assert!(read(&client, "https://other.example/b").await["error"].is_object());
    assert_eq!(first.received("resources/read").len(), 1);
    assert_eq!(second.received("resources/read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn configured_schemes_belong_to_their_server() {
    // Both list notes, and only the first lists documents.
    let (first, second) =
        (server(&["note:1", "https://docs.example/a"], &[]), server(&["note:2"], &[]));
    let config = "servers: {s: {command: x, schemes: [HTTPS]}, \
         t: {command: x, schemes: [note, 'https://wiki.example']}}\n\
         agents: {dev: {allow: {servers: [\"*\"]}}, less: {allow: {servers: [s]}}}\n";
    let gate = gate(config, &first).server("t", &second).start();
    let client = gate.client(Kind::HttpModern).await;
    for (uri, owner) in [
        ("note:9", &second),
        ("https://wiki.example/x", &second),
        ("https://other.example/x", &first),
        ("note:1", &first),
    ] {
        let before = owner.received("resources/read").len();
        assert_eq!(read(&client, uri).await["result"]["contents"][0]["uri"], uri, "{uri}");
        assert_eq!(owner.received("resources/read").len(), before + 1, "{uri}");
    }
    let answer = read(&client, "memo:9").await;
    assert_eq!(answer["error"]["code"], not_found(Kind::HttpModern), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_link_in_a_result_can_be_read_by_the_agent_that_got_it() {
    let [first, second] = [server(&["note:1"], &[]), server(&["other:1"], &[])];
    second.on("tools/call", |request| {
        let link = json!({"type": "resource_link", "uri": "made:7", "name": "x"});
        vec![Step::Result(request["id"].clone(), json!({ "content": [link] }))]
    });
    let gate = pair(&first, &second);
    let client = gate.client(Kind::StdioLegacy).await;
    assert!(read(&client, "made:7").await["error"].is_object());
    client.request("tools/call", json!({"name": "t__echo", "arguments": {}})).await;
    assert!(read(&client, "made:7").await["result"].is_object());
    assert_eq!(second.received("resources/read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_list_of_an_earlier_server_makes_a_read_unavailable() {
    let [first, second] = [server(&["note:1"], &[]), server(&["note:2"], &[])];
    first.on("resources/list", |_| vec![Step::Hold]);
    let gate = pair(&first, &second);
    let client = gate.client(Kind::StdioModern).await;
    let answer = read(&client, "note:2").await;
    assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
    assert!(second.received("resources/read").is_empty());
}

#[tokio::test(start_paused = true)]
async fn long_lists_have_pages_that_lose_nothing() {
    let uris: Vec<String> = (0..2500).map(|number| format!("note:{number}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let server = server(&uris, &[]);
    let gate = gate(&whole(""), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let (mut seen, mut cursor) = (Vec::new(), None::<Value>);
        for _ in 0..3 {
            let params = cursor.take().map_or(json!({}), |cursor| json!({ "cursor": cursor }));
            let answer = client.request("resources/list", params).await;
            let page = answer["result"]["resources"].as_array().unwrap();
            seen.extend(page.iter().map(|one| one["uri"].as_str().unwrap().to_string()));
            cursor = answer["result"].get("nextCursor").cloned();
        }
        assert!(cursor.is_none());
        assert_eq!(seen, uris, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_belongs_to_its_agent_and_its_list() {
    let uris: Vec<String> = (0..1500).map(|number| format!("note:{number}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let server = server(&uris, &[]);
    let config = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s]}}, other: {allow: {servers: [s]}}}\n";
    let gate = gate(config, &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let answer = client.request("resources/list", json!({})).await;
    let cursor = json!({"cursor": answer["result"]["nextCursor"]});
    let other = gate.client_of(Kind::HttpModern, "other").await;
    for (client, method) in [
        (&other, "resources/list"),
        (&client, "tools/list"),
        (&client, "prompts/list"),
        (&client, "resources/templates/list"),
    ] {
        let answer = client.request(method, cursor.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{method} {answer}");
    }
    for made_up in [json!("x"), json!(7), json!("")] {
        let answer = client.request("resources/list", json!({ "cursor": made_up })).await;
        assert_eq!(answer["error"]["code"], -32602);
    }
    assert!(client.request("resources/list", cursor).await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn completion_does_not_suggest_denied_resources() {
    let server = server(&[], &["note:{id}"]);
    server.on("completion/complete", |request| {
        let completion = json!({"values": ["one", "secret", "two"], "total": 30, "hasMore": true});
        vec![Step::Result(request["id"].clone(), json!({ "completion": completion }))]
    });
    let gate = gate(&whole("deny: {resources: {s: [\"note:secret\"]}}"), &server).start();
    for kind in [Kind::StdioLegacy, Kind::HttpLegacy] {
        let client = gate.client(kind).await;
        let argument = json!({"name": "id", "value": ""});
        let complete = |uri: &str| json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": argument.clone()});
        let answer = client.request("completion/complete", complete("note:{id}")).await;
        let completion = json!({"values": ["one", "two"], "total": 2, "hasMore": false});
        assert_eq!(answer["result"]["completion"], completion, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_without_its_method_is_empty() {
    let server = server(&["note:1"], &[]);
    server.on("resources/templates/list", |request| {
        vec![Step::Error(request["id"].clone(), -32601, "unknown method")]
    });
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert!(client.entries("resources/templates/list").await.is_empty());
    assert!(read(&client, "note:1").await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn rate_limits_of_calls_count_reads() {
    let server = server(&["note:1"], &[]);
    let config = whole("") + "limits: {calls: 1/h}\n";
    let gate = gate(&config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert!(read(&client, "note:1").await["result"].is_object());
    let refused = read(&client, "note:1").await;
    assert_eq!(refused["error"]["data"]["error"], "limit_exceeded", "{refused}");
    assert_eq!(refused["error"]["data"]["uri"], "note:1");
    assert_eq!(server.received("resources/read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_interface_of_a_tool_follows_the_tool() {
    let server = server(&["note:1"], &[]);
    let with_interface = |name: &str| {
        json!({
            "name": name, "inputSchema": {"type": "object"},
            "_meta": {"ui": {"resourceUri": format!("ui://app/{name}")}},
        })
    };
    server.set_tools(vec![with_interface("show"), with_interface("hidden")]);
    let narrow = |more: &str| {
        format!(
            "servers: {{s: {{command: x}}}}\n\
             agents: {{dev: {{allow: {{servers: [s], tools: {{s: [show]}}}}, {more}}}}}\n"
        )
    };
    let gate = gate(&narrow(""), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let answer = read(&client, "ui://app/show").await;
        assert_eq!(answer["result"]["contents"][0]["uri"], "ui://app/show", "{kind:?} {answer}");
        for uri in ["ui://app/hidden", "ui://app/none", "note:1"] {
            let answer = read(&client, uri).await;
            assert_eq!(answer["error"]["code"], not_found(kind), "{kind:?} {uri} {answer}");
        }
    }
    gate.reload(&narrow("deny: {resources: {s: [\"ui://app/*\"]}}"));
    let client = gate.client(Kind::StdioModern).await;
    assert!(read(&client, "ui://app/show").await["error"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_template_is_shown_if_some_expansion_may_be_allowed() {
    let templates = ["file:///docs/{+path}", "file:///etc/{name}", "note:{id}", "secret:{id}"];
    let server = server(&[], &templates);
    let config = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s], resources: {s: [\"file:///docs/public/*\", \"note:1\", \"other:*\"]}},\n\
         \x20 deny: {resources: {s: [\"secret:*\"]}}}}\n";
    let gate = gate(config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let shown = client.entries("resources/templates/list").await;
    assert_eq!(shown, ["file:///docs/{+path}", "note:{id}"]);
    for (uri, allowed) in [
        ("file:///docs/public/a", true),
        ("file:///docs/private/a", false),
        ("note:1", true),
        ("note:2", false),
        ("secret:x", false),
    ] {
        assert_eq!(read(&client, uri).await["result"].is_object(), allowed, "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_of_known_resources_do_not_list_again() {
    let server = server(&["note:1"], &["dir:{name}"]);
    let gate = gate(&whole(""), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        read(&client, "note:1").await;
        let lists = || server.received("resources/list").len();
        let before = lists();
        for uri in ["note:1", "dir:a", "note:1"] {
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            assert!(read(&client, uri).await["result"].is_object());
        }
        assert_eq!(lists(), before, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_readers_could_read_differently_is_not_passed_on() {
    for (result, expected) in [
        (r#"{"contents":{"uri":"note:secret","text":"x"}}"#, Value::Null),
        (r#"{"other":[]}"#, Value::Null),
        (r#"{"contents":[],"Contents":[{"uri":"note:secret","text":"x"}]}"#, Value::Null),
        (
            r#"{"contents":[{"uri":"note:2","uri":"note:secret"},{"uri":"note:2","text":"y"}]}"#,
            json!([{"uri": "note:2", "text": "y"}]),
        ),
        (
            r#"{"contents":[{"uri":"note:2","URI":"note:secret"},{"uri":"note:2","text":"y"}]}"#,
            json!([{"uri": "note:2", "text": "y"}]),
        ),
    ] {
        let server = server(&["note:1"], &[]);
        server.on("resources/read", move |request| {
            let id = &request["id"];
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
            vec![Step::Bytes(line.into_bytes())]
        });
        let gate = gate(&whole("deny: {resources: {s: [\"note:secret\"]}}"), &server).start();
        let client = gate.client(Kind::StdioLegacy).await;
        let answer = read(&client, "note:1").await;
        assert_eq!(answer["result"]["contents"], expected, "{result}: {answer}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_suggests_no_directory_in_which_everything_is_denied() {
    let server = server(&[], &["doc://{dir}/{name}"]);
    server.on("completion/complete", |request| {
        let completion = json!({"values": ["open", "secret"]});
        vec![Step::Result(request["id"].clone(), json!({ "completion": completion }))]
    });
    let gate = gate(&whole("deny: {resources: {s: [\"doc://secret/*\"]}}"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let reference = json!({"type": "ref/resource", "uri": "doc://{dir}/{name}"});
    let argument = json!({"name": "dir", "value": ""});
    let params = json!({"ref": reference, "argument": argument});
    let answer = client.request("completion/complete", params).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["open"]), "{answer}");
    // A template that is not listed is unknown, whether it is hidden or does not exist.
    for template in ["other://{x}", "doc://{a}/{b}/{c}"] {
        let reference = json!({"type": "ref/resource", "uri": template});
        let params = json!({"ref": reference, "argument": argument});
        let answer = client.request("completion/complete", params).await;
        assert!(answer["error"]["code"].is_number(), "{template}: {answer}");
    }
}
