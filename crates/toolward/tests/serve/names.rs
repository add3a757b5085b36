//! Names on an endpoint with several servers, and name conflicts that prevent the start.

use serde_json::json;

use super::harness::*;

#[test]
fn long_and_odd_names_fit_every_client_and_stay_apart() {
    let long = "x".repeat(80);
    let odd = [
        long.clone(),
        format!("{long}y"),
        "a.b".into(),
        "a b".into(),
        "a/b".into(),
        "größe".into(),
        "日本語".into(),
        "a_b".into(),
        "__".into(),
    ];
    let tools: Vec<&str> = odd.iter().map(String::as_str).collect();
    for era in ["legacy", "modern"] {
        let gate = setup()
            .stdio("files", era, names(&tools))
            .stdio("files2", era, names(&tools))
            .agents(everyone())
            .start();
        let agent = gate.agent("a");
        let client: Box<dyn Caller> = match era {
            "legacy" => Box::new(agent.session()),
            _ => Box::new(agent),
        };
        let shown = client.list();
        assert_eq!(shown.len(), 2 * tools.len());
        let mut apart = shown.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), shown.len(), "{shown:?}");
        for (at, name) in shown.iter().enumerate() {
            assert!(name.len() <= 64, "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            let server = if at < tools.len() { "files" } else { "files2" };
            let original = tools[at % tools.len()];
            assert!(name.starts_with(&format!("{server}__")), "{name}");
            assert_eq!(text(&client.call(name, json!({}))), format!("did {original}"));
            assert_eq!(gate.calls(server).last().unwrap()["params"]["name"], original);
        }
        assert_eq!(client.list(), shown, "names are stable");
        if era == "legacy" {
            for tool in tools.iter().take(7) {
                gate.refusal(&client.call(&format!("files__{tool}"), json!({})));
            }
        }
        assert!(shown.contains(&"files__a_b".to_string()));
    }
}

#[test]
fn flat_names_are_kept_unless_two_are_alike() {
    let flat = |second: &[&str]| {
        setup()
            .stdio("one", "legacy", names(&["read", "write"]))
            .stdio("two", "modern", names(second))
            .set("naming", json!("flat"))
            .agents(everyone())
    };
    let gate = flat(&["send"]).start();
    let session = gate.agent("a").session();
    assert!(session.list().starts_with(&["read".into(), "write".into()]));
    assert_eq!(text(&session.call("read", json!({}))), "did read");
    assert_eq!(text(&gate.agent("a").call("send", json!({}))), "did send");
    drop(gate);
    let (code, said) = flat(&["send", "write"]).fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("write"), "{said}");
    // Tools that `expose` hides from clients cause no collisions.
    let gate = flat(&["send", "write"]).with("two", "expose", json!(["send"])).start();
    assert_eq!(text(&gate.agent("a").session().call("write", json!({}))), "did write");
}

#[test]
fn a_client_on_stdio_gets_the_reason_of_a_failed_start() {
    let mut lines = setup()
        .stdio("one", "legacy", names(&["write"]))
        .stdio("two", "legacy", names(&["write"]))
        .set("naming", json!("flat"))
        .agents(everyone())
        .standard(&["--agent", "a"]);
    let answer = lines.ask(&initialize(LEGACY));
    assert!(answer["error"]["message"].as_str().unwrap().contains("write"), "{answer}");
    assert_eq!(lines.close().0, 3);
}

#[test]
fn nobody_listens_to_the_world_without_asking_who_comes() {
    let world =
        || setup().server("s", json!({"command": "true"})).set("listen", json!("0.0.0.0:0"));
    let allow = json!({"allow": {"servers": ["*"]}});
    for (what, setup) in [
        ("no agents, no policy", world()),
        ("no tokens", world().set("agents", json!({"a": allow}))),
        ("a policy without agents", world().set("allowed_tools", json!(["*"]))),
        ("tokens, no policy", world().agents(json!({"a": {}}))),
        (
            "callers without a name",
            world()
                .agents(json!({"a": allow, "default": allow}))
                .set("defaults", json!({"deny_on_missing_agent": false})),
        ),
    ] {
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{what}: {said}");
    }
    // With both, it starts and authenticates callers.
    let gate = world().agents(json!({"a": allow})).start();
    assert_eq!(gate.nobody().post(&[], &initialize(LEGACY)).status, 401);
}

#[test]
fn agents_that_only_have_tokens_do_not_open_the_door_to_everyone() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .set("listen", json!("0.0.0.0:0"))
        .agents(json!({"a": {}}))
        .set("allowed_tools", json!(["*"]))
        .start();
    assert_eq!(text(&gate.agent("a").session().call("s__t", json!({}))), "did t");
    let reply = gate.nobody().post(&[], &initialize(LEGACY));
    assert_eq!(reply.status, 401, "an unnamed caller is let in: {reply:?}");
}

#[test]
fn policy_errors_are_reported_and_nothing_starts() {
    let broken = || setup().stdio("s", "legacy", names(&["t"])).set("alowed_tools", json!(["*"]));
    let (code, said) = broken().fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("alowed_tools") && said.contains("allowed_tools"), "{said}");
    let mut lines = broken().standard(&["--agent", "a"]);
    let answer = lines.ask(&initialize(LEGACY));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("alowed_tools"), "{message}");
    assert_eq!(lines.close().0, 3);
    assert_eq!(lines.log("s"), "");
}
