//! "Allow this…": proposing and saving a permission in the browser, and attempts to save something else.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::harness::{Setup, names, setup};
use super::html::{attribute, between, encoded, plain, unescaped};
use super::kit::Site;
use super::wire::Reply;

const EDITOR: &str = "token-of-admin-editor";
const READER: &str = "token-of-admin-reader";

/// A layer with comments, which stay.
const POLICY: &str = "\
# the rules of the team
agents:
  a:
    allow:
      servers: [hub]
      tools:
        hub:
          - read   # harmless
  b: { allow: { servers: [hub], tools: { hub: [read] } } }
tests:
  - as: a
    allow: [hub/read]
    deny: [hub/drop]
";

fn world() -> Setup {
    let setup = setup().stdio("hub", "both", names(&["read", "write", "drop", "it's"]));
    std::fs::write(setup.path("policy.yaml"), POLICY).unwrap();
    setup
        .agents(json!({"a": {}, "b": {}}))
        .env("EDITOR", EDITOR)
        .env("READER", READER)
        .set("policies", json!(["policy.yaml"]))
        .set(
            "admins",
            json!({
                "ed": {"tokens": ["${EDITOR}"], "edit": true},
                "rita": {"tokens": ["${READER}"], "approve": ["*"]},
            }),
        )
}

fn site() -> Site {
    let mut site = Site::of(world());
    log_in(&mut site, EDITOR);
    // The tools are known once the server has listed them.
    site.table();
    site
}

fn log_in(site: &mut Site, token: &str) {
    let origin = site.origin();
    let headers = [("Origin", &*origin), ("Content-Type", "application/x-www-form-urlencoded")];
    let reply = site.raw("POST /login HTTP/1.1", &headers, &format!("token={token}"));
    assert_eq!(reply.status, 303, "{reply:?}");
    site.cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().into();
}

fn policy(site: &Site) -> PathBuf {
    site.gate.file("policy.yaml")
}

fn written(site: &Site) -> String {
    std::fs::read_to_string(policy(site)).unwrap()
}

fn address(agent: &str, tool: &str) -> String {
    format!("agent={}&server=hub&tool={}", encoded(agent), encoded(tool))
}

/// The form that saves a change, as it is shown.
fn form(html: &str) -> String {
    let form = between(html, "<form method=\"post\" action=\"allow\"", "</form>");
    let form = form.first().unwrap_or_else(|| panic!("no form in {html}"));
    let fields = form.split("<input ").skip(1).map(|input| {
        let input = format!("<input {input}");
        let value = |name: &str| unescaped(attribute(&input, name).unwrap());
        format!("{}={}", value("name"), encoded(&value("value")))
    });
    fields.collect::<Vec<_>>().join("&")
}

fn save(site: &Site, form: &str) -> Reply {
    site.post(&format!("{}allow", site.path), form)
}

fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

fn call(site: &Site, tool: &str) -> Value {
    let params = json!({"name": format!("hub__{tool}"), "arguments": {}});
    site.gate.agent("a").modern("tools/call", params)
}

#[test]
fn a_permission_is_proposed_with_its_effect_and_saved() {
    let site = site();
    assert!(call(&site, "write")["error"].is_object());
    // The denied cell, and the refused call.
    let explained = site.part("explain?agent=a&server=hub&tool=write");
    assert!(unescaped(&explained).contains("href=\"allow?agent=a&server=hub&tool=write\""));
    let refusal = site.gate.records().into_iter().find(|one| one["kind"] == "refusal").unwrap();
    let refused = site.html(&format!("live?id={}", refusal["id"].as_str().unwrap()));
    assert!(refused.contains("Allow this…"), "{refused}");

    let html = site.html(&format!("allow?{}", address("a", "write")));
    let diff = plain(between(&html, "<section class=\"diff\"", "</section>")[0]);
    assert!(diff.contains("+          - \"write\""), "{diff}");
    assert!(html.contains("sees <code>hub/write</code>"), "{html}");
    assert!(html.contains("All 2 tests of the policy pass."), "{html}");
    assert!(!html.contains("The change also allows"), "{html}");
    assert_eq!(written(&site), POLICY, "nothing is written until it is saved");

    let saved = save(&site, &form(&html));
    assert_eq!(saved.status, 200, "{saved:?}");
    assert!(body(&saved).contains("Saved: policy "), "{}", body(&saved));
    let expected = POLICY.replace("# harmless\n", "# harmless\n          - \"write\"\n");
    assert_eq!(written(&site), expected, "only the entry is added, and comments stay");
    assert!(call(&site, "write")["result"].is_object(), "it is active");
    let edit = site.gate.records().into_iter().find(|one| one["kind"] == "policy-edit").unwrap();
    assert_eq!((&edit["by"], &edit["channel"]), (&json!("ed"), &json!("admin-ui")));
    assert_eq!((&edit["agent"], &edit["tool"]), (&json!("a"), &json!("write")));
    assert!(body(&saved).contains("Nothing to change"), "{}", body(&saved));
}

