//! Prompts and completion.

use serde_json::{Value, json};

use crate::kit::{Kind, Server, Step, data, gate};

/// The agent may use the whole server, except as restricted by `more`.
fn whole(more: &str) -> String {
    format!(
        "servers: {{s: {{command: x}}}}\nagents: {{dev: {{allow: {{servers: [s]}}, {more}}}}}\n"
    )
}

fn prompts(names: &[&str]) -> [Server; 2] {
    [Server::legacy(&["echo"]), Server::modern(&["echo"])].map(|server| {
        server.set_prompts(names);
        server
    })
}

#[tokio::test(start_paused = true)]
async fn prompts_are_listed_and_named_like_tools() {
    for server in prompts(&["review", "plan"]) {
        let gate = gate(&whole(""), &server).start();
        for kind in Kind::ALL {
            let client = gate.client(kind).await;
            assert_eq!(client.entries("prompts/list").await, ["s__review", "s__plan"], "{kind:?}");
            let arguments = json!({"name": "s__plan", "arguments": {"topic": "x"}});
            let answer = client.request("prompts/get", arguments).await;
            let said = answer["result"]["messages"][0]["content"]["text"].as_str().unwrap();
            let sent: Value = serde_json::from_str(said).unwrap();
            assert_eq!(
                (&sent["name"], &sent["arguments"]),
                (&json!("plan"), &json!({"topic": "x"}))
            );
            let modern = answer["result"].get("resultType").is_some();
            assert_eq!(modern, kind.is_modern(), "{kind:?} {answer}");
        }
        let records = gate.records_of("intent").await;
        assert_eq!(records.len(), 4);
        assert_eq!(records[0]["method"], "prompts/get");
        assert_eq!((&records[0]["server"], &records[0]["prompt"]), (&json!("s"), &json!("plan")));
        assert!(records[0].get("tool").is_none());
        assert_eq!(gate.outcomes().await, ["ok"; 4]);
        assert_eq!(gate.records_of("list").await[0]["method"], "prompts/list");
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_and_nonexistent_prompts_get_the_same_refusal() {
    for server in prompts(&["review", "secret"]) {
        let gate = gate(&whole("deny: {prompts: {s: [secret]}}"), &server).start();
        for kind in Kind::ALL {
            let client = gate.client(kind).await;
            assert_eq!(client.entries("prompts/list").await, ["s__review"], "{kind:?}");
            let mut refusals = Vec::new();
            for name in ["s__secret", "s__absent"] {
                let mut answer = client.request("prompts/get", json!({"name": name})).await;
                assert_eq!(answer["error"]["code"], -32602, "{kind:?} {answer}");
                let message = format!("{name} is not permitted. Allowed: s__review");
                assert_eq!(answer["error"]["message"], message);
                assert_eq!(data(&answer)["error"], "prompt_not_allowed");
                assert!(data(&answer).get("allowed_tools").is_none());
                answer["error"]["data"]["decision_id"].take();
                answer["id"].take();
                refusals.push(answer.to_string().replace(name, "NAME"));
            }
            assert_eq!(refusals[0], refusals[1]);
            assert!(server.received("prompts/get").is_empty());
        }
        let records = gate.records_of("refusal").await;
        assert_eq!(records[0]["step"], "1-exact-deny");
        assert_eq!(records[0]["prompt"], "secret");
        assert_eq!(records[1]["step"], "no-such-tool");
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_read_the_arguments_of_a_prompt() {
    let rule =
        r#"allow: {servers: [s], prompts: {s: [{prompt: review, when: 'args.repo == "ours"'}]}}"#;
    let config = format!("servers: {{s: {{command: x}}}}\nagents: {{dev: {{{rule}}}}}\n");
    let server = Server::legacy(&["echo"]);
    server.set_prompts(&["review"]);
    let gate = gate(&config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let get = |repo: &str| json!({"name": "s__review", "arguments": {"repo": repo}});
    assert!(client.request("prompts/get", get("ours")).await["result"].is_object());
    let refused = client.request("prompts/get", get("theirs")).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("s__review is not permitted with these arguments"), "{message}");
    assert_eq!(server.received("prompts/get").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn narrowed_tools_hide_prompts_that_no_rule_names() {
    let server = Server::legacy(&["echo"]);
    server.set_prompts(&["review"]);
    let narrow = |prompts: &str| {
        format!(
            "servers: {{s: {{command: x}}}}\n\
             agents: {{dev: {{allow: {{servers: [s], tools: {{s: [echo]}}{prompts}}}}}}}\n"
        )
    };
    let gate = gate(&narrow(""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert!(client.entries("prompts/list").await.is_empty());
    gate.reload(&narrow(", prompts: {s: [\"rev*\"]}"));
    assert_eq!(client.entries("prompts/list").await, ["s__review"]);
}

#[tokio::test(start_paused = true)]
async fn exposed_prompts_have_their_display_names_and_others_do_not_exist() {
    let server = Server::both(&["echo"]);
    server.set_prompts(&["internal_review", "plan", "secret"]);
    let config = "servers: {s: {command: x, expose_prompts: [plan, \
         {prompt: internal_review, display_name: review, display_description: Review it}]}}\n\
         agents: {dev: {allow: {servers: [s]}}}\n";
    let gate = gate(config, &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let list = client.request("prompts/list", json!({})).await;
        let prompts = &list["result"]["prompts"];
        assert_eq!(prompts.as_array().unwrap().len(), 2, "{kind:?} {list}");
        assert_eq!(prompts[0]["name"], "s__review");
        assert_eq!(prompts[0]["description"], "Review it");
        assert_eq!(prompts[1]["name"], "s__plan");
        assert!(
            client.request("prompts/get", json!({"name": "s__review"})).await["error"].is_null()
        );
        for hidden in ["s__internal_review", "s__secret"] {
            let refused = client.request("prompts/get", json!({"name": hidden})).await;
            assert_eq!(refused["error"]["code"], -32602, "{kind:?} {refused}");
        }
    }
    let received = server.received("prompts/get");
    assert_eq!(received.len(), 4);
    assert!(received.iter().all(|one| one["params"]["name"] == "internal_review"));
    let refusals = gate.records_of("refusal").await;
    assert_eq!(
        (&refusals[1]["prompt"], &refusals[1]["step"]),
        (&json!("secret"), &json!("not-exposed"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_of_prompts_is_announced_by_its_kind() {
    let server = Server::legacy(&["echo"]);
    server.set_prompts(&["review"]);
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    client.entries("prompts/list").await;
    server.set_prompts(&["review", "plan"]);
    let changed = "notifications/prompts/list_changed";
    server.tell(json!({"jsonrpc": "2.0", "method": changed}));
    crate::kit::within_an_hour("an announcement", async {
        while client.notifications(changed).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(client.notifications("notifications/tools/list_changed").is_empty());
    assert_eq!(client.entries("prompts/list").await, ["s__review", "s__plan"]);
    // A removal by a reload is announced too.
    gate.reload(&whole("deny: {prompts: {s: [plan]}}"));
    crate::kit::within_an_hour("another announcement", async {
        while client.notifications(changed).len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn completion_follows_the_prompt_it_refers_to() {
    for server in prompts(&["review", "secret"]) {
        let gate = gate(&whole("deny: {prompts: {s: [secret]}}"), &server).start();
        for kind in Kind::ALL {
            let client = gate.client(kind).await;
            let complete = |name: &str| {
                let argument = json!({"name": "topic", "value": "o"});
                json!({"ref": {"type": "ref/prompt", "name": name}, "argument": argument})
            };
            let answer = client.request("completion/complete", complete("s__review")).await;
            assert_eq!(answer["result"]["completion"]["values"], json!(["one", "two"]), "{answer}");
            let refused = client.request("completion/complete", complete("s__secret")).await;
            assert_eq!(refused["error"]["code"], -32602, "{kind:?} {refused}");
        }
        let received = server.received("completion/complete");
        assert_eq!(received.len(), 4);
        assert!(received.iter().all(|one| one["params"]["ref"]["name"] == "review"));
    }
}

#[tokio::test(start_paused = true)]
async fn completion_of_a_prompt_that_needs_approval_is_empty_and_asks_no_one() {
    let rules = "allow: {servers: [s], prompts: {s: [{prompt: secret, ask: true}, review]}}";
    let config = format!("servers: {{s: {{command: x}}}}\nagents: {{dev: {{{rules}}}}}\n");
    for server in prompts(&["review", "secret"]) {
        let gate = gate(&config, &server).start();
        for kind in Kind::ALL {
            let client = gate.client(kind).await;
            let complete = |name: &str| {
                let argument = json!({"name": "topic", "value": "o"});
                json!({"ref": {"type": "ref/prompt", "name": name}, "argument": argument})
            };
            let answer = client.request("completion/complete", complete("s__review")).await;
            assert_eq!(answer["result"]["completion"]["values"], json!(["one", "two"]), "{answer}");
            let empty = client.request("completion/complete", complete("s__secret")).await;
            let none = json!({"values": [], "total": 0, "hasMore": false});
            assert_eq!(empty["result"]["completion"], none, "{kind:?} {empty}");
        }
        let received = server.received("completion/complete");
        assert!(received.iter().all(|one| one["params"]["ref"]["name"] == "review"));
        let asked = gate.records().await;
        let refused = asked.iter().filter(|record| record["kind"] == "refusal");
        assert_eq!(refused.count(), 4, "each is recorded");
        assert!(!asked.iter().any(|record| record["kind"] == "approval"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn capabilities_are_what_the_policy_can_allow() {
    let server = Server::legacy(&["echo"]);
    server.set_prompts(&["review"]);
    for (rules, expected) in [
        (
            "allow: {servers: [s]}",
            ["completions", "extensions", "logging", "prompts", "resources", "tools"].as_slice(),
        ),
        ("allow: {servers: [s], tools: {s: [echo]}}", &["extensions", "logging", "tools"]),
        (
            "allow: {servers: [s]}, deny: {prompts: {s: [\"*\"]}}",
            &["completions", "extensions", "logging", "resources", "tools"],
        ),
    ] {
        let config = format!("servers: {{s: {{command: x}}}}\nagents: {{dev: {{{rules}}}}}\n");
        let gate = gate(&config, &server).start();
        let client = gate.client(Kind::HttpModern).await;
        let answer = client.request("server/discover", json!({})).await;
        let mut names: Vec<&String> =
            answer["result"]["capabilities"].as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, expected, "{rules}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_during_a_prompt_is_answered() {
    let server = Server::modern(&["echo"]);
    server.set_prompts(&["review"]);
    server.on("prompts/get", |request| {
        let id = request["id"].clone();
        let params = &request["params"];
        let result = match params.get("inputResponses") {
            None => json!({
                "resultType": "input_required",
                "inputRequests": {"ask": {"method": "elicitation/create", "params": {
                    "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}
                }}},
            }),
            Some(given) => json!({
                "resultType": "complete",
                "messages": [{"role": "user", "content": {"type": "text", "text": given.to_string()}}],
            }),
        };
        vec![Step::Result(id, result)]
    });
    let gate = gate(&whole(""), &server).start();
    let accept = |_: &Value| Some(json!({"action": "accept", "content": {}}));
    let legacy = gate.asked_client(Kind::StdioLegacy, json!({"elicitation": {}}), accept).await;
    let answer = legacy.request("prompts/get", json!({"name": "s__review"})).await;
    let said = answer["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(said.contains("accept"), "{answer}");
}
