//! Tool lists of legacy servers that change: announced, unannounced, and after a restart of the server.

use serde_json::json;

use super::harness::*;

/// Lists until the condition holds.
fn lists(client: &dyn Caller, wanted: &[&str]) {
    eventually(&format!("{wanted:?} is listed"), || (client.list() == wanted).then_some(()));
}

#[test]
fn a_list_that_changes_silently_is_fetched_again() {
    let gate = setup()
        .stdio("s", "legacy", names(&["publish", "old"]))
        .web_with("w", "legacy", names(&["publish", "old"]), &[("UNDECLARED", "1")])
        .agents(json!({
            "a": {"allow": {"servers": ["s"]}},
            "b": {"allow": {"servers": ["w"]}},
        }))
        .start();
    for (agent, server) in [("a", "s"), ("b", "w")] {
        let named = |tool: &str| format!("{server}__{tool}");
        let session = gate.agent(agent).session();
        assert_eq!(session.list(), [named("publish"), named("old")]);
        let change = json!({"add": ["new"], "remove": ["old"]});
        assert_eq!(text(&session.call(&named("publish"), change)), "published");
        // A name that is not in the list makes the gateway fetch it again, without a listing.
        eventually("the new tool is found", || {
            let answer = session.call(&named("new"), json!({}));
            answer["result"].is_object().then_some(())
        });
        lists(&session, &[&named("publish"), &named("new")]);
        assert_eq!(session.call(&named("old"), json!({}))["error"]["code"], -32602);
    }
}

#[test]
fn calls_do_not_fetch_the_list_again() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let session = gate.agent("a").session();
    session.list();
    let fetched = gate.heard("s", "tools/list").len();
    // Longer than a listing uses the cached list.
    always("calls pass", std::time::Duration::from_secs(5), || {
        text(&session.call("s__t", json!({}))) == "did t"
    });
    assert_eq!(gate.heard("s", "tools/list").len(), fetched);
}

#[test]
fn a_server_that_is_busy_keeps_its_list() {
    // The server handles one request at a time: its list has to wait for the earlier call.
    let script = r#"
import json, sys, time
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    r = {"initialize": lambda: {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "one", "version": "1"}},
         "tools/list": lambda: {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
         "tools/call": lambda: time.sleep(7) or {"content": [{"type": "text", "text": "worked"}]}}.get(m["method"])
    e = {"error": {"code": -32601, "message": "no"}} if r is None else {"result": r()}
    print(json.dumps(dict({"jsonrpc": "2.0", "id": m["id"]}, **e)), flush=True)
"#;
    let gate = setup()
        .server("s", json!({"command": "python3", "args": ["-c", script], "share": true}))
        .set("list_timeout", json!("4s"))
        .agents(everyone())
        .start();
    let (first, second) = (gate.agent("a").session(), gate.agent("b").session());
    assert_eq!(first.list(), ["s__work"]);
    let mut held = first.open(&request(json!("held"), "tools/call", json!({"name": "s__work"})));
    // The cached list is stale for a listing, and cannot be fetched.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(second.list(), ["s__work"]);
    assert_eq!(text(&held.reply().json()), "worked");
}

#[test]
fn a_server_on_http_is_followed_even_if_it_does_not_declare_list_changed() {
    let gate = setup()
        .web_with("w", "legacy", names(&["publish"]), &[("FEED", "1"), ("UNDECLARED", "1")])
        .agents(everyone())
        .start();
    let (session, other) = (gate.agent("a").session(), gate.agent("b").session());
    session.list();
    other.list();
    let mut feed = session.listen(None);
    eventually("the stream is asked for", || {
        (gate.log("w").iter().filter(|one| one["http"] == "GET").count() == 2).then_some(())
    });
    let change = json!({"add": ["new"], "tell": true});
    assert_eq!(text(&other.call("w__publish", change)), "published");
    assert_eq!(feed.event().unwrap().json()["method"], "notifications/tools/list_changed");
    assert_eq!(session.list(), ["w__publish", "w__new"]);
    // The stream ends with the session.
    assert_eq!(session.delete().status, 204);
    eventually("the server's stream is closed", || {
        let log = gate.log("w");
        log.iter().any(|one| one["event"] == "feed closed").then_some(())
    });
}

#[test]
fn a_restarted_server_is_asked_for_its_list_again() {
    for (feed, name) in [(true, "FEED"), (false, "NO_FEED")] {
        let mut gate = setup()
            .web_with("w", "legacy", names(&["old", "t"]), &[(name, "1"), ("UNDECLARED", "1")])
            .agents(everyone())
            .start();
        let session = gate.agent("a").session();
        assert_eq!(session.list(), ["w__old", "w__t"]);
        let mut listening = session.listen(None);
        let url = gate.setup.url("w");
        let port = url.rsplit(':').next().unwrap().split('/').next().unwrap().to_string();
        gate.setup.stop_web();
        let environment = [("PORT", &*port), (name, "1"), ("UNDECLARED", "1")];
        gate.setup.start_web("w", "legacy", names(&["t", "new"]), &environment);
        if !feed {
            // The next call notices that the session has ended.
            assert_eq!(text(&session.call("w__t", json!({}))), "did t");
        }
        let told = listening.event().unwrap().json();
        assert_eq!(told["method"], "notifications/tools/list_changed", "feed: {feed}");
        lists(&session, &["w__t", "w__new"]);
        assert_eq!(text(&session.call("w__new", json!({}))), "did new");
        assert_eq!(session.call("w__old", json!({}))["error"]["code"], -32602);
    }
}
