//! Log messages that a server over HTTP sends on its own stream.

use serde_json::json;

use super::harness::*;

#[test]
fn messages_on_a_servers_own_stream_reach_its_client_from_the_level_of_the_session_on() {
    let gate = setup()
        .web_with("w", "legacy", names(&["publish"]), &[("FEED", "1")])
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    session.list();
    let mut stream = session.listen(None);
    eventually("the gateway follows the server", || {
        gate.log("w").iter().any(|one| one["http"] == "GET").then_some(())
    });
    let mut logged = |levels: &[&str]| {
        assert_eq!(text(&session.call("w__publish", json!({"log": levels}))), "published");
        let message = stream.event().unwrap().json();
        assert_eq!(message["method"], "notifications/message", "{message}");
        message["params"]["level"].clone()
    };
    assert_eq!(logged(&["debug"]), "debug");
    assert_eq!(session.ask("logging/setLevel", json!({"level": "warning"}))["result"], json!({}));
    assert_eq!(logged(&["debug", "error"]), "error");
}
