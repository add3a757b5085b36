//! The active policy, with counts, findings and tests, and without secrets.

use serde_json::{Value, json};

use super::harness::{Setup, eventually, names, setup};
use super::html::{between, unescaped};
use super::kit::Site;

fn call(site: &Site, agent: &str, name: &str) -> Value {
    let params = json!({"name": name, "arguments": {"path": "/etc/x"}});
    site.gate.agent(agent).modern("tools/call", params)
}

fn ready() -> Setup {
    let deny = json!([{"tool": "write", "when": "args.path.startsWith('/etc')"}]);
    setup().stdio("files", "modern", names(&["read", "write", "drop"])).agents(json!({
        "all": {"allow": {"servers": ["*"], "tools": {"files": ["*"], "d*": ["hint:read-only"]}},
            "deny": {"tools": {"files": deny}}},
        "reader": {"allow": {"servers": ["*"], "tools": {"files": ["read"]}},
            "deny": {"tools": {"*": ["drop"]}}},
    }))
}

/// The count shown for a rule, by its path: calls, and calls of names that it hides.
fn hits(html: &str, path: &str) -> (u64, u64) {
    let title = format!(" title=\"{path}: ");
    let html = unescaped(html);
    let after = html.split(&title).nth(1).unwrap_or_else(|| panic!("{path} in {html}"));
    let (_, shown) = after.split_once('>').unwrap();
    let shown = shown.split("</span>").next().unwrap().replace("</i>", "");
    let (calls, unseen) = shown.split_once("<i>+").unwrap_or((&shown, "0"));
    (calls.parse().unwrap(), unseen.parse().unwrap())
}

/// The source line next to which a rule's count is shown.
fn line_of(html: &str, path: &str) -> String {
    let html = unescaped(html);
    let lines = html.split("<div class=\"l\"").skip(1);
    let mut lines = lines.filter(|line| line.contains(&format!(" title=\"{path}: ")));
    let line = lines.next().unwrap_or_else(|| panic!("{path} in {html}"));
    between(line, "<code role=\"cell\">", "</code>")[0].trim().to_string()
}

fn status(site: &Site) -> Value {
    site.command(&["status"])[0].clone()
}

#[test]
fn each_rule_is_shown_with_the_calls_that_it_decided() {
    let site = Site::of(ready());
    for _ in 0..3 {
        call(&site, "all", "files__read");
    }
    call(&site, "all", "files__write");
    call(&site, "reader", "files__read");
    // One that a rule hides, one that no rule allows, and one that does not exist.
    for name in ["files__drop", "files__drop", "files__write", "files__nothing"] {
        call(&site, "reader", name);
    }
    let html = site.html("policy");
    assert_eq!(hits(&html, "agents.all.allow.tools.files[0]"), (3, 0));
    assert_eq!(hits(&html, "agents.all.deny.tools.files[0]"), (1, 0));
    assert!(html.contains("agents.all.deny.tools.files[0]: 1 call\""), "{html}");
    assert_eq!(hits(&html, "agents.reader.allow.tools.files[0]"), (1, 0));
    assert_eq!(hits(&html, "agents.reader.allow.servers[0]"), (0, 0));
    let dropped = "agents.reader.deny.tools[\"*\"][0]";
    assert_eq!(hits(&html, dropped), (0, 2));
    // The count is next to the line of its rule, as in the file.
    assert_eq!(line_of(&html, dropped), "\"drop\"");
    let at = line_of(&html, "agents.all.deny.tools.files[0]");
    assert!(at == "{" || at.contains("write"), "{at}");
    let names = between(&html, "<section class=\"unseen\">", "</section>")[0];
    let names = unescaped(names);
    for said in ["files__nothing", "no server has a tool of this name now", "files__write"] {
        assert!(names.contains(said), "{said}: {names}");
    }
    // `status` has the same counts.
    let policy = &status(&site)["policy"];
    assert_eq!((&policy["decided"], &policy["refused_unseen"]), (&json!(5), &json!(4)));
    let by_rule = policy["hits"].as_array().unwrap();
    let of = |path: &str| by_rule.iter().find(|hit| hit["rule"] == path).map(|hit| &hit["calls"]);
    assert_eq!(of("agents.all.allow.tools.files[0]"), Some(&json!(3)));
    assert_eq!(of(dropped), None);
    // Counts are updated live, each in its place.
    call(&site, "reader", "files__read");
    let news = site.part("policy/hits");
    assert_eq!(hits(&news, "agents.reader.allow.tools.files[0]"), (2, 0));
    let parts = between(&news, "<span ", ">");
    assert!(parts.iter().all(|part| !part.contains("id=") || part.contains("hx-swap-oob")));
}

