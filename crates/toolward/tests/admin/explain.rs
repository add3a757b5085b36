//! Explanations: the facts of `toolward explain`, and the refusal that the agent gets.

use serde_json::{Value, json};

use super::harness::Caller;
use super::html::{between, encoded, escaped, in_prose, plain};
use super::kit::Site;
use super::matrix::{HOSTILE, lists, world};

/// Every fact is in the view, in order.
fn agrees(html: &str, facts: &Value) {
    let mut rest = html;
    let mut next = |what: &str| {
        let wanted = escaped(what);
        match rest.find(&wanted) {
            Some(at) => rest = &rest[at + wanted.len()..],
            None => panic!("{wanted:?} is not in what follows: {rest}\n{facts:#}\n{html}"),
        }
    };
    let text = |value: &Value| value.as_str().unwrap().to_string();
    next(&text(&facts["verdict"]));
    facts["hints"].as_array().unwrap().iter().for_each(|hint| next(&text(hint)));
    next("Because");
    let reason = between(html, "<p class=\"reason\">", "</p>")[0];
    assert_eq!(plain(reason), format!("Because {}", in_prose(&text(&facts["reason"]))));
    match facts["rule"].as_str() {
        Some(rule) => {
            next(&text(&facts["location"]));
            next(rule);
        }
        None => assert!(html.contains(&format!("data-step=\"{}\"", text(&facts["step"])))),
    }
    next(if facts["listed"] == true { "It is in the agent" } else { "It is not in the agent" });
    for layer in facts["layers"].as_array().unwrap() {
        next(&text(&layer["name"]));
        if let Some(agent) = layer["agent"].as_str() {
            next(agent);
        }
        next(&text(&layer["verdict"]));
        for step in layer["steps"].as_array().unwrap() {
            next(&text(&step["step"]));
            for tried in step["tried"].as_array().unwrap() {
                next(&format!("tried {}", text(&tried["outcome"])));
                next(&text(&tried["selector"]));
                if let Some(when) = tried["when"].as_str() {
                    next(when);
                }
                next(&text(&tried["location"]));
            }
        }
    }
    let tried = html.matches("<li class=\"tried ").count();
    let all = facts["layers"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|layer| layer["steps"].as_array().unwrap());
    assert_eq!(tried, all.map(|step| step["tried"].as_array().unwrap().len()).sum::<usize>());
}

#[test]
fn its_facts_are_those_of_explain() {
    let site = Site::of(world().set("allowed_tools", json!(["*"])));
    site.table();
    let lists = lists(&site);
    let tools = [
        "get_issue",
        "create_issue",
        "delete_repo",
        "internal",
        "unexposed",
        "manage",
        "missing",
        HOSTILE[0],
    ];
    let arguments = [
        None,
        Some("{}"),
        Some("{\"repo\": \"a/b\"}"),
        Some("{\"action\": \"remove\"}"),
        Some("{\"action\": \"list\"}"),
    ];
    let mut asked = 0;
    for agent in [Some("reader"), Some("keeper"), Some("bot"), Some("stranger"), None] {
        for server in ["hub", "files"] {
            for tool in tools {
                for arguments in arguments {
                    // All of them would take too long; these are a spread sample.
                    asked += 1;
                    if asked % 3 != 0 {
                        continue;
                    }
                    let subject = format!("{server}/{tool}");
                    let mut command = vec!["explain"];
                    if let Some(agent) = agent {
                        command.extend(["--as", agent]);
                    }
                    command.push(&subject);
                    command.extend(lists.iter().map(String::as_str));
                    match arguments {
                        Some(arguments) => command.push(arguments),
                        None => command.push("--list"),
                    }
                    let facts = site.command(&command);
                    let mut view = format!("explain?server={server}&tool={}", encoded(tool));
                    if let Some(agent) = agent {
                        view += &format!("&agent={agent}");
                    }
                    if let Some(arguments) = arguments {
                        view += &format!("&args={}", encoded(arguments));
                    }
                    let part = site.part(&view);
                    assert!(!part.contains("<html"));
                    agrees(&part, &facts);
                    if asked % 30 == 0 {
                        let whole = site.html(&view);
                        agrees(whole.split("<article").nth(1).unwrap(), &facts);
                    }
                }
            }
        }
    }
}

#[test]
fn the_refusal_is_word_for_word_what_the_agent_gets() {
    let site = Site::of(world());
    site.table();
    for (agent, name, server, tool, arguments) in [
        ("bot", "hub__get_issue", "hub", "get_issue", json!({})),
        ("bot", "hub__create_issue", "hub", "create_issue", json!({"repo": "c/d"})),
        ("reader", "files__delete_repo", "files", "delete_repo", json!({})),
        ("reader", "hub__manage", "hub", "manage", json!({"action": "add"})),
        ("keeper", "db__get_issue", "db", "get_issue", json!({})),
        ("keeper", "hub__manage", "hub", "manage", json!({"action": "remove"})),
        ("nobody", "hub__shown", "hub", "internal", json!({})),
    ] {
        let answer = site.gate.agent(agent).call(name, arguments.clone());
        let told = site.gate.refusal(&answer);
        let view = format!(
            "explain?agent={agent}&server={server}&tool={tool}&args={}",
            encoded(&arguments.to_string())
        );
        let html = site.part(&view);
        let id = told["decision_id"].as_str().unwrap();
        let text = match answer["result"].is_object() {
            true => answer["result"]["content"][0]["text"].as_str().unwrap(),
            false => answer["error"]["message"].as_str().unwrap(),
        };
        // A query makes no decision: `ID` is a placeholder for one.
        let lines: Vec<String> = text.replace(id, "ID").lines().map(escaped).collect();
        let shown = format!("<pre class=\"refusal\">{}</pre>", lines.join("\n"));
        assert!(html.contains(&shown), "{agent} {name}: {text}\n{html}");
    }
}

#[test]
fn an_invalid_query_gets_a_reason() {
    let site = Site::of(world());
    site.table();
    for (view, why) in [
        ("explain", "must name a server and a tool"),
        ("explain?server=hub", "must name a server and a tool"),
        ("explain?server=hib&tool=x", "Did you mean “hub”?"),
        ("explain?server=hub&tool=shown", "the display name of “internal”"),
        ("explain?server=hub&tool=x&args=%7B", "not a JSON object"),
        ("explain?server=hub&tool=x&args=%5B%5D", "not a JSON object"),
        ("explain?server=hub&tool=x&args=%7B%22a%22%3A1%2C%22a%22%3A2%7D", "not a JSON object"),
    ] {
        let reply = site.get(view, &[]);
        assert_eq!(reply.status, 400, "{view}");
        let html = String::from_utf8(reply.body).unwrap();
        assert!(html.contains(why), "{view}: {html}");
    }
    // For a server that does not respond, only the name is known.
    let html = site.part("explain?agent=reader&server=gone&tool=get_issue");
    assert!(html.contains("is based on the name alone"), "{html}");
}
