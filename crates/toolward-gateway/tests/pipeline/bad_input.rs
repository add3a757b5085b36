//! Hostile and malformed input around resources, completions and questions: a clear error, nothing forwarded that was not
//! decided, nothing lost for others.

use serde_json::{Value, json};

use crate::kit::{Client, Kind, Server, Step, data, gate};

fn whole(more: &str) -> String {
    format!(
        "servers: {{s: {{command: x}}}}\nagents: {{dev: {{allow: {{servers: [s]}}, {more}}}}}\n"
    )
}

async fn read(client: &Client, uri: &str) -> Value {
    client.request("resources/read", json!({ "uri": uri })).await
}

#[tokio::test(start_paused = true)]
async fn a_hidden_resource_is_reached_neither_by_a_link_nor_by_a_template() {
    let server = Server::both(&["echo"]);
    server.set_resources(&["note:1", "note:secret"]).set_templates(&["note:{id}", "note:{+any}"]);
    server.on("tools/call", |request| {
        let link = json!({"type": "resource_link", "uri": "note:secret", "name": "x"});
        let embedded = json!({"type": "resource", "resource": {"uri": "note:secret", "text": "x"}});
        let result = json!({"resultType": "complete", "content": [link, embedded]});
        vec![Step::Result(request["id"].clone(), result)]
    });
    let gate = gate(&whole("deny: {resources: {s: ['note:secret']}}"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        client.call("echo").await;
        for uri in ["note:secret", "NOTE:secret", "note:%73ecret", "note:secre%74", "note:%53ecret"]
        {
            let answer = read(&client, uri).await;
            // Another letter case of the rest is another resource, which the server may have.
            let is_other = uri.contains("%53");
            assert_eq!(answer["result"].is_object(), is_other, "{kind:?} {uri} {answer}");
        }
        assert!(read(&client, "note:1").await["result"].is_object());
    }
    let received = server.received("resources/read");
    assert!(received.iter().all(|one| {
        let uri = one["params"]["uri"].as_str().unwrap();
        uri == "note:1" || uri == "note:%53ecret"
    }));
}

#[tokio::test(start_paused = true)]
async fn unknown_schemes_and_huge_uris_are_not_found_or_forwarded_as_they_are() {
    let [first, second] = [Server::both(&["echo"]), Server::both(&["echo"])];
    first.set_resources(&["note:1"]);
    second.set_resources(&["memo:1"]);
    let rules = "servers: {s: {command: x}, t: {command: x}}\n\
         agents: {dev: {allow: {servers: ['*']}}}\n";
    let gate = gate(rules, &first).server("t", &second).start();
    let long = format!("note:{}", "x".repeat(64 << 10));
    let unknown = format!("made-up:{}", "x".repeat(64 << 10));
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let code = if kind.is_modern() { -32602 } else { -32002 };
        for uri in ["made-up:1", "x", "://", "note", "javascript:alert(1)"] {
            let answer = read(&client, uri).await;
            assert!(answer["error"]["code"].is_number(), "{kind:?} {uri} {answer}");
        }
        assert_eq!(read(&client, "made-up:1").await["error"]["code"], code, "{kind:?}");
        // A modern client over HTTP would have to repeat it in a header, which is too long to be read.
        if kind != Kind::HttpModern {
            assert_eq!(read(&client, &unknown).await["error"]["code"], code, "{kind:?}");
            assert_eq!(read(&client, &long).await["result"]["contents"][0]["uri"], long);
        }
        assert!(read(&client, "memo:1").await["result"].is_object(), "{kind:?}");
    }
    let is_known =
        |one: &Value| one["params"]["uri"] == json!(long) || one["params"]["uri"] == "memo:1";
    let received = [first.received("resources/read"), second.received("resources/read")].concat();
    assert!(received.iter().all(is_known));
}

