//! A client that cancels at each point where a call waits.

use std::time::Duration;

use serde_json::json;

use super::kit::*;

#[tokio::test(start_paused = true)]
async fn cancelled_while_the_server_starts() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let held = |_: &serde_json::Value| vec![Step::Hold];
        server.on("initialize", held).on("server/discover", held);
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        let first = if kind.is_modern() { "server/discover" } else { "initialize" };
        server.arrival(first).await;
        client.cancel(call).await;
        server.release();
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        assert!(gate.records_of("intent").await.is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_the_list_is_awaited() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/list", |call| {
            let tools = json!([{"name": "echo", "inputSchema": {"type": "object"}}]);
            vec![Step::Hold, Step::Result(call["id"].clone(), json!({"tools": tools}))]
        });
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        server.arrival("tools/list").await;
        client.cancel(call).await;
        server.release();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        assert!(gate.records_of("intent").await.is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_the_refusal_is_delayed() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo", "secret"]);
        let gate = gate(&(allow("echo") + "limits: {refused: 1/h}\n"), &server).start();
        let client = gate.client(kind).await;
        client.call("secret").await;
        let call = client.begin_call("secret", json!({}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.cancel(call).await;
        assert_eq!(gate.records_of("refusal").await.len(), 2, "{kind:?}: it is recorded");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_a_hook_decides() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate =
            gate(&(allow("echo") + "limits: {calls: 1/h}\n"), &server).hook("sleep 60").start();
        let client = gate.client(kind).await;
        client.list().await;
        let frozen = freeze();
        let call = client.begin_call("echo", json!({}));
        // The call is with its hook once everything that is ready has run.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        drop(frozen);
        client.cancel(call).await;
        let left = gate.record("refusal").await;
        assert_eq!((&left["step"], &left["outcome"]), (&json!("left"), &json!("aborted")));
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_the_server_works() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/call", |_| vec![]);
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        let received = server.arrival("tools/call").await;
        client.cancel(call).await;
        let cancelled = server.arrival("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], received["id"], "{kind:?}");
        // A stateless request ends with its connection.
        let outcome = if kind == Kind::HttpModern { "aborted" } else { "cancelled" };
        assert_eq!(gate.outcomes().await, [outcome], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_progress_arrives() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let params =
            json!({"progressToken": call["params"]["_meta"]["progressToken"], "progress": 1});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        vec![Step::Send(note.clone()), Step::Wait(Duration::from_secs(5)), Step::Send(note)]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call_with_progress("echo");
    server.arrival("tools/call").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.cancel(call).await;
    assert_eq!(client.notifications("notifications/progress").len(), 1, "none after the end");
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_cancellation_reaches_the_server() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |_| vec![]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::HttpLegacy).await;
    let call = client.begin_call("echo", json!({}));
    server.arrival("tools/call").await;
    client.cancel(call).await;
    let cancelled = server.arrival("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["reason"], "changed my mind");
}

#[tokio::test(start_paused = true)]
async fn a_response_to_a_cancelled_call_is_discarded() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        vec![Step::Hold, Step::Result(call["id"].clone(), json!({"content": []}))]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({}));
    server.arrival("tools/call").await;
    client.cancel(call).await;
    server.forget("tools/call");
    server.release();
    assert_eq!(text(&client.call("echo").await), r#"{"say":"hi"}"#);
    assert_eq!(gate.outcomes().await, ["cancelled", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_one_call_leaves_others_alone() {
    let server = Server::modern(&["echo"]);
    server.on("tools/call", |call| {
        let result = json!({"content": [], "resultType": "complete"});
        vec![Step::Hold, Step::Result(call["id"].clone(), result)]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let (one, other) = (client.begin_call("echo", json!({})), client.begin_call("echo", json!({})));
    within_an_hour("two calls arrive", server.arrivals("tools/call", 2)).await;
    client.cancel(one).await;
    server.release();
    assert!(other.answer().await["result"].is_object());
    assert_eq!(gate.outcomes().await, ["aborted", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_what_is_answered_or_unknown_does_nothing() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    for kind in [Kind::StdioLegacy, Kind::HttpLegacy] {
        let client = gate.client(kind).await;
        client.call("echo").await;
        for id in [json!(1), json!(77), json!("x")] {
            client.notify("notifications/cancelled", json!({"requestId": id})).await;
        }
        assert!(client.call("echo").await["result"].is_object(), "{kind:?}");
    }
    assert!(server.received("notifications/cancelled").is_empty());
}
