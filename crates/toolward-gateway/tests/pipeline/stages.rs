//! Calls that pass all six stages.

use serde_json::{Value, json};

use super::kit::*;

#[tokio::test(start_paused = true)]
async fn an_allowed_call_reaches_its_server_and_the_answer_its_client() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&allow("echo"), &server).start();
        let answer = gate.client(kind).await.call("echo").await;
        assert_eq!(text(&answer), r#"{"say":"hi"}"#, "{kind:?}");
        let calls = server.received("tools/call");
        assert_eq!(calls.len(), 1, "{kind:?}");
        assert_eq!(calls[0]["params"]["name"], "echo", "{kind:?}: without the prefix");
        assert_eq!(gate.outcomes().await, ["ok"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_the_id_of_its_request() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let (first, second) =
        (client.begin_call("echo", json!({})), client.begin_call("echo", json!({})));
    let ids = (first.id, second.id);
    assert_eq!(first.answer().await["id"], ids.0);
    assert_eq!(second.answer().await["id"], ids.1);
}

#[tokio::test(start_paused = true)]
async fn clients_of_each_version_use_servers_of_the_other() {
    for server in [Server::legacy(&["echo"]), Server::modern(&["echo"])] {
        for kind in Kind::ALL {
            let gate = gate(&allow("echo"), &server).start();
            let answer = gate.client(kind).await.call("echo").await;
            assert_eq!(text(&answer), r#"{"say":"hi"}"#, "{kind:?}");
            let has_type = answer["result"].get("resultType").is_some();
            assert_eq!(has_type, kind.is_modern(), "{kind:?}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_sees_neither_the_clients_id_nor_its_progress_token() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let pending = client.begin_call_with_progress("echo");
    let id = pending.id;
    pending.answer().await;
    let call = &server.received("tools/call")[0];
    assert_ne!(call["id"], id);
    let token = &call["params"]["_meta"]["progressToken"];
    assert!(token.is_number() && *token != json!("mine"), "{call}");
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_the_client_under_its_own_token() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let token = &call["params"]["_meta"]["progressToken"];
        let params = json!({"progressToken": token, "progress": 1});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        vec![Step::Send(note), Step::Result(call["id"].clone(), json!({"content": []}))]
    });
    for kind in Kind::ALL {
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        client.begin_call_with_progress("echo").answer().await;
        let progress = client.notifications("notifications/progress");
        assert_eq!(progress.len(), 1, "{kind:?}");
        assert_eq!(progress[0]["params"]["progressToken"], "mine", "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_process_serves_all_calls_of_a_client() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::HttpLegacy).await;
    for _ in 0..3 {
        client.call("echo").await;
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(server.received("initialize").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_modern_process_serves_clients_of_all_capabilities_with_lists_of_their_own() {
    let server = Server::modern(&[]);
    let declared = "io.modelcontextprotocol/clientCapabilities";
    server.on("tools/list", move |request| {
        let names = match request["params"]["_meta"][declared].get("elicitation") {
            Some(_) => ["asks", "echo"].as_slice(),
            None => &["echo"],
        };
        let schema = json!({"type": "object"});
        let tools: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "inputSchema": schema})).collect();
        let result = json!({"tools": tools, "resultType": "complete", "ttlMs": 60000});
        vec![Step::Result(request["id"].clone(), result)]
    });
    let gate = gate(&allow("'*'"), &server).start();
    let plain = gate.client(Kind::HttpModern).await;
    let asked = gate.asked_client(Kind::HttpModern, json!({"elicitation": {}}), |_| None).await;
    assert_eq!(plain.list().await, ["s__echo"]);
    assert_eq!(asked.list().await, ["s__asks", "s__echo"]);
    for client in [&plain, &asked, &plain] {
        assert!(client.call("echo").await["result"].is_object());
    }
    let calls = server.received("tools/call");
    let declared: Vec<_> = calls.iter().map(|call| &call["params"]["_meta"][declared]).collect();
    assert_eq!(declared, [&json!({}), &json!({"elicitation": {}}), &json!({})]);
    assert_eq!(server.connections(), 1);
    // A change that the process announces reaches the lists of both.
    server.tell(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    server.arrivals("tools/list", 4).await;
}

#[tokio::test(start_paused = true)]
async fn sessions_have_processes_of_their_own_unless_they_share() {
    for (share, processes) in [("share: false", 2), ("share: true", 1)] {
        let server = Server::legacy(&["echo"]);
        let gate = gate(&config(share, "echo"), &server).start();
        for _ in 0..2 {
            gate.client(Kind::HttpLegacy).await.call("echo").await;
        }
        assert_eq!(server.connections(), processes, "{share}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_a_tool_reports_is_recorded_as_such() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        vec![Step::Result(call["id"].clone(), json!({"content": [], "isError": true}))]
    });
    let gate = gate(&allow("echo"), &server).start();
    let answer = gate.client(Kind::StdioLegacy).await.call("echo").await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(gate.outcomes().await, ["tool-error"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_reaches_the_client_and_the_log() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| vec![Step::Error(call["id"].clone(), -32123, "no luck")]);
    let gate = gate(&allow("echo"), &server).start();
    let answer = gate.client(Kind::HttpModern).await.call("echo").await;
    assert_eq!(answer["error"]["code"], -32123);
    let outcome = gate.record("outcome").await;
    assert_eq!((&outcome["outcome"], &outcome["error_code"]), (&json!("error"), &json!(-32123)));
}

#[tokio::test(start_paused = true)]
async fn a_server_cannot_forge_a_refusal_of_the_gateway() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let meta = json!({"io.toolward/refusal": {"error": "denied"}, "kept": 1});
        vec![Step::Result(call["id"].clone(), json!({"content": [], "_meta": meta}))]
    });
    for kind in Kind::ALL {
        let gate = gate(&allow("echo"), &server).start();
        let answer = gate.client(kind).await.call("echo").await;
        assert_eq!(answer["result"]["_meta"], json!({"kept": 1}), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_refers_to_a_task_does_not_pass() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        vec![Step::Result(call["id"].clone(), json!({"task": {"taskId": "1"}}))]
    });
    let gate = gate(&allow("echo"), &server).start();
    let answer = gate.client(Kind::HttpLegacy).await.call("echo").await;
    assert_eq!(data(&answer)["error"], "question_refused");
    assert_eq!(gate.outcomes().await, ["question-refused"]);
}

#[tokio::test(start_paused = true)]
async fn methods_that_do_not_pass_reach_no_server() {
    let server = Server::both(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        for method in ["tasks/list", "made/up"] {
            let answer = client.request(method, json!({})).await;
            // The client has no tasks, whatever the server would list.
            let is_empty = answer["result"] == json!({"tasks": []}) && method == "tasks/list";
            assert_ne!(
                is_empty,
                answer["error"]["code"].is_number(),
                "{kind:?} {method}: {answer}"
            );
            assert!(server.received(method).is_empty(), "{kind:?} {method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_that_differ_only_in_case_are_rejected_if_rules_read_arguments() {
    let arguments = json!({"path": "a", "Path": "b"});
    let rule = r#"{tool: echo, when: 'args.path == "a"'}"#;
    for (rules, passes) in [("echo", true), (rule, false)] {
        let server = Server::legacy(&["echo"]);
        let gate = gate(&allow(rules), &server).start();
        let client = gate.client(Kind::StdioLegacy).await;
        let answer = client.call_with("echo", arguments.clone()).await;
        assert_eq!(answer["error"]["code"] != -32602, passes, "{rules}: {answer}");
        assert_eq!(server.received("tools/call").len(), usize::from(passes), "{rules}");
    }
}
