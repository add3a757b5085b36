//! Elements that every view has, and marks in the table next to verdicts.

use serde_json::json;

use super::harness::{Caller, eventually, everyone, names, setup};
use super::html::{attribute, between, unescaped};
use super::kit::Site;

/// The cell of a tool and a column.
fn cell(html: &str, tool: &str, column: usize) -> String {
    let row = html.split("<div class=\"r\"").find(|row| attribute(row, "data-tool") == Some(tool));
    let row = row.unwrap_or_else(|| panic!("{tool} in {html}"));
    unescaped(between(row, "<i class=\"", "</i>")[column])
}

fn legend(html: &str) -> String {
    between(html, "<span class=\"legend\"", "</form>")[0].to_string()
}

#[test]
fn every_view_has_one_title() {
    let site = Site::of(setup().agents(everyone()).stdio("s", "modern", names(&["one"])));
    site.table();
    let explain = "explain?agent=a&server=s&tool=one";
    for view in ["", "live", "ask", "policy", "servers", "agent?name=a", "agent", explain] {
        let html = site.html(view);
        assert_eq!(html.matches("<h1").count(), 1, "{view}: {html}");
    }
    for view in ["nothing", "explain"] {
        let html = String::from_utf8(site.get(view, &[]).body).unwrap();
        assert_eq!(html.matches("<h1").count(), 1, "{view}: {html}");
    }
    let login = String::from_utf8(site.raw("GET / HTTP/1.1", &[], "").body).unwrap();
    assert_eq!(login.matches("<h1").count(), 1, "{login}");
}

#[test]
fn the_legend_and_the_filters_have_what_exists() {
    let site = Site::of(setup().agents(everyone()).stdio("s", "modern", names(&["one"])));
    let html = site.table();
    assert!(
        legend(&html).contains("allow") && !legend(&html).contains("deny"),
        "{}",
        legend(&html)
    );
    for word in ["depends", "ask", "limit", "hook", "changed", "execute_tool"] {
        assert!(!legend(&html).contains(word), "{word}: {}", legend(&html));
    }
    let verdicts = between(&html, "name=\"verdict\" value=\"", "\"");
    assert_eq!(verdicts, ["allow"]);
    // A selected filter can be removed.
    let verdicts = site.html("?verdict=ask");
    assert!(verdicts.contains("value=\"ask\" checked"), "{verdicts}");
}

#[test]
fn limits_and_hooks_are_in_the_cells() {
    let site = Site::of(
        setup()
            .stdio("s", "modern", names(&["read", "write"]))
            .agents(json!({
                "a": {"allow": {"servers": ["s"]}, "limits": {"tools": {"s/write": "3/min"}}},
                "b": {"allow": {"servers": ["s"], "tools": {"s": [{"tool": "read", "when": "args.x == 1", "limit": "9/h"}]}}},
            }))
            .set("hooks", json!([{"name": "vet", "exec": ["/bin/true"], "tools": ["write"], "agents": ["a"]}])),
    );
    let html = site.table();
    let write = cell(&html, "write", 0);
    assert!(
        write.contains("<small class=\"lim\">3/min</small><small class=\"hk\">vet</small>"),
        "{write}"
    );
    assert!(
        write.contains(
            "aria-label=\"allow, at most 3/min (agents.a.limits.tools[\"s/write\"]), hook vet\""
        ),
        "{write}"
    );
    assert!(!cell(&html, "read", 0).contains("<small"));
    let read = cell(&html, "read", 1);
    assert!(read.starts_with("depends") && read.contains("at most 9/h for some calls"), "{read}");
    // A limit over all tools is marked in each cell, and named in the column's header.
    let site = Site::of(
        setup()
            .stdio("s", "modern", names(&["read"]))
            .agents(json!({"a": {"allow": {"servers": ["s"]}, "limits": {"calls": "80/min"}}})),
    );
    let every = site.table();
    assert!(cell(&every, "read", 0).contains("<small class=\"lim\"></small>"), "{every}");
    assert!(cell(&every, "read", 0).contains("at most 80/min"), "{every}");
    let head = between(&every, "data-agent=\"a\"", "</div>")[0];
    assert!(head.contains("<small class=\"lim\">80/min</small>"), "{head}");
    // A denied tool has no guards in front of it.
    assert!(!cell(&html, "write", 1).contains("<small"));
    assert!(legend(&html).contains("limit") && legend(&html).contains("hook"));
}

#[test]
fn servers_collapse_with_their_counts() {
    let site = Site::of(
        setup()
            .stdio("one", "modern", names(&["a1", "a2", "a3"]))
            .stdio("two", "modern", names(&["b1"]))
            .agents(json!({"a": {"allow": {"servers": ["*"], "tools": {"one": ["a1", "a2"]}}}})),
    );
    let html = site.table();
    let groups: Vec<&str> = html.split("<div class=\"g\"").skip(1).collect();
    assert!(groups.iter().all(|group| attribute(group, "aria-expanded") == Some("true")));
    assert!(groups[0].contains("3 tools") && groups[0].contains(">2</span>"), "{}", groups[0]);
    let toggle = between(groups[0], "class=\"fold\" href=\"", "\"")[0];
    assert_eq!(toggle, "./?fold=one");
    let html = site.html("?fold=one");
    let group = html.split("<div class=\"g\"").nth(1).unwrap();
    assert_eq!(attribute(group, "aria-expanded"), Some("false"));
    assert!(!html.contains("data-tool=\"a1\"") && html.contains("data-tool=\"b1\""));
    // The count includes the tools that are not drawn.
    assert!(html.contains("role=\"status\">4 tools</span>"), "{html}");
    assert!(html.contains("name=\"fold\" value=\"one\""), "filters keep it: {html}");
    let html = site.html("?fold=*&open=two");
    assert!(!html.contains("data-tool=\"a1\"") && html.contains("data-tool=\"b1\""));
    // A search shows its results.
    let html = site.html("?fold=one&q=a1");
    assert!(html.contains("data-tool=\"a1\"") && html.contains("1 of 3 tools"), "{html}");
}

