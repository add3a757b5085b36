//! The matrix of agents and tools matches `toolward ls` cell by cell.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::harness::{Caller, NEWEST_LEGACY, Setup, eventually, everyone, names, setup};
use super::html::{attribute, between, decoded, encoded, escaped, unescaped};
use super::kit::{Site, issue_tools};

/// Names that would have an effect if they were shown unescaped.
pub const HOSTILE: [&str; 4] = [
    "<img src=x onerror=alert(1)>",
    "a\" onmouseover=\"alert(1)",
    "'><script>alert(1)</script>",
    "\u{1b}[31mred\u{202e}\u{200b}\r\nX-Evil: 1",
];

pub fn tools() -> Value {
    let mut tools = issue_tools();
    for name in HOSTILE {
        tools.push(json!({
            "name": name,
            "description": "<script>alert(2)</script>",
            "inputSchema": {"type": "object"},
        }));
    }
    json!(tools)
}

/// A policy with each kind of rule, and agents that see different things.
pub fn world() -> Setup {
    setup()
        .stdio("hub", "modern", tools())
        .stdio("files", "legacy", tools())
        .stdio("db", "both", tools())
        .server("gone", json!({"command": "/nonexistent/program"}))
        .with("hub", "expose", json!([
            "get_*", "list_*", "delete_*", "create_*", "manage", "<*", "a*", "'*", "\u{1b}*",
            {"tool": "internal", "display_name": "shown"},
        ]))
        .with("files", "hints", json!({"internal": ["read-only", "billing"]}))
        .agents(json!({
            "reader": {"allow": {"servers": ["*"], "tools": {"*": ["hint:read-only", "manage.list"]}}},
            "keeper": {
                "allow": {"servers": ["*"]},
                "deny": {"servers": ["db"], "tools": {"*": ["delete_*", "manage.remove"]}},
            },
            "bot": {"allow": {"servers": ["hub", "files"], "tools": {
                "hub": [{"tool": "create_*", "when": "args.repo == 'a/b'"}, "internal"],
                "files": [{"tool": "get_issue", "limit": "5/min"}, "<*", "*red*"],
            }}},
            "nobody": {"allow": {"servers": []}},
            "default": {"allow": {"servers": ["hub"], "tools": {"hub": ["list_issues"]}}},
        }))
        .set("defaults", json!({"deny_on_missing_agent": false}))
}

/// The servers' lists as flags: with them a command starts no servers, which would take long.
pub fn lists(site: &Site) -> [String; 3] {
    ["hub", "files", "db"].map(|server| {
        let file = site.gate.file(&format!("{server}.answer"));
        std::fs::write(&file, json!({"tools": tools()}).to_string()).unwrap();
        format!("--tools={server}={}", file.display())
    })
}

/// The cells of a table, by server, tool and agent; the agents; the lines.
struct Read {
    cells: BTreeMap<(String, String, Option<String>), String>,
    agents: Vec<Option<String>>,
    rows: usize,
}

fn read(html: &str) -> Read {
    let head = between(html, "<div class=\"head\"", "<div class=\"chunk\"")[0];
    let columns = head.split("<div class=\"c\"").skip(1);
    let agents: Vec<Option<String>> =
        columns.map(|column| attribute(column, "data-agent").map(decoded)).collect();
    let mut cells = BTreeMap::new();
    let mut rows = 0;
    for row in html.split("<div class=\"r\"").skip(1) {
        rows += 1;
        let row = row.split("<div class=\"g\"").next().unwrap();
        let server = decoded(attribute(row, "data-server").unwrap());
        let tool = decoded(attribute(row, "data-tool").unwrap());
        let words: Vec<&str> = between(row, "<i class=\"", "\"");
        assert_eq!(words.len(), agents.len(), "{row}");
        for (agent, classes) in agents.iter().zip(words) {
            let word = classes.split(' ').next().unwrap();
            cells.insert((server.clone(), tool.clone(), agent.clone()), word.to_string());
        }
    }
    Read { cells, agents, rows }
}

