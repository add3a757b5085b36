//! The decision about a call, without calling.

use serde_json::json;

use super::html::{between, encoded, escaped, in_prose, plain};
use super::kit::Site;
use super::matrix::world;

fn ask(site: &Site, agent: &str, tool: &str, arguments: &str) -> String {
    let form =
        format!("agent={}&tool={}&args={}", encoded(agent), encoded(tool), encoded(arguments));
    let reply = site.post(&format!("{}ask", site.path), &form);
    assert_eq!(reply.status, 200, "{reply:?}");
    String::from_utf8(reply.body).unwrap()
}

#[test]
fn it_decides_without_calling_the_server() {
    let site = Site::of(world());
    site.table();
    let form = site.html("ask");
    for option in
        ["value=\"=reader\"", "value=\"=bot\"", ">no name</option>", ">another name…</option>"]
    {
        assert!(form.contains(option), "{option}: {form}");
    }
    assert!(form.contains("limits and hooks do not run"));
    for (agent, tool, arguments) in [
        ("=bot", "hub/create_issue", "{\"repo\": \"a/b\"}"),
        ("=bot", "hub/create_issue", "{\"repo\": \"c/d\"}"),
        ("=reader", "files/get_issue", ""),
        ("=reader", "hub/manage", "{\n  \"action\": \"add\"\n}"),
        ("", "hub/list_issues", "{}"),
        ("=keeper", "db/get_issue", "{}"),
    ] {
        let html = ask(&site, agent, tool, arguments);
        let mut command = vec!["can-i"];
        let name = agent.strip_prefix('=');
        if let Some(name) = name {
            command.extend(["--as", name]);
        }
        let given = if arguments.is_empty() { "{}" } else { arguments };
        command.extend([tool, given]);
        let facts = site.command(&command);
        let verdict = facts["verdict"].as_str().unwrap();
        assert!(
            html.contains(&format!("<p class=\"large word {verdict}\">")),
            "{agent} {tool}: {html}"
        );
        let reason = between(&html, "<p class=\"reason\">", "</p>")[0];
        let expected = format!("Because {}", in_prose(facts["reason"].as_str().unwrap()));
        assert_eq!(plain(reason), expected, "{facts} {html}");
        if let Some(location) = facts["location"].as_str() {
            assert!(html.contains(&escaped(location)), "{location} {html}");
        }
        // The form keeps its values.
        assert!(html.contains(&format!("value=\"{}\"", escaped(tool))), "{html}");
        for line in arguments.lines() {
            assert!(html.contains(&escaped(line)), "{html}");
        }
    }
    assert_eq!(site.gate.calls("hub").len() + site.gate.calls("files").len(), 0);
    assert!(
        !site.gate.records().iter().any(|one| one["kind"] == "intent" || one["kind"] == "refusal")
    );
}

#[test]
fn an_error_is_shown_at_its_field() {
    let site = Site::of(world());
    site.table();
    for (agent, tool, arguments, at, why) in [
        ("=bot", "hub/get_issue", "{\n  \"a\": }", "wrong-args", "(line 2, column 8)"),
        ("=bot", "hub/get_issue", "[1]", "wrong-args", "Not a JSON object"),
        ("=bot", "hub/get_issue", "{\"a\": 1, \"a\": 2}", "wrong-args", "Not a JSON object"),
        ("=bot", "get_issue", "", "wrong-tool", "Enter SERVER/TOOL"),
        ("=bot", "", "", "wrong-tool", "Enter SERVER/TOOL"),
        ("=bot", "hob/get_issue", "", "wrong-tool", "Did you mean “hub”?"),
        ("=bot", "hub/shown", "", "wrong-tool", "the display name of “internal”"),
        ("other", "hub/get_issue", "", "wrong-agent", "Enter the agent"),
    ] {
        let html = ask(&site, agent, tool, arguments);
        let place = format!("aria-describedby=\"{at}\"");
        assert!(html.contains(&place), "{tool} {arguments}: {html}");
        let said = html.split(&format!("id=\"{at}\">")).nth(1).unwrap().split('<').next().unwrap();
        assert!(said.contains(why), "{said}");
        assert!(!html.contains("class=\"large"), "{html}");
    }
}

#[test]
fn another_name_and_a_prefilled_form() {
    let site = Site::of(world());
    site.table();
    let form = "agent=other&name=stranger&tool=hub%2Flist_issues&args=";
    let reply = site.post(&format!("{}ask", site.path), form);
    let html = String::from_utf8(reply.body).unwrap();
    assert!(html.contains("<p class=\"large word allow\">"), "{html}");
    assert!(
        html.contains("value=\"other\" selected") && html.contains("value=\"stranger\""),
        "{html}"
    );
    let html = site.part("explain?agent=bot&server=hub&tool=create_issue");
    let link = html.split("<a href=\"ask?").nth(1).unwrap().split('"').next().unwrap();
    let html = site.html(&format!("ask?{}", link.replace("&amp;", "&")));
    assert!(
        html.contains("value=\"=bot\" selected") && html.contains("value=\"hub/create_issue\""),
        "{html}"
    );
    let tools = site.part("ask/tools?tool=ISSUE");
    assert!(tools.contains("value=\"hub/get_issue\"") && !tools.contains("delete_repo"), "{tools}");
    assert_eq!(json!(site.get("ask/other", &[]).status), 404);
}
