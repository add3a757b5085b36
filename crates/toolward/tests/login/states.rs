//! A missing login is a state: lists, refusals, `logins`, `status` and `doctor` name it and the command.

use serde_json::json;
use toolward_testkit::wait::eventually;

use crate::world::World;

#[test]
fn a_missing_login_is_a_state_that_a_login_ends_without_a_restart() {
    let world = World::new();
    let mut gateway = world.gateway();
    let list = gateway.list();
    assert_eq!(list["result"]["_meta"]["io.toolward/servers"]["it"], "needs_login", "{list}");
    assert_eq!(gateway.tools(), Vec::<String>::new());
    let refused = gateway.call("whoami");
    assert_eq!(refused["error"]["data"]["error"], "needs_login", "{refused}");
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("`toolward login it`"),
        "{refused}"
    );
    let login = &world.logins()[0];
    assert_eq!(
        (&login["state"], &login["command"]),
        (&json!("needs login"), &json!("toolward login it"))
    );
    let shown = world.run(&["status"]);
    assert!(shown.stdout.contains("it: needs login"), "{shown:?}");
    assert!(shown.stdout.contains("toolward login it"), "{shown:?}");
    // No one opened a browser, and nothing was requested from the authorization server.
    assert_eq!(world.tokens.seen().len(), 0);

    world.logged_in();
    gateway.notified("notifications/tools/list_changed");
    assert_eq!(gateway.tools().len(), 2);
    assert_eq!(gateway.whoami()["subject"], "alice");
}

#[test]
fn a_lost_login_is_a_state_and_its_lists_stay() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    assert_eq!(gateway.whoami()["subject"], "alice");
    world.tokens.revoke_grants();
    world.tokens.expire_access_tokens();
    let refused = gateway.call("whoami");
    assert_eq!(refused["error"]["data"]["error"], "needs_login", "{refused}");
    let login = &world.logins()[0];
    assert_eq!(login["state"], "needs login", "{login}");
    assert!(login["lost"].as_str().unwrap().contains("invalid_grant"));
    eventually("the loss is recorded", || {
        world
            .records()
            .iter()
            .any(|record| record["what"] == "loss" && record["reason"] == "invalid_grant")
    });
    // A gateway that starts now shows the list of the earlier run.
    let mut next = world.gateway();
    assert_eq!(next.tools().len(), 2);
    assert_eq!(next.call("whoami")["error"]["data"]["error"], "needs_login");
    world.logged_in();
    eventually("the new login is used", || gateway.call("whoami")["result"].is_object());
    world.files_have_no_secret();
}

#[test]
fn a_forgotten_client_needs_another_login_and_loses_nothing() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    gateway.tools();
    world.tokens.forget_clients();
    world.tokens.expire_access_tokens();
    let refused = gateway.call("whoami");
    assert_eq!(refused["error"]["data"]["error"], "needs_login", "{refused}");
    assert_eq!(world.logins()[0]["lost"], json!(null));
    world.logged_in();
    assert_eq!(world.gateway().whoami()["subject"], "alice");
}

#[test]
fn a_logout_ends_the_login_of_running_gateways() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    assert_eq!(gateway.whoami()["subject"], "alice");
    let ran = world.run(&["logout", "it"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    eventually("the gateway notices", || {
        gateway.call("whoami")["error"]["data"]["error"] == "needs_login"
    });
    let again = world.run(&["logout", "it"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("there is no login for `it`"), "{again:?}");
    let events: Vec<_> = world.records().iter().map(|record| record["what"].clone()).collect();
    assert!(events.contains(&json!("logout")), "{events:?}");
    // Another person logs in: the gateway uses that login, in a session of its own.
    world.tokens.switch(|switches| switches.subject = "bob".into());
    world.logged_in();
    eventually("the other login is used", || gateway.call("whoami")["result"].is_object());
    assert_eq!(gateway.whoami()["subject"], "bob");
}

#[test]
fn each_agent_can_have_its_own_login() {
    let world = World::new();
    world.configure(&json!({"of": "agent"}));
    let without = world.run(&["login", "it"]);
    assert_eq!(without.code, 2, "{without:?}");
    assert!(without.stderr.contains("--as AGENT"), "{without:?}");
    assert_eq!(world.login_as(&["--as", "a"]).code, 0);
    let (mut a, mut b) = (world.gateway_as("a"), world.gateway_as("b"));
    assert_eq!(a.whoami()["subject"], "alice");
    let refused = b.call("whoami");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("`toolward login it --as b`"), "{refused}");
    world.tokens.switch(|switches| switches.subject = "bob".into());
    assert_eq!(world.login_as(&["--as", "b"]).code, 0);
    eventually("b is logged in", || b.call("whoami")["result"].is_object());
    assert_eq!(
        (a.whoami()["subject"].clone(), b.whoami()["subject"].clone()),
        (json!("alice"), json!("bob"))
    );
}

#[test]
fn wrong_configurations_are_explained() {
    let world = World::new();
    for (server, text) in [
        (json!({"url": "http://mcp.example/mcp", "login": {}}), "plain text"),
        (json!({"url": "https://mcp.example/mcp", "login": {"client_secret": "x"}}), "plain text"),
        (
            json!({"url": "https://mcp.example/mcp", "login": {"client_secret": "${X}"}}),
            "client_id",
        ),
        (
            json!({"url": "https://mcp.example/mcp", "login": {"issuer": "http://id.example"}}),
            "https",
        ),
        (json!({"url": "https://mcp.example/mcp", "login": {"flow": "popup"}}), "device"),
        (
            json!({"url": "https://mcp.example/mcp", "login": {}, "headers": {"authorization": "${X}"}}),
            "both",
        ),
        (json!({"command": "x", "login": {}}), "not reached over HTTP"),
    ] {
        world.configure_server(&server);
        let ran = world.run(&["check"]);
        assert_eq!(ran.code, 3, "{server} {ran:?}");
        let shown = format!("{}{}", ran.stdout, ran.stderr);
        assert!(shown.contains(text), "{server} {shown}");
    }
    world.configure_server(&json!({"url": "https://mcp.example/mcp"}));
    let ran = world.run(&["login", "it"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("login: {}"), "{ran:?}");
    let ran = world.run(&["login", "ti"]);
    assert!(ran.code == 2 && ran.stderr.contains("no server `ti`"), "{ran:?}");
}