#[test]
fn every_cell_matches_ls() {
    let site = Site::of(world());
    let html = site.table();
    let seen = read(&html);
    let names: Vec<Option<&str>> = seen.agents.iter().map(Option::as_deref).collect();
    assert_eq!(names[names.len() - 1], None);
    for name in ["reader", "keeper", "bot", "nobody", "default"] {
        assert!(names.contains(&Some(name)), "{names:?}");
    }
    let lists = lists(&site);
    let mut compared = 0;
    let mut verdicts = BTreeMap::new();
    for (column, agent) in seen.agents.iter().enumerate() {
        let mut arguments = vec!["ls", "--all"];
        arguments.extend(lists.iter().map(String::as_str));
        if let Some(agent) = agent {
            arguments.extend(["--as", agent]);
        }
        let listed = site.command(&arguments);
        let listed = listed.as_array().unwrap();
        let mut sees = 0;
        for row in listed {
            let text = |key: &str| row[key].as_str().unwrap().to_string();
            let key = (text("server"), text("tool"), agent.clone());
            assert_eq!(seen.cells.get(&key), Some(&text("verdict")), "{key:?}");
            *verdicts.entry(text("verdict")).or_insert(0) += 1;
            sees += usize::from(text("verdict") != "deny");
            compared += 1;
            // The client-facing name, and the description.
            let line = html.split("<div class=\"r\"").find(|line| {
                attribute(line, "data-server") == Some(&key.0)
                    && attribute(line, "data-tool").map(decoded).as_deref() == Some(&key.1)
            });
            let line = line.unwrap();
            assert!(
                line.contains(&format!("<span class=\"n\">{}</span>", escaped(&key.1))),
                "{line}"
            );
            let renamed = text("name") != key.1;
            assert_eq!(line.contains("<span class=\"as\">"), renamed, "{line}");
            assert!(!renamed || line.contains(&escaped(&text("name"))), "{line}");
            let hints: Vec<String> =
                between(line.split("<i ").next().unwrap(), "data-hint=\"", "\"")
                    .into_iter()
                    .map(unescaped)
                    .collect();
            assert_eq!(json!(hints), row["hints"], "{line}");
        }
        let total = format!("{sees}<span class=\"of\">/{}</span>", listed.len());
        let heads = between(&html, "<span class=\"sees\">", "</div>");
        assert!(heads[column].starts_with(&total), "{} {total}", heads[column]);
    }
    assert_eq!(compared, seen.cells.len());
    assert!(verdicts.len() == 3 && verdicts.values().all(|count| *count > 3), "{verdicts:?}");
    // An unavailable server is shown with the reason.
    let gone = html
        .split("<div class=\"g\"")
        .find(|group| attribute(group, "data-server") == Some("gone"));
    assert!(gone.unwrap().contains("class=\"why\""), "{gone:?}");
}

#[test]
fn agents_with_tokens_and_no_rules_have_a_column_and_unnamed_callers_do_not() {
    let setup = setup()
        .stdio("hub", "modern", tools())
        .agents(json!({"reader": {}, "keeper": {}}))
        .set("policies", json!(["policy.yaml"]));
    let policy = json!({"agents": {
        "reader": {"allow": {"servers": ["*"], "tools": {"*": ["hint:read-only"]}}},
        "default": {"allow": {"servers": ["hub"], "tools": {"hub": ["list_issues"]}}},
    }, "defaults": {"deny_on_missing_agent": false}});
    std::fs::write(setup.path("policy.yaml"), policy.to_string()).unwrap();
    let site = Site::of(setup);
    let seen = read(&site.table());
    let named = |name: &str| Some(name.to_string());
    assert_eq!(seen.agents, [named("reader"), named("default"), named("keeper")]);
    let file = site.gate.file("hub.answer");
    std::fs::write(&file, json!({"tools": tools()}).to_string()).unwrap();
    let list = format!("--tools=hub={}", file.display());
    let listed = site.command(&["ls", "--all", "--as", "keeper", &list]);
    let mut allowed = 0;
    for row in listed.as_array().unwrap() {
        let text = |key: &str| row[key].as_str().unwrap().to_string();
        let key = (text("server"), text("tool"), named("keeper"));
        assert_eq!(seen.cells.get(&key), Some(&text("verdict")), "{key:?}");
        allowed += usize::from(text("verdict") == "allow");
    }
    assert_eq!(allowed, 1, "{listed}");
    // The same agents everywhere.
    let bearer = format!("Bearer {}", site.token);
    let status = site.raw("GET /status HTTP/1.1", &[("Authorization", &bearer)], "");
    let status: Value = serde_json::from_slice(&status.body).unwrap();
    assert_eq!(status["agents"], json!(["reader", "default", "keeper"]));
    assert!(site.html("live").contains("value=\"=keeper\""));
    let ask = site.html("ask");
    assert!(ask.contains("value=\"=keeper\"") && !ask.contains(">no name</option>"), "{ask}");
    // A query for unnamed callers shows the view of such a caller.
    let form = "agent=&tool=hub%2Flist_issues&args=";
    let told = site.post(&format!("{}ask", site.path), form);
    let told = String::from_utf8(told.body).unwrap();
    assert!(told.contains("get 401 before any rule") && !told.contains("class=\"large"), "{told}");
    let told = site.html("explain?agent=&server=hub&tool=list_issues");
    assert!(told.contains("get 401 before any rule"), "{told}");
    let nobody = site.gate.nobody().modern_reply(json!(1), "tools/list", json!({}));
    assert_eq!(nobody.status, 401, "{nobody:?}");
}

