//! The queue of calls that wait for a person, and decisions in a browser.

use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::harness::{Setup, eventually, names, setup};
use super::html::encoded;
use super::kit::Site;
use super::wire::Reply;

fn world(entry: Value) -> Setup {
    setup().stdio("hub", "both", names(&["drop", "other"])).agents(json!({
        "a": {"allow": {"servers": ["*"], "tools": {"hub": [entry, "other"]}}},
    }))
}

fn call(site: &Site, arguments: Value) -> JoinHandle<Value> {
    let agent = site.gate.agent("a");
    std::thread::spawn(move || {
        agent.modern("tools/call", json!({"name": "hub__drop", "arguments": arguments}))
    })
}

/// The id of the only ticket that is shown.
fn ticket(site: &Site) -> String {
    eventually("a ticket is shown", || {
        let html = site.html("approvals");
        let (_, rest) = html.split_once("<article class=\"ticket\" id=\"t")?;
        Some(rest.split('"').next()?.to_string())
    })
}

fn decide(site: &Site, form: &str) -> Reply {
    site.post(&format!("{}approvals", site.path), form)
}

fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

#[test]
fn a_call_is_approved_or_denied_in_the_browser() {
    let site = Site::of(world(json!({"tool": "drop", "ask": true})));
    assert!(site.html("approvals").contains("No call waits for a person."));
    assert!(!site.html("live").contains("class=\"badge\""));
    let waits = call(&site, json!({"table": "users"}));
    let id = ticket(&site);
    for view in ["", "live", "policy", "servers", "approvals"] {
        assert!(site.html(view).contains("title=\"1 waiting\""), "{view}: a badge");
    }
    let html = site.html("approvals");
    for part in
        ["hub/drop", "&quot;users&quot;", "1 waiting now", "Definition of the tool", "inputSchema"]
    {
        assert!(html.contains(part), "{part}: {html}");
    }
    let reply = decide(&site, &format!("id={id}&do=approve&scope=call"));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(body(&reply).contains(&format!("{id} is approved.")), "{reply:?}");
    assert!(waits.join().unwrap()["result"]["isError"].is_null());
    let record = site.gate.records().into_iter().find(|one| one["kind"] == "approval").unwrap();
    assert_eq!(record["channel"], "admin-ui", "{record}");

    let waits = call(&site, json!({"table": "users"}));
    let id = ticket(&site);
    decide(&site, &format!("id={id}&do=deny&reason={}", encoded("<b>no</b>")));
    let answer = waits.join().unwrap();
    assert!(
        answer["result"]["content"][0]["text"].as_str().unwrap().contains("<b>no</b>"),
        "{answer}"
    );
    assert_eq!(site.gate.calls("hub").len(), 1);
    assert!(site.part("approvals/recent?agent=a").contains("drop"));
}

#[test]
fn a_grant_is_given_for_arguments_and_revoked() {
    let site = Site::of(world(json!({"tool": "drop", "ask": true})));
    let waits = call(&site, json!({"table": "users", "n": 1}));
    let id = ticket(&site);
    let missing = body(&decide(&site, &format!("id={id}&do=approve&scope=args&for=3600")));
    assert!(missing.contains("Choose the arguments"), "{missing}");
    let long = body(&decide(&site, &format!("id={id}&do=approve&scope=tool&for=99999999")));
    assert!(long.contains("at most"), "{long}");
    decide(&site, &format!("id={id}&do=approve&scope=args&key=table&for=3600"));
    assert!(waits.join().unwrap()["result"]["isError"].is_null());
    let covered = call(&site, json!({"table": "users", "n": 2})).join().unwrap();
    assert!(covered["result"]["isError"].is_null(), "{covered}");
    let html = site.html("approvals");
    assert!(html.contains("calls with the same table"), "{html}");
    let (_, rest) = html.split_once("<table class=\"grants\">").unwrap();
    let grant = rest.split_once("name=\"id\" value=\"").unwrap().1.split('"').next().unwrap();
    assert!(body(&decide(&site, &format!("id={grant}&do=revoke"))).contains("is revoked"));
    assert!(!site.html("approvals").contains("<table class=\"grants\">"));
}

