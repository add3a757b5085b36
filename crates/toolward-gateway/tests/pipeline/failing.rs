//! A server that fails at each point of a call.

use std::time::Duration;

use serde_json::{Value, json};

use super::kit::*;

/// The response to a call, its record of the given kind, and the number of calls that the server got.
async fn failed(server: &Server, kind: Kind) -> (Value, Gate) {
    let gate = gate(&config("result_bytes: 1KiB", "echo"), server).start();
    let answer = gate.client(kind).await.call("echo").await;
    (answer, gate)
}

/// A call that could not be decided, because the server's list is not known.
async fn is_unavailable(server: &Server) {
    for kind in [Kind::StdioLegacy, Kind::HttpModern] {
        let (answer, gate) = failed(server, kind).await;
        assert_eq!(data(&answer)["error"], "server_unavailable", "{kind:?}: {answer}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        assert_eq!(gate.record("unavailable").await["outcome"], "server-unavailable");
        assert!(gate.records_of("intent").await.is_empty());
    }
}

/// A call that was forwarded and failed.
async fn fails_with(server: &Server, error: &str, outcome: &str) {
    for kind in Kind::ALL {
        let (answer, gate) = failed(server, kind).await;
        assert_eq!(data(&answer)["error"], error, "{kind:?}: {answer}");
        assert_eq!(gate.outcomes().await, [outcome], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_start_is_unavailable() {
    let server = Server::both(&["echo"]);
    server.set_unstartable(true);
    is_unavailable(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_the_handshake_is_unavailable() {
    let server = Server::both(&["echo"]);
    server.on("initialize", |_| vec![]).on("server/discover", |_| vec![]);
    is_unavailable(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_during_the_handshake_is_unavailable() {
    let server = Server::both(&["echo"]);
    server.on("initialize", |_| vec![Step::Close]).on("server/discover", |_| vec![Step::Close]);
    is_unavailable(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_handshake_is_unavailable() {
    let server = Server::both(&["echo"]);
    let no = |call: &Value| vec![Step::Error(call["id"].clone(), -32000, "not you")];
    server.on("initialize", no).on("server/discover", no);
    is_unavailable(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_lists_is_unavailable() {
    let server = Server::both(&["echo"]);
    server.on("tools/list", |_| vec![]);
    is_unavailable(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_list_is_malformed_is_unavailable() {
    let server = Server::both(&["echo"]);
    server.on("tools/list", |call| vec![Step::Result(call["id"].clone(), json!({"tools": 5}))]);
    is_unavailable(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_once_is_used_again() {
    let server = Server::legacy(&["echo"]);
    server.set_unstartable(true);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert!(client.call("echo").await["error"].is_object());
    server.set_unstartable(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(client.call("echo").await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_when_it_gets_the_call_may_have_done_it() {
    let server = Server::both(&["echo"]);
    server.on("tools/call", |_| vec![Step::Close]);
    fails_with(&server, "server_disconnected", "server-gone").await;
    let (answer, _) = failed(&server, Kind::StdioLegacy).await;
    assert_eq!(data(&answer)["may_have_effects"], true);
    assert_eq!(data(&answer)["retryable"], false);
}

#[tokio::test(start_paused = true)]
async fn half_a_response_is_a_failure() {
    let server = Server::both(&["echo"]);
    server.on("tools/call", |call| {
        let half = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"con"#, call["id"]);
        vec![Step::Bytes(half.into_bytes()), Step::Close]
    });
    fails_with(&server, "server_disconnected", "server-gone").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_two_pieces_is_whole() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let begin = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"con"#, call["id"]);
        let end = b"tent\":[]}}\n".to_vec();
        vec![Step::Bytes(begin.into()), Step::Wait(Duration::from_secs(1)), Step::Bytes(end)]
    });
    let (answer, gate) = failed(&server, Kind::StdioLegacy).await;
    assert_eq!(answer["result"]["content"], json!([]), "{answer}");
    assert_eq!(gate.outcomes().await, ["ok"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_valid_json_is_a_bad_answer() {
    let server = Server::both(&["echo"]);
    server.on("tools/call", |call| {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":nonsense}}\n", call["id"]);
        vec![Step::Bytes(line.into_bytes())]
    });
    fails_with(&server, "bad_answer", "bad-answer").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_another_id_answers_nothing() {
    let server = Server::both(&["echo"]);
    server.on("tools/call", |call| {
        let other = call["id"].as_u64().unwrap() + 1;
        vec![Step::Result(json!(other), json!({"content": []}))]
    });
    fails_with(&server, "server_timeout", "timed-out").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_one_call_never_answers_another() {
    let server = Server::modern(&["echo"]);
    server.on("tools/call", |call| {
        let say = call["params"]["arguments"]["say"].clone();
        let wait = Duration::from_secs(if say == "first" { 5 } else { 1 });
        let result = json!({"content": [{"type": "text", "text": say}], "resultType": "complete"});
        vec![Step::Wait(wait), Step::Result(call["id"].clone(), result)]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioModern).await;
    let first = client.begin_call("echo", json!({"say": "first"}));
    let second = client.begin_call("echo", json!({"say": "second"}));
    assert_eq!(text(&second.answer().await), "second");
    assert_eq!(text(&first.answer().await), "first");
}

#[tokio::test(start_paused = true)]
async fn a_second_answer_is_ignored() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let result = |text| json!({"content": [{"type": "text", "text": text}]});
        let id = || call["id"].clone();
        vec![Step::Result(id(), result("one")), Step::Result(id(), result("two"))]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for _ in 0..2 {
        assert_eq!(text(&client.call("echo").await), "one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_above_the_size_limit_does_not_pass() {
    let server = Server::both(&["echo"]);
    server.on("tools/call", |call| {
        let text = "x".repeat(2000);
        vec![Step::Result(call["id"].clone(), json!({"content": [{"type": "text", "text": text}]}))]
    });
    fails_with(&server, "result_too_large", "too-large").await;
    let (answer, _) = failed(&server, Kind::StdioModern).await;
    assert!(!answer.to_string().contains("xxxx"), "nothing of it is shown");
}

#[tokio::test(start_paused = true)]
async fn a_line_above_every_limit_fails_its_call_and_not_the_next() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let huge = call["params"]["arguments"]["huge"] == true;
        let text = "x".repeat(if huge { 3 << 20 } else { 10 });
        vec![Step::Result(call["id"].clone(), json!({"content": [{"type": "text", "text": text}]}))]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let large = client.call_with("echo", json!({"huge": true})).await;
    assert_eq!(data(&large)["error"], "result_too_large", "{large}");
    assert_eq!(text(&client.call("echo").await), "xxxxxxxxxx");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_answers_all_its_calls_and_starts_again() {
    let server = Server::modern(&["echo"]);
    server.on("tools/call", |call| match call["params"]["arguments"]["end"] == true {
        true => vec![Step::Close],
        false => vec![Step::Hold],
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioModern).await;
    let waiting = client.begin_call("echo", json!({}));
    server.arrival("tools/call").await;
    let ending = client.begin_call("echo", json!({"end": true}));
    assert_eq!(data(&waiting.answer().await)["error"], "server_disconnected");
    assert_eq!(data(&ending.answer().await)["error"], "server_disconnected");
    server.forget("tools/call");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(client.call("echo").await["result"].is_object());
    assert_eq!(server.connections(), 2);
    assert_eq!(server.received("tools/call").len(), 3, "nothing is sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_just_ended_is_not_started_at_once() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |_| vec![Step::Close]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    let next = client.call("echo").await;
    assert_eq!(data(&next)["error"], "server_unavailable", "{next}");
    assert_eq!(data(&next)["retryable"], true);
    assert_eq!(server.connections(), 1);
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lines_that_are_no_messages_are_skipped() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let noise = b"starting up...\n\n{}\n[1]\nnull\n".to_vec();
        vec![Step::Bytes(noise), Step::Result(call["id"].clone(), json!({"content": []}))]
    });
    let (answer, _) = failed(&server, Kind::StdioLegacy).await;
    assert!(answer["result"].is_object(), "{answer}");
}