#[test]
fn hostile_names_are_text() {
    let site = Site::of(world());
    let html = site.table();
    for tool in HOSTILE {
        assert!(!html.contains(tool), "{tool:?}");
        assert!(html.contains(&escaped(tool)), "{tool:?}");
        let view = format!("explain?agent={}&server=hub&tool={}", encoded(tool), encoded(tool));
        for html in [site.part(&view), site.html(&view)] {
            assert!(!html.contains(tool), "{tool:?}");
            assert!(html.contains(&escaped(tool)), "{tool:?} {html}");
            assert!(!html.contains("no-such-tool"), "{html}");
        }
        let html =
            site.html(&format!("?q={0}&server={0}&agent={0}&hint={0}&verdict={0}", encoded(tool)));
        assert!(!html.contains(tool), "{tool:?}");
    }
    for html in [&html, &site.html("ask"), &site.html("ask?agent=%3D%3Cu%3E&tool=%22%3E%3Cu%3E")] {
        assert!(!html.contains("alert(1)</script>") && !html.contains("<img src=x"));
        assert!(
            !html.contains('\u{1b}') && !html.contains('\u{202e}') && !html.contains('\u{200b}')
        );
        assert!(!html.contains("<u>"), "{html}");
    }
    let wrong = site.get(&format!("explain?server={0}&tool=x", encoded(HOSTILE[0])), &[]);
    assert_eq!(wrong.status, 400);
    assert!(!String::from_utf8(wrong.body).unwrap().contains(HOSTILE[0]));
}

#[test]
fn filters_leave_what_was_asked_for() {
    let site = Site::of(world());
    let all = read(&site.table());
    let with = |filter: &str| read(&site.html(&format!("?{filter}")));
    let one = with("agent=bot");
    assert_eq!((one.agents.len(), one.rows), (1, all.rows));
    let none = with("agent=");
    assert_eq!(none.agents, [None]);
    let two = with("agent=bot&agent=reader&verdict=depends");
    assert_eq!(two.agents.len(), 2);
    type Wanted<'w> = &'w dyn Fn(&str, &str, Option<&str>, &str) -> bool;
    let rows = |wanted: Wanted<'_>| {
        let kept = all.cells.iter().filter(|((server, tool, agent), verdict)| {
            wanted(server, tool, agent.as_deref(), verdict)
        });
        let kept: std::collections::BTreeSet<_> =
            kept.map(|((server, tool, _), _)| (server.clone(), tool.clone())).collect();
        kept.len()
    };
    let wanted = rows(&|_, _, agent, verdict| {
        verdict == "depends" && (agent == Some("bot") || agent == Some("reader"))
    });
    assert!(wanted > 0);
    assert_eq!(two.rows, wanted);
    assert_eq!(with("server=hub").rows, rows(&|server, _, _, _| server == "hub"));
    assert_eq!(with("q=ISSUE").rows, rows(&|_, tool, _, _| tool.contains("issue")));
    assert_eq!(
        with("q=hub+issue").rows,
        rows(&|s, tool, _, _| s == "hub" && tool.contains("issue"))
    );
    // Also by the client-facing name.
    assert_eq!(with("q=shown").rows, 1);
    assert_eq!(with("hint=billing").rows, 1);
    let html = site.html("?q=nothing_has_this_name");
    assert!(html.contains("No tool matches"), "{html}");
    // htmx requests a part alone, with the same rows.
    let part = site.part("?server=hub");
    assert!(!part.contains("<html") && part.contains("id=\"matrix\""));
    assert_eq!(read(&part).rows, with("server=hub").rows);
    for bad in ["?q=%ff", "rows", "rows?from=x", "rows?from=-1"] {
        assert_eq!(site.get(bad, &[]).status, 400, "{bad}");
    }
}