#[test]
fn requests_of_other_origins_decide_nothing() {
    let site = Site::of(world(json!({"tool": "drop", "ask": true})));
    let waits = call(&site, json!({}));
    let id = ticket(&site);
    let form = format!("id={id}&do=approve&scope=call");
    let line = format!("POST {}approvals HTTP/1.1", site.path);
    let origin = site.origin();
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let cookie = ("Cookie", &*site.cookie);
    let attempts = [
        ("no origin", vec![cookie, kind], 403),
        ("another origin", vec![cookie, kind, ("Origin", "https://evil.example")], 403),
        ("another port", vec![cookie, kind, ("Origin", "http://127.0.0.1:1")], 403),
        ("no cookie", vec![kind, ("Origin", &origin)], 401),
        (
            "a wrong cookie",
            vec![("Cookie", "toolward=x; toolward-admin=x.y"), kind, ("Origin", &origin)],
            401,
        ),
    ];
    for (what, headers, status) in attempts {
        assert_eq!(site.raw(&line, &headers, &form).status, status, "{what}");
    }
    assert_eq!(site.get(&format!("approvals?{form}"), &[]).status, 200, "a link decides nothing");
    assert!(site.gate.calls("hub").is_empty());
    decide(&site, &format!("id={id}&do=deny"));
    waits.join().unwrap();
}

/// The cookie of an admin.
fn log_in(site: &Site, token: &str) -> String {
    let origin = site.origin();
    let headers = [("Origin", &*origin), ("Content-Type", "application/x-www-form-urlencoded")];
    let reply = site.raw("POST /login HTTP/1.1", &headers, &format!("token={token}"));
    assert_eq!(reply.status, 303, "{reply:?}");
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(token), "{cookie}");
    cookie.split(';').next().unwrap().into()
}

#[test]
fn with_admins_the_printed_token_only_reads_and_each_admin_decides_within_their_scope() {
    let (ops, out) = ("token-of-admin-ops-1", "token-of-admin-out-1");
    let setup = world(json!({"tool": "drop", "ask": true})).env("OPS", ops).env("OUT", out);
    let mut site = Site::of(setup.set(
        "admins",
        json!({
            "ops": {"tokens": ["${OPS}"], "approve": ["hub/*"]},
            "out": {"tokens": ["${OUT}"], "approve": ["other/*"]},
        }),
    ));
    let waits = call(&site, json!({}));
    let id = ticket(&site);
    let approve = format!("id={id}&do=approve&scope=call");
    assert!(site.html("approvals").contains("This token is read-only"));
    assert!(!site.html("approvals").contains("<form method=\"post\" action=\"approvals\""));
    assert_eq!(decide(&site, &approve).status, 403);
    let printed = site.cookie.clone();
    site.cookie = log_in(&site, out);
    let out_cookie = site.cookie.clone();
    assert!(site.html("approvals").contains("You may not decide about this call."));
    assert_eq!(decide(&site, &approve).status, 403);
    // The digest of another admin with this admin's code is not a cookie.
    let ops_cookie = log_in(&site, ops);
    let digest = ops_cookie.split_once('.').unwrap().0;
    let mixed = format!("{digest}.{}", out_cookie.split_once('.').unwrap().1);
    site.cookie = mixed;
    assert_eq!(decide(&site, &approve).status, 401);
    assert!(site.gate.calls("hub").is_empty());
    site.cookie = ops_cookie;
    assert!(site.html("approvals").contains("Logged in as ops"));
    assert_eq!(decide(&site, &approve).status, 200);
    assert!(waits.join().unwrap()["result"]["isError"].is_null());
    let intent = site.gate.records().into_iter().find(|one| one["kind"] == "intent").unwrap();
    assert_eq!(
        (&intent["approved_by"], &intent["approved_via"]),
        (&json!("ops"), &json!("admin-ui"))
    );
    site.cookie = printed;
    assert_eq!(site.get("approvals", &[]).status, 200);
}

#[test]
fn parameters_cannot_pretend_to_be_others() {
    let site = Site::of(world(json!({"tool": "drop", "ask": {"hold": "100ms"}})));
    let hostile = "users\u{202e}\u{200b}<script>alert(1)</script>\n\u{1b}[2J";
    call(&site, json!({"table": hostile, "tаble": "x"})).join().unwrap();
    ticket(&site);
    let html = site.html("approvals");
    for never in ["\u{202e}", "\u{200b}", "<script>alert", "\u{1b}"] {
        assert!(!html.contains(never), "{never:?}");
    }
    assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
    assert_eq!(html.matches("not only ASCII characters").count(), 2, "{html}");
    call(&site, json!({"table": "x".repeat(40_000)})).join().unwrap();
    eventually("the second ticket is shown", || {
        site.html("approvals").contains("Cut: 16384 of ").then_some(())
    });
}
