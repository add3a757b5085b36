//! Large requests, and servers that start slowly.

use serde_json::json;

use crate::harness::*;

const EVERYTHING: &str = "allowed_tools: [\"*\"]\n";

#[test]
fn a_request_of_many_megabytes_passes() {
    let mut wrapped = setup(EVERYTHING, names(&["a"])).ready();
    let answer = wrapped.call("a", json!({"x": "y".repeat(20 << 20)}));
    assert_eq!(Wrapped::text(&answer), "did a");
    assert!(wrapped.forwarded()[0].len() > 20 << 20);
}

#[test]
fn a_request_that_is_too_large_is_answered_under_its_own_id() {
    let mut setup = setup(EVERYTHING, names(&["a"]));
    setup.flags.extend(["--request-bytes".into(), "1 MiB".into()]);
    let mut wrapped = setup.ready();
    let large = "x".repeat(2 << 20);
    // The id may be anywhere, and text that looks like one may precede it.
    for body in [
        format!(
            r#"{{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{{"name":"a","arguments":{{"id":7,"x":"{large}"}}}}}}"#
        ),
        format!(
            r#"{{"method":"tools/call","params":{{"name":"a","arguments":{{"id":7,"x":"{large}"}}}},"jsonrpc":"2.0","id":"big"}}"#
        ),
    ] {
        wrapped.send(&body);
        let answer = wrapped.next();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("big"), &json!(-32602)));
        let data = &answer["error"]["data"];
        assert_eq!(
            (&data["error"], &data["limit_bytes"]),
            (&json!("request_too_large"), &json!(1 << 20))
        );
    }
    // A message with two ids has none.
    wrapped.send(&format!(r#"{{"id":1,"method":"tools/call","id":2,"x":"{large}"}}"#));
    assert_eq!(wrapped.next()["id"], json!(null));
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.forwarded().len(), 1);
}

#[test]
fn initialize_does_not_wait_for_a_server_that_starts_slowly() {
    let mut setup = setup(EVERYTHING, names(&["a"]));
    setup.flags.extend(["--env".into(), "START_TAKES=5".into()]);
    let mut wrapped = setup.start();
    let hello = wrapped.initialize();
    // The gateway's own name: the server's is not known yet.
    assert_eq!(hello["result"]["serverInfo"]["name"], "s", "{hello}");
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18", "{hello}");
    assert_eq!(wrapped.list(), ["a"]);
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
}