#[test]
fn a_condition_is_part_of_the_entry_and_cannot_be_more() {
    let site = site();
    let when = "args.path == '/x' # - drop\n          - drop";
    let html = site.html(&format!("allow?{}&when={}", address("a", "write"), encoded(when)));
    // A text that is no condition is not proposed; one with a line break stays one value.
    if html.contains("<form method=\"post\"") {
        save(&site, &form(&html));
    }
    assert!(call(&site, "drop")["error"].is_object());
    let when = "args.path.startsWith('/srv/')";
    let html = site.html(&format!("allow?{}&when={}", address("a", "write"), encoded(when)));
    assert!(body(&save(&site, &form(&html))).contains("Saved"));
    assert!(written(&site).contains("startsWith('/srv/')"), "{}", written(&site));
    let wrong = site.html(&format!("allow?{}&when=nope(", address("a", "write")));
    assert!(!wrong.contains("<form method=\"post\""), "{wrong}");
    let long = "x".repeat(2049);
    assert_eq!(site.get(&format!("allow?{}&when={long}", address("a", "write")), &[]).status, 400);
}

#[test]
fn only_an_admin_with_edit_saves() {
    let mut site = site();
    let html = site.html(&format!("allow?{}", address("a", "write")));
    let form = form(&html);
    let editor = site.cookie.clone();
    log_in(&mut site, READER);
    let shown = site.html(&format!("allow?{}", address("a", "write")));
    assert!(shown.contains("your admin entry does not have edit: true"), "{shown}");
    assert!(!shown.contains("<button>Save</button>"), "{shown}");
    assert_eq!(save(&site, &form).status, 403);
    // The token that is logged at startup only reads.
    let reply = site.raw(&format!("GET /?token={} HTTP/1.1", site.token), &[], "");
    site.cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().into();
    assert!(site.html(&format!("allow?{}", address("a", "write"))).contains("read-only"));
    assert_eq!(save(&site, &form).status, 403);
    site.cookie = "toolward-admin=x.y".into();
    assert_eq!(save(&site, &form).status, 401);
    assert_eq!(written(&site), POLICY);
    site.cookie = editor;
    assert_eq!(save(&site, &form).status, 200);
    assert_ne!(written(&site), POLICY);
}

#[test]
fn without_admins_nothing_is_saved() {
    let setup = setup().stdio("hub", "both", names(&["read", "write"]));
    let rules = json!({"a": {"allow": {"servers": ["hub"], "tools": {"hub": ["read"]}}}});
    let site = Site::of(setup.agents(rules));
    site.table();
    let before = std::fs::read(site.gate.file("toolward.yaml")).unwrap();
    let html = site.html(&format!("allow?{}", address("a", "write")));
    assert!(html.contains("the configuration has no admins"), "{html}");
    assert_eq!(save(&site, &form(&html)).status, 403);
    assert_eq!(std::fs::read(site.gate.file("toolward.yaml")).unwrap(), before);
}

#[test]
fn requests_of_other_origins_save_nothing() {
    let site = site();
    let form = form(&site.html(&format!("allow?{}", address("a", "write"))));
    let line = format!("POST {}allow HTTP/1.1", site.path);
    let origin = site.origin();
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let cookie = ("Cookie", &*site.cookie);
    let attempts = [
        ("no origin", vec![cookie, kind], 403),
        ("another origin", vec![cookie, kind, ("Origin", "https://evil.example")], 403),
        ("another port", vec![cookie, kind, ("Origin", "http://127.0.0.1:1")], 403),
        ("the null origin", vec![cookie, kind, ("Origin", "null")], 403),
        (
            "another site",
            vec![cookie, kind, ("Origin", &origin), ("Sec-Fetch-Site", "cross-site")],
            403,
        ),
        ("no cookie", vec![kind, ("Origin", &origin)], 401),
    ];
    for (what, headers, status) in attempts {
        assert_eq!(site.raw(&line, &headers, &form).status, status, "{what}");
    }
    assert_eq!(site.get(&format!("allow?{form}"), &[]).status, 200, "a link saves nothing");
    assert_eq!(written(&site), POLICY);
}

#[test]
fn a_file_that_changed_since_it_was_shown_is_not_overwritten() {
    let site = site();
    let form = form(&site.html(&format!("allow?{}", address("a", "write"))));
    let edited = POLICY.replace("# the rules of the team", "# the rules of both teams");
    std::fs::write(policy(&site), &edited).unwrap();
    let reply = save(&site, &form);
    assert!(body(&reply).contains("Nothing was saved: the files are not as they were"));
    assert_eq!(written(&site), edited);
    // The change is shown again, for the file as it is now.
    assert!(body(&save(&site, &self::form(&body(&reply)))).contains("Saved"));
    assert!(written(&site).contains("both teams") && written(&site).contains("- \"write\""));
}