#[test]
fn hidden_and_nonexistent_are_counted_alike() {
    let site = Site::of(ready());
    let answers = ["files__drop", "files__none"].map(|name| {
        let answer = call(&site, "reader", name).to_string();
        let decision = between(&answer, "\"decision_id\":\"", "\"")[0].to_string();
        answer.replace(name, "NAME").replace(&decision, "ID")
    });
    assert_eq!(answers[0], answers[1]);
    let policy = &status(&site)["policy"];
    assert_eq!((&policy["decided"], &policy["refused_unseen"]), (&json!(0), &json!(2)));
}

#[test]
fn a_changed_rule_begins_at_zero_and_a_refused_reload_is_shown_without_the_files_lines() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    let before = site.html("policy");
    assert!(before.contains("by startup") && before.contains("none yet"));
    let version = |html: &str| between(html, "<dt>Version</dt><dd><code>", "<")[0].to_string();
    let path = site.gate.file("toolward.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    // An invalid line can contain text that must not be shown.
    let bad = good.replacen("\"listen\"", "\"lissten\": \"planted-secret\", \"listen\"", 1);
    std::fs::write(&path, &bad).unwrap();
    let refused = eventually("it is refused", || {
        let html = site.html("policy");
        html.contains("The last reload was rejected").then_some(html)
    });
    assert!(refused.contains("lissten") && !refused.contains("planted-secret"), "{refused}");
    assert!(refused.contains("The file on disk has changed"));
    assert_eq!(version(&refused), version(&before));
    assert_eq!(hits(&refused, "agents.all.allow.tools.files[0]"), (1, 0));
    for view in ["", "live", "servers", "ask"] {
        assert!(!site.html(view).contains("planted-secret"), "{view}");
    }
    std::fs::write(&path, good.replace("\"drop\"", "\"dr*p\"")).unwrap();
    let taken_up = eventually("it is applied", || {
        let html = site.html("policy");
        html.contains(">applied</span>").then_some(html)
    });
    assert_ne!(version(&taken_up), version(&before));
    assert!(taken_up.contains("by a reload") && !taken_up.contains("The file on disk has changed"));
    // A rule that the reload did not change keeps its count.
    assert_eq!(hits(&taken_up, "agents.all.allow.tools.files[0]"), (1, 0));
    assert_eq!(hits(&taken_up, "agents.reader.deny.tools[\"*\"][0]"), (0, 0));
    assert_eq!(line_of(&taken_up, "agents.reader.deny.tools[\"*\"][0]"), "\"dr*p\"");
}

