//! Examples of clients and servers: wrapping one server, many agents over HTTP, few tokens.

use serde_json::{Value, json};

use super::support::{example, names};

#[test]
fn a_client_starts_the_gate_around_its_server() {
    let Some(example) = example("wrap-one-server").with_npx() else { return };
    let config: Value = serde_json::from_str(&example.file("mcp.json")).unwrap();
    let server = &config["mcpServers"]["files"];
    let arguments = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let arguments: Vec<&str> = arguments.collect();
    let mut client = example.client(server["command"].as_str().unwrap(), &arguments);
    let mut shown = client.list();
    shown.sort();
    let reads = ["read_file", "read_media_file", "read_multiple_files", "read_text_file"];
    assert_eq!(shown, [&["list_directory"][..], &reads, &["search_files"]].concat());
    let readme = client.done("read_text_file", json!({"path": "README.md"}));
    assert!(readme.contains("Wrap one server"), "{readme}");
    let file = json!({"path": "new.txt", "content": "x"});
    let message = client.unknown("write_file", file);
    let allowed = "Allowed: read_*, list_directory, search_files";
    assert_eq!(message, format!("write_file is not permitted. {allowed}"));
    assert!(!example.folder().join("new.txt").exists());
    // The command in the README does the same.
    let page = example.file("README.md");
    let line = page.lines().find(|line| line.starts_with("toolward wrap")).unwrap();
    assert_eq!(example.client("sh", &["-c", line]).list().len(), shown.len());
}

#[test]
fn two_agents_have_two_views_over_http() {
    let example = example("per-agent")
        .env("READER_TOKEN", "reader-secret-of-16")
        .env("MAINTAINER_TOKEN", "maintainer-secret-of-16");
    let gateway = example.serve();
    let page = example.file("README.md").replace(":7410", &format!(":{}", gateway.port));
    let lines: Vec<&str> = page
        .split("```sh\n")
        .filter_map(|block| block.split_once("```")?.0.starts_with("curl").then_some(block))
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    let run = |line: &str| -> Value {
        let (code, printed) = example.shell(line);
        assert_eq!(code, 0, "{printed}");
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    };
    let tools = |answer: Value| -> Vec<String> {
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect()
    };
    let reads = ["search_issues", "get_issue", "weekly_report"];
    assert_eq!(tools(run(lines[0])), reads.map(|name| format!("tracker__{name}")));
    let refused = run(lines[1]);
    let words = "tracker__close_issue is not permitted. Allowed: tracker__get_issue, \
                 tracker__search_issues, tracker__weekly_report";
    assert_eq!(refused["error"]["message"], words, "{refused}");
    // The same commands as the other agent.
    let other = |line: &str| line.replace("READER", "MAINTAINER");
    let all = tools(run(&other(lines[0])));
    assert_eq!(all.len(), 11, "{all:?}");
    assert!(!all.contains(&"tracker__delete_issue".into()), "{all:?}");
    assert_eq!(run(&other(lines[1]))["result"]["isError"].as_bool(), None);
    // An unknown token is rejected everywhere.
    let (_, turned_away) = example.shell(&lines[0].replace("$READER_TOKEN", "a-guess"));
    assert!(!turned_away.contains("search_issues"), "{turned_away}");
}

#[test]
fn an_agent_finds_tools_when_it_needs_them() {
    let example = example("discovery");
    let mut assistant = example.as_agent("assistant");
    let own = ["search_tools", "list_servers", "get_server_tools", "execute_tool", "server_config"];
    assert_eq!(assistant.list(), own.map(|name| format!("toolward__{name}")));
    let found = assistant.done("toolward__search_tools", json!({"query": "comment on an issue"}));
    assert!(found.contains("add_comment"), "{found}");
    let found = assistant.done("toolward__search_tools", json!({"query": "delete an issue"}));
    assert!(!found.contains("delete_issue"), "{found}");
    let comment = json!({"number": 17, "text": "Seen."});
    let execute =
        |tool: &str, args: &Value| json!({"server": "tracker", "tool": tool, "args": args});
    assistant.done("toolward__execute_tool", execute("add_comment", &comment));
    let kept =
        assistant.done("toolward__execute_tool", execute("get_issue", &json!({"number": 17})));
    assert!(kept.contains("Seen."), "{kept}");
    let deleted = execute("delete_issue", &json!({"number": 17}));
    assert!(
        assistant.call("toolward__execute_tool", deleted).to_string().contains("not permitted")
    );
    // An unlisted tool cannot be called directly.
    assistant.unknown("tracker__get_issue", json!({"number": 17}));
}

#[test]
fn the_saved_lists_match_the_servers() {
    let example = example("by-name");
    for server in ["tracker", "files"] {
        let saved = format!("../tools/{server}.json");
        let saved: Value = serde_json::from_str(&example.file(&saved)).unwrap();
        let listed = example.client("toolward", &["demo-server", server]).tools();
        let stale = "run `cargo xtask generate`";
        assert!(saved["tools"] == Value::from(listed), "{server}: {stale}");
    }
    assert!(names().len() >= 15);
}