#[test]
fn lines_come_as_they_are_needed() {
    let many: Vec<Value> = (0..1000)
        .map(|at| json!({"name": format!("tool_{at:04}"), "inputSchema": {"type": "object"}}))
        .collect();
    let site = Site::of(setup().stdio("s", "modern", json!(many)).agents(json!({
        "a": {"allow": {"servers": ["*"]}, "deny": {"tools": {"s": ["*7"]}}},
    })));
    let html = site.table();
    let chunks: Vec<&str> = html.split("<div class=\"chunk\"").skip(1).collect();
    assert_eq!(chunks.len(), 16);
    let mut seen = Vec::new();
    for chunk in &chunks {
        let from = attribute(chunk, "data-from").unwrap();
        let count: usize = attribute(chunk, "data-count").unwrap().parse().unwrap();
        let rows = site.part(&format!("rows?from={from}"));
        assert_eq!(rows.matches("role=\"row\"").count(), count);
        seen.extend(rows.split("<div class=\"r\"").skip(1).map(|row| {
            assert_eq!(between(row, "<i class=\"", "\"").len(), 1);
            attribute(row, "data-tool").unwrap().to_string()
        }));
    }
    assert_eq!(seen.len(), 1000);
    assert!(seen.windows(2).all(|two| two[0] < two[1]));
    assert!(html.matches("<div class=\"r\"").count() < 200);
    let denied = site.part("rows?from=0&verdict=deny&agent=a");
    assert_eq!(denied.matches("<div class=\"r\"").count(), 63);
    assert!(site.part("rows?from=100000").is_empty());
}

#[test]
fn a_list_that_changes_changes_the_table() {
    // All sessions and the admin UI share one process of it.
    let server = setup().agents(everyone()).stdio("s", "legacy", names(&["grow"]));
    let site = Site::of(server.with("s", "share", json!(true)));
    let html = site.table();
    assert!(html.contains("data-tool=\"grow\"") && !html.contains("data-tool=\"later\""));
    let session = site.gate.agent("a").session_of(NEWEST_LEGACY);
    session.call("s__grow", json!({"tool": "later"}));
    eventually("the new tool is there", || {
        site.html("").contains("data-tool=\"later\"").then_some(())
    });
}

#[test]
fn important_notices_are_in_every_view() {
    let tools = || names(&["one"]);
    let site =
        Site::of(setup().agents(everyone()).stdio("s", "modern", tools()).flag("--allow-all"));
    for view in ["", "ask", "explain?agent=a&server=s&tool=one"] {
        let html = site.html(view);
        assert!(
            html.contains("banner loud") && html.contains("the policy is not enforced"),
            "{html}"
        );
    }
    let html = site.part("explain?agent=stranger&server=s&tool=one");
    assert!(html.contains("The policy is not enforced"), "{html}");
    let site = Site::of(
        setup().agents(everyone()).stdio("s", "modern", tools()).set("read_only", json!(true)),
    );
    let html = site.html("");
    assert!(html.contains("Read-only mode") && !html.contains("banner loud"), "{html}");
    let site = Site::of(setup().stdio("s", "modern", tools()));
    assert!(site.html("ask").contains("There is no policy"));
}