#[tokio::test(start_paused = true)]
async fn hostile_templates_own_nothing_and_hurt_no_others() {
    let server = Server::both(&["echo"]);
    let deep = "note:".to_string() + &"{a}".repeat(5000);
    let hostile = ["{+any}", "{scheme}:x", "note:{", "note:}", "note:{}", "note:{a{b}}", &deep];
    let templates = [&hostile[..], &["good:{id}"]].concat();
    server.set_resources(&["good:1"]).set_templates(&templates);
    let gate = gate(&whole("deny: {resources: {s: ['note:*', 'other:*']}}"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        assert!(
            client.entries("resources/templates/list").await.contains(&"good:{id}".to_string())
        );
        assert!(read(&client, "good:7").await["result"].is_object(), "{kind:?}");
        let attack = "note:".to_string() + &"a".repeat(5000);
        for uri in ["note:1", "other:1", &attack] {
            assert!(read(&client, uri).await["error"].is_object(), "{kind:?} {uri:.20}");
        }
    }
    let received = server.received("resources/read");
    assert!(received.iter().all(|one| one["params"]["uri"] == "good:7"), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_subscriptions_are_cut_and_others_are_served() {
    let server = Server::both(&["echo"]);
    server.set_resources(&["note:1"]).set_templates(&["note:{id}"]);
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::StdioModern).await;
    let uris: Vec<String> = (0..10_000).map(|number| format!("note:{number}")).collect();
    let filter = json!({"notifications": {"resourceSubscriptions": uris}});
    drop(client.begin("subscriptions/listen", filter));
    let other = gate.client(Kind::HttpModern).await;
    assert!(read(&other, "note:1").await["result"].is_object());
    let listened = server.arrival("subscriptions/listen").await;
    let wanted = &listened["params"]["notifications"]["resourceSubscriptions"];
    assert!(wanted.as_array().is_some_and(|all| all.len() <= 2000));
    let acknowledged = "notifications/subscriptions/acknowledged";
    while client.notifications(acknowledged).is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let accepted = &client.notifications(acknowledged)[0]["params"]["notifications"];
    assert_eq!(accepted["resourceSubscriptions"].as_array().map(Vec::len), Some(2000));
}

#[tokio::test(start_paused = true)]
async fn malformed_filters_and_parameters_are_rejected() {
    let server = Server::both(&["echo"]);
    server.set_resources(&["note:1"]);
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    for params in [json!({}), json!({"notifications": []}), json!({"notifications": "x"})] {
        let answer = client.request("subscriptions/listen", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let legacy = gate.client(Kind::HttpLegacy).await;
    for (method, params) in [
        ("resources/read", json!({"uri": 7})),
        ("resources/read", json!({})),
        ("resources/subscribe", json!({"uri": ["note:1"]})),
        ("completion/complete", json!({"ref": "x"})),
        ("completion/complete", json!({"ref": {"type": "ref/resource", "uri": {}}})),
        ("tasks/get", json!({"taskId": 7})),
        ("tasks/get", json!({})),
    ] {
        let answer = legacy.request(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{method} {params} {answer}");
        assert!(server.received(method).is_empty(), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_sampling_it_may_not_gets_nothing() {
    let params = json!({"messages": [], "maxTokens": 1});
    for server in [Server::legacy(&["drop"]), Server::modern(&["drop"])] {
        let asked = params.clone();
        server.on("tools/call", move |request| {
            let method = "sampling/createMessage";
            let meta = "io.modelcontextprotocol/protocolVersion";
            if request["params"]["_meta"].get(meta).is_none() {
                let ask = json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": asked});
                return vec![Step::Send(ask)];
            }
            let entry = json!({"method": method, "params": asked});
            let result = json!({"resultType": "input_required", "inputRequests": {"k": entry}});
            vec![Step::Result(request["id"].clone(), result)]
        });
        // The client could sample; the policy's default does not allow it.
        let gate = gate(&whole(""), &server).start();
        for kind in Kind::ALL {
            let sampled = |_: &Value| Some(json!({"role": "assistant", "model": "m"}));
            let client = gate.asked_client(kind, json!({"sampling": {}}), sampled).await;
            let answer = client.call("drop").await;
            assert_eq!(data(&answer)["error"], "question_refused", "{kind:?} {answer}");
            assert!(client.notifications("sampling/createMessage").is_empty(), "{kind:?}");
        }
        assert!(server.responses().iter().all(|one| one.get("result").is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_of_a_wrong_shape_reach_no_server() {
    let server = Server::modern(&["drop"]);
    server.on("tools/call", |request| {
        let params = json!({"message": "?", "requestedSchema": {"type": "object"}});
        let entry = json!({"method": "elicitation/create", "params": params});
        let result = json!({"resultType": "input_required", "inputRequests": {"k": entry}});
        vec![Step::Result(request["id"].clone(), result)]
    });
    let gate = gate(&whole(""), &server).start();
    let client = gate.asked_client(Kind::HttpModern, json!({"elicitation": {}}), |_| None).await;
    let answer = client.call_with("drop", json!({})).await;
    let state = answer["result"]["requestState"].clone();
    for (state, responses) in [
        (state.clone(), json!([])),
        (state.clone(), json!("x")),
        (json!(7), json!({"k": {"action": "accept"}})),
        (json!({}), json!({"k": {"action": "accept"}})),
        (json!("x".repeat(100 << 10)), json!({"k": {"action": "accept"}})),
    ] {
        let params = json!({
            "name": "s__drop", "arguments": {}, "requestState": state, "inputResponses": responses,
        });
        let answer = client.request("tools/call", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn responses_to_nothing_reach_a_server_only_if_every_question_would_reach_the_client() {
    let echo = |request: &Value| {
        let responses = request["params"].get("inputResponses").unwrap_or(&Value::Null).to_string();
        let result =
            json!({"resultType": "complete", "content": [{"type": "text", "text": responses}]});
        vec![Step::Result(request["id"].clone(), result)]
    };
    let all = json!({"k": {"action": "accept"}, "io.toolward/approval": {"x": 1}, "n": 7});
    for (requests, expected) in
        [("['*']", r#"{"k":{"action":"accept"}}"#), ("[elicitation]", "null")]
    {
        let server = Server::both(&["drop"]);
        server.on("tools/call", echo);
        let rules = format!(
            "servers: {{s: {{command: x}}}}\n\
             agents: {{dev: {{allow: {{servers: [s], client_requests: {requests}}}}}}}\n"
        );
        let gate = gate(&rules, &server).start();
        for kind in [Kind::StdioModern, Kind::HttpModern] {
            let client = gate.client(kind).await;
            let params = json!({"name": "s__drop", "arguments": {}, "inputResponses": all});
            let answer = client.request("tools/call", params).await;
            assert_eq!(crate::kit::text(&answer), expected, "{kind:?} {requests}");
        }
    }
    // A legacy server cannot have asked.
    let server = Server::legacy(&["drop"]);
    server.on("tools/call", echo);
    let rules = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s], client_requests: ['*']}}}\n";
    let gate = gate(rules, &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let params = json!({"name": "s__drop", "arguments": {}, "inputResponses": all});
    assert_eq!(crate::kit::text(&client.request("tools/call", params).await), "null");
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_names_two_methods_is_declined() {
    let server = Server::modern(&["drop"]);
    server.on("tools/call", |request| {
        let entry = r#"{"method":"elicitation/create","method":"sampling/createMessage",
            "params":{"message":"?","requestedSchema":{}}}"#;
        let id = &request["id"];
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"input_required\",\
             \"inputRequests\":{{\"k\":{}}}}}}}\n",
            entry.replace('\n', "")
        );
        vec![Step::Bytes(line.into_bytes())]
    });
    let gate = gate(&whole(""), &server).start();
    let capabilities = json!({"elicitation": {}, "sampling": {}});
    let client = gate.asked_client(Kind::StdioModern, capabilities, |_| None).await;
    let answer = client.call("drop").await;
    assert!(
        matches!(data(&answer)["error"].as_str(), Some("question_refused" | "bad_answer")),
        "{answer}"
    );
}