#[test]
fn no_view_shows_a_secret() {
    let planted = |number: usize| format!("planted-{number}-secret");
    let mut setup = ready()
        .with("files", "env", json!({"A": planted(1), "B": "planted-2-secret ${FROM_ENV}"}))
        .env("FROM_ENV", "planted-3-secret")
        .server(
            "web",
            json!({
                "url": "http://127.0.0.1:9/planted-4-secret/mcp?k=planted-5-secret",
                "headers": {"X-Key": planted(6)},
                "headers_for": {"all": {"X-Key": planted(7)}},
                "oauth": {"token_url": "http://127.0.0.1:9/planted-8-secret",
                    "client_id": planted(9), "client_secret": "${FROM_ENV}"},
            }),
        )
        .set(
            "hooks",
            json!([
                {"name": "one", "exec": ["/bin/true", "--key=planted-11-secret"],
                    "env": {"K": planted(12)}, "tools": ["never"]},
                {"name": "two", "http": "http://127.0.0.1:9/planted-13-secret", "tools": ["never"]},
            ]),
        );
    let list = setup.path("files.json").display().to_string();
    let args = json!([
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/both.py"),
        "stdio",
        "modern",
        setup.path("files.log"),
        list,
        "--token",
        planted(14)
    ]);
    setup = setup.with("files", "args", args);
    let site = Site::of(setup);
    call(&site, "all", "files__read");
    call(&site, "all", "web__thing");
    let id = site.gate.records().last().unwrap()["id"].as_str().unwrap().to_string();
    let views = ["", "live", "live?kinds=all", "policy", "servers", "ask", "servers/now"];
    let one = format!("live?id={id}");
    for view in views.into_iter().chain([one.as_str()]) {
        let html = site.html(view);
        assert!(!html.contains("planted-"), "{view}: {html}");
        assert!(!html.contains("token-of-agent-all"), "{view}: {html}");
    }
    let status = site.raw(
        "GET /status HTTP/1.1",
        &[("Authorization", &format!("Bearer {}", site.token))],
        "",
    );
    let status = String::from_utf8(status.body).unwrap();
    assert!(!status.contains("planted-"), "{status}");
    // Values that are not secrets are shown.
    let policy = site.html("policy");
    for said in ["${FROM_ENV}", "http://127.0.0.1:9/•••?•••", "/bin/true", "&quot;python3&quot;"]
    {
        assert!(policy.contains(said), "{said}: {policy}");
    }
}

#[test]
fn findings_and_tests_are_those_of_the_commands() {
    let site = Site::of(
        ready()
            .stdio("down", "modern", names(&["x"]))
            .with("down", "command", json!("/nonexistent/program"))
            .set("allowed_tools", json!(["read", "write", "drop", "x", "read"]))
            .set("tests", json!([
                {"as": "reader", "allow": ["files/read"], "hidden": ["files/drop"]},
                {"as": "all", "deny": ["files/write {\"path\": \"/etc/x\"}"], "allow": ["down/x"]},
            ])),
    );
    call(&site, "all", "files__read");
    let html = eventually("the list is known", || {
        let html = site.html("policy");
        (html.contains("3 of 4 passed")).then_some(html)
    });
    let text = unescaped(&html);
    assert!(text.contains("1 undecided") && text.contains("not known"), "{text}");
    for said in ["files/write {\"path\": \"/etc/x\"}", "covers `files/read`"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let lists = tempfile::tempdir().unwrap();
    let tools = names(&["read", "write", "drop"]);
    std::fs::write(lists.path().join("files.json"), json!({"tools": tools}).to_string()).unwrap();
    let lists = lists.path().to_str().unwrap();
    let check = site.command(&["check", "--tools", lists]);
    let found: Vec<&str> = check["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["message"].as_str().unwrap())
        .filter(|message| !message.contains("is not set"))
        .collect();
    assert!(found.iter().any(|message| message.contains("`read`")), "{found:?}");
    for message in &found {
        assert!(text.contains(message), "{message}: {text}");
    }
    // A layer that is not from a file is shown as a table.
    let site = Site::of(ready().env("TOOLWARD_ALLOWED_TOOLS", "read write"));
    call(&site, "all", "files__read");
    let html = site.html("policy");
    let loose = html.split("Rules from flags, variables").nth(1).unwrap();
    assert_eq!(hits(loose, "TOOLWARD_ALLOWED_TOOLS[0]"), (1, 0));
    assert_eq!(hits(loose, "TOOLWARD_ALLOWED_TOOLS[1]"), (0, 0));
}
