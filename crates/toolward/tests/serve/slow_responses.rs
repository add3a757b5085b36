//! Slow responses: clients and proxies see that the call is still in progress.

use serde_json::json;

use super::harness::*;

#[test]
fn a_call_that_is_silent_for_a_while_opens_its_stream() {
    let gate = setup()
        .stdio("s", "legacy", names(&["later"]))
        .stdio("n", "modern", names(&["later"]))
        .agents(everyone())
        .start();
    let params =
        |server: &str| json!({"name": format!("{server}__later"), "arguments": {"seconds": 4}});
    for revision in [LEGACY, NEWEST_LEGACY] {
        let session = gate.agent("a").session_of(revision);
        session.list();
        let mut held = session.open(&request(json!(1), "tools/call", params("s")));
        let head = held.head();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        let mut first = held.event().unwrap();
        if revision == NEWEST_LEGACY {
            assert!(first.id.is_some() && first.data.is_empty(), "a primer: {first:?}");
            first = held.event().unwrap();
        }
        assert_eq!(text(&first.json()), "later");
        assert_eq!(held.event(), None);
    }
    let modern = gate.agent("b");
    modern.list();
    let mut held = modern.modern_open(json!(1), "tools/call", params("n"));
    let head = held.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(text(&held.event().unwrap().json()), "later");
    // A client that does not accept events waits.
    let session = gate.agent("a").session();
    let mut headers = session.headers().to_vec();
    headers.push(("Accept", "application/json"));
    let reply = session.agent.post(&headers, &request(json!(1), "tools/call", params("s")));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(text(&reply.json()), "later");
}

#[test]
fn initialize_does_not_wait_for_a_server_that_starts_slowly() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .with("s", "env", json!({"START_TAKES": "6"}))
        .set("list_timeout", json!("20s"))
        .agents(everyone())
        .start();
    let at = gate.agent("a").at("/mcp/s");
    let session = at.session();
    // The gateway's own name: the server's is not known yet.
    assert_eq!(session.hello["serverInfo"], json!({"name": "s", "version": "unknown"}));
    assert!(session.hello.get("instructions").is_none(), "{}", session.hello);
    assert!(session.hello["capabilities"]["tools"].is_object(), "{}", session.hello);
    assert_eq!(session.list(), ["t"]);
    assert_eq!(text(&session.call("t", json!({}))), "did t");
    // By now the server has identified itself.
    let other = gate.agent("b").at("/mcp/s").session();
    assert_eq!(other.hello["serverInfo"], json!({"name": "scripted", "version": "1"}));
    assert_eq!(other.hello["instructions"], "Be careful.", "{}", other.hello);
}

#[test]
fn a_server_that_responds_at_once_provides_its_own_instructions() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    gate.agent("a").session().list();
    let at = gate.agent("a").at("/mcp/s");
    at.heard(|hello| hello["instructions"] == "Be careful.");
}

#[test]
fn remembered_instructions_do_not_name_tools_that_are_hidden_from_the_agent() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t", "careful"]))
        .with("s", "env", json!({"START_TAKES": "4"}))
        .set("list_timeout", json!("20s"))
        .agents(json!({
            "a": {"allow": {"servers": ["*"]}},
            "b": {"allow": {"servers": ["*"]}, "deny": {"tools": {"s": ["careful"]}}},
        }))
        .start();
    let first = gate.agent("a").at("/mcp/s").session();
    assert_eq!(first.list().len(), 2);
    for (agent, expected) in [("a", json!("Be careful.")), ("b", json!(null))] {
        let hello = gate.agent(agent).at("/mcp/s").session().hello;
        assert_eq!(hello["serverInfo"]["name"], "scripted", "{hello}");
        assert_eq!(hello["instructions"], expected, "{agent}: {hello}");
    }
}