#[test]
fn a_reload_marks_the_cells_that_it_changed() {
    let site =
        Site::of(setup().stdio("s", "modern", names(&["read", "write", "drop"])).agents(json!({
            "a": {"allow": {"servers": ["s"], "tools": {"s": ["read", "write"]}}},
            "b": {"allow": {"servers": ["s"], "tools": {"s": ["read"]}}},
        })));
    // The changes are marked even if the table was not viewed before the reload.
    site.gate.agent("a").modern("tools/list", json!({}));
    let path = site.gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["agents"]["b"]["allow"]["tools"]["s"] =
        json!(["read", {"tool": "write", "limit": "1/min"}]);
    config["agents"]["a"]["limits"] = json!({"tools": {"s/read": "7/min"}});
    std::fs::write(&path, config.to_string()).unwrap();
    let html = eventually("the reload is shown", || {
        let html = site.html("");
        html.contains("class=\"reload\"").then_some(html)
    });
    assert!(html.contains("<b>2</b> cells changed by the reload at"), "{html}");
    let write = cell(&html, "write", 1);
    assert!(
        write.starts_with("allow changed\"") && write.contains("deny before the reload"),
        "{write}"
    );
    let read = cell(&html, "read", 0);
    assert!(
        read.starts_with("allow changed\"") && read.contains("other limits or hooks"),
        "{read}"
    );
    assert!(
        cell(&html, "read", 1).starts_with("allow\"")
            && cell(&html, "drop", 0).starts_with("deny\"")
    );
    assert!(legend(&html).contains("changed"));
    let only = site.html("?changed=1");
    assert!(only.contains("data-tool=\"write\"") && !only.contains("data-tool=\"drop\""), "{only}");
    // The next reload has other changes.
    let token = format!("sha256:{}", "0c".repeat(32));
    config["agents"]["c"] = json!({"tokens": [token], "allow": {"servers": ["s"]}});
    std::fs::write(&path, config.to_string()).unwrap();
    let html = eventually("the next reload is shown", || {
        let html = site.html("");
        html.contains("data-agent=\"c\"").then_some(html)
    });
    assert!(!html.contains("class=\"reload\"") && !html.contains("allow changed"), "{html}");
    assert_eq!(html.matches("<span class=\"added\">new</span>").count(), 1, "{html}");
}

#[test]
fn denials_are_sentences() {
    let site = Site::of(setup().stdio("s", "modern", names(&["read", "write"])).agents(
        json!({"a": {"allow": {"servers": ["s"], "tools": {"s": [
            "read", {"tool": "write", "when": "args.x == 1"},
        ]}}}}),
    ));
    site.table();
    for (name, arguments) in [("s__write", json!({"x": 2})), ("s__nothing", json!({}))] {
        site.gate.agent("a").call(name, arguments);
    }
    let id = site.gate.records().iter().find(|one| one["tool"] == "write").unwrap()["id"].clone();
    let one = format!("live?id={}", id.as_str().unwrap());
    let explain = "explain?agent=a&server=s&tool=write&args=%7B%22x%22%3A2%7D";
    for view in ["live", &one, explain, "agent?name=a"] {
        // Codes are for programs: they may be in attributes.
        let html = site.html(view);
        let text: String =
            html.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect();
        for code in ["6-default-deny", "3-exact-allow", "1-exact-deny", "no-such-tool"] {
            assert!(!text.contains(code), "{view}: {code} in {text}");
        }
    }
    let live = unescaped(&site.html("live"));
    assert!(live.contains("<span class=\"sentence\">"), "{live}");
}

#[test]
fn it_shows_that_calls_may_go_unrecorded() {
    let site = Site::of(
        setup()
            .agents(everyone())
            .stdio("s", "modern", names(&["one"]))
            .set("audit", json!({"dir": "audit", "required": false})),
    );
    let html = site.html("");
    assert!(html.contains("calls are forwarded and go unrecorded"), "{html}");
    assert!(!html.contains("banner loud"), "{html}");
    // While the log cannot be written, they are shown.
    site.table();
    std::fs::rename(site.gate.file("audit"), site.gate.file("away")).unwrap();
    let answer = site.gate.agent("a").call("s__one", json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    let html = site.html("");
    assert!(html.contains("banner loud") && html.contains("The audit log cannot be written"));
    assert_eq!(html.matches("go unrecorded").count(), 1, "{html}");
    std::fs::rename(site.gate.file("away"), site.gate.file("audit")).unwrap();
    assert!(!site.html("").contains("banner loud"));
    let site = Site::of(setup().agents(everyone()).stdio("s", "modern", names(&["one"])));
    assert!(!site.html("").contains("unrecorded"));
}

#[test]
fn comments_of_the_configuration_are_shown() {
    let setup = setup().agents(everyone()).stdio("s", "modern", names(&["one"]));
    let policy = "# Who may use what; see the handbook, page 7.\nallowed_tools: [one]   # and nothing else\n# old_token: planted-secret\n";
    std::fs::write(setup.path("policy.yaml"), policy).unwrap();
    let site = Site::of(setup.set("policies", json!(["policy.yaml"])));
    let html = site.html("policy");
    for said in ["# Who may use what; see the handbook, page 7.", "# and nothing else"] {
        assert!(html.contains(said), "{said}: {html}");
    }
    assert!(!html.contains("planted-secret"), "{html}");
}
