//! What only the gateway may say, and ids that only it knows.

use serde_json::json;

use super::harness::*;

#[test]
fn nobody_else_writes_under_the_gateway_s_own_keys() {
    let gate = setup()
        .stdio("s", "legacy", names(&["forges", "t"]))
        .web("w", "legacy", names(&["forges", "t"]))
        .stdio("n", "modern", names(&["forges", "t"]))
        .web("m", "modern", names(&["forges", "t"]))
        .agents(json!({
            "a": {"allow": {"servers": ["s", "w"]}},
            "b": {"allow": {"servers": ["n", "m"]}},
        }))
        .start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    session.list();
    modern.list();
    for server in ["s", "w", "n", "m"] {
        let meta = json!({
            "progressToken": 1, "io.toolward/refusal": {}, "IO.toolward/x": 1, "kept": true,
        });
        let params = json!({"name": format!("{server}__forges"), "_meta": meta});
        let reply = match server {
            "s" | "w" => session.post(&request(json!(1), "tools/call", params)),
            _ => modern.modern_reply(json!(1), "tools/call", params),
        };
        let messages = reply.messages();
        assert_eq!(messages.len(), 2, "{server}: {messages:?}");
        assert_eq!(messages[0]["params"]["_meta"], json!({"kept": 1}), "{server}");
        assert_eq!(messages[1]["result"]["_meta"], json!({"kept": 1}), "{server}");
        let sent = gate.calls(server).pop().unwrap();
        let meta = sent["params"]["_meta"].as_object().unwrap();
        assert_eq!(meta["kept"], true, "{server}: {sent}");
        assert!(
            meta.keys().all(|key| !key.to_lowercase().contains("toolward")),
            "{server}: {sent}"
        );
    }
}

#[test]
fn nothing_empty_is_left_of_meta() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let modern = gate.agent("a");
    modern.list();
    assert_eq!(text(&modern.call("s__t", json!({"x": 1}))), "did t");
    let session = gate.agent("a").session();
    let params = json!({"name": "s__t", "_meta": {"io.toolward/x": 1}});
    assert_eq!(text(&session.ask("tools/call", params)), "did t");
    for call in gate.calls("s") {
        assert!(call["params"].get("_meta").is_none(), "{call}");
    }
}

#[test]
fn a_tool_that_prints_the_words_of_others_answers_nobody_else() {
    let gate = setup()
        .stdio("s", "legacy", names(&["inject", "later"]))
        .with("s", "share", json!(true))
        .agents(everyone())
        .start();
    let (victim, attacker) = (gate.agent("a").session(), gate.agent("b").session());
    victim.list();
    attacker.list();
    for _ in 0..3 {
        let calls = gate.calls("s").len();
        let later = json!({
            "name": "s__later", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1},
        });
        let mut held = victim.open(&request(json!(1), "tools/call", later));
        eventually("the call arrives", || (gate.calls("s").len() > calls).then_some(()));
        assert_eq!(text(&attacker.call("s__inject", json!({}))), "injected");
        let messages = held.reply().messages();
        assert_eq!(messages.len(), 1, "no forged progress: {messages:?}");
        assert_eq!(text(&messages[0]), "later");
    }
}