#[test]
fn a_form_names_no_file_and_no_text() {
    let site = site();
    let shown = form(&site.html(&format!("allow?{}", address("a", "write"))));
    let outside = site.gate.file("outside.yaml");
    std::fs::write(&outside, POLICY).unwrap();
    let main = std::fs::read(site.gate.file("toolward.yaml")).unwrap();
    let expect = shown.rsplit("expect=").next().unwrap();
    let more = format!("&file={0}&path={0}&text=x&servers=x&hooks=x", encoded("../outside.yaml"));
    let other = |agent: &str, server: &str, tool: &str| {
        let [agent, server, tool] = [agent, server, tool].map(encoded);
        format!("agent={agent}&server={server}&tool={tool}&expect={expect}{more}")
    };
    // Each of these would be another change than the one that was shown, or none at all.
    for form in [
        other("b", "hub", "write"),
        other("a", "hub", "drop"),
        other("a", "hub", "*"),
        other("a", "*", "write"),
        other("a", "servers", "hub"),
        other("a", "hub", "../../servers"),
        other("a: {allow: {servers: ['*']}}\n  a", "hub", "write"),
        other("../outside", "hub", "write"),
        other("servers", "hub", "command"),
        other("hooks", "hub", "exec"),
        other("", "hub", "write"),
    ] {
        let reply = save(&site, &form);
        assert!(!body(&reply).contains("Saved"), "{form}: {reply:?}");
        assert_eq!(written(&site), POLICY, "{form}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), POLICY);
    assert_eq!(std::fs::read(site.gate.file("toolward.yaml")).unwrap(), main);
    assert_eq!(save(&site, &format!("{shown}{more}")).status, 200);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), POLICY);
}

#[test]
fn a_change_that_a_test_of_the_policy_forbids_is_not_proposed() {
    let site = site();
    let html = site.html(&format!("allow?{}", address("a", "drop")));
    assert!(html.contains("No change can be proposed"), "{html}");
    assert!(html.contains("1 test of the policy failed"), "{html}");
    assert!(!html.contains("<form method=\"post\""), "{html}");
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let site = site();
    let shown = form(&site.html(&format!("allow?{}", address("a", "write"))));
    std::fs::set_permissions(policy(&site), PermissionsExt::from_mode(0o444)).unwrap();
    let html = site.html(&format!("allow?{}", address("a", "write")));
    assert!(html.contains("it is not writable"), "{html}");
    assert!(!html.contains("<button>Save</button>"), "{html}");
    assert_eq!(save(&site, &shown).status, 403);
    assert_eq!(written(&site), POLICY);
}

#[test]
fn a_configuration_that_a_reload_rejects_is_restored() {
    let site = site();
    let shown = form(&site.html(&format!("allow?{}", address("a", "write"))));
    // A change that needs a restart waits in the main file; nothing is activated until then.
    let main = site.gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&main).unwrap();
    let text = text.replace("\"list_timeout\": \"30s\"", "\"list_timeout\": \"31s\"");
    std::fs::write(&main, text).unwrap();
    let reply = save(&site, &shown);
    assert!(body(&reply).contains("was rejected, and the file restored"), "{}", body(&reply));
    assert_eq!(written(&site), POLICY);
    assert!(call(&site, "write")["error"].is_object());
}

#[test]
fn secrets_of_a_file_are_not_shown() {
    let setup = setup().stdio("hub", "both", names(&["read", "write"]));
    let rules = json!({"a": {"allow": {"servers": ["hub"], "tools": {"hub": ["read"]}}}});
    let setup = setup.with("hub", "env", json!({"KEY": "hunter2-secret"}));
    let site = Site::of(setup.agents(rules));
    site.table();
    let html = site.html(&format!("allow?{}", address("a", "write")));
    assert!(html.contains("+") && html.contains("write"), "{html}");
    assert!(!html.contains("hunter2"), "{html}");
}

#[test]
fn an_allowlist_is_proposed_and_not_saved_here() {
    let setup = setup().stdio("hub", "both", names(&["read", "write"]));
    std::fs::write(setup.path("list.yaml"), "allowed_tools:\n  - hub.read\n").unwrap();
    let rules = json!({"a": {"allow": {"servers": ["hub"]}}});
    let admins = json!({"ed": {"tokens": ["${EDITOR}"], "edit": true}});
    let setup = setup.agents(rules).env("EDITOR", EDITOR).set("admins", admins);
    let mut site = Site::of(setup.set("policies", json!(["list.yaml"])));
    log_in(&mut site, EDITOR);
    site.table();
    let html = site.html(&format!("allow?{}", address("a", "write")));
    assert!(html.contains("only what an agent may use can be saved here"), "{html}");
    assert_eq!(save(&site, &form(&html)).status, 403);
    let text = std::fs::read_to_string(site.gate.file("list.yaml")).unwrap();
    assert_eq!(text, "allowed_tools:\n  - hub.read\n");
}
