//! Real clients that discover tools step by step, in front of real servers.

use serde_json::{Value, json};

use super::peers::*;

#[test]
fn real_clients_find_and_call_what_they_do_not_list() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    work.renew();
    let gate = work
        .setup(&["everything", "files", "time"])
        .set("builtin", json!(true))
        .agents(json!({
            "a": {
                "discovery": "progressive",
                "allow": {"servers": ["*"]},
                "deny": {"tools": {"everything": ["get-env"]}},
            },
        }))
        .start();
    let execute = |server: &str, tool: &str, args: Value| json!(["toolward__execute_tool", {"server": server, "tool": tool, "args": args}]);
    let calls = json!([
        ["toolward__list_servers", {}],
        ["toolward__search_tools", {"query": "sum of two numbers"}],
        ["toolward__get_server_tools", {"server": "everything", "names": ["get-sum", "get-env"]}],
        execute("everything", "get-sum", json!({"a": 2, "b": 3})),
        execute("everything", "get-env", json!({})),
        execute("time", "convert_time", json!({
            "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo",
        })),
        execute("everything", "trigger-long-running-operation", json!({"duration": 1, "steps": 3})),
        execute("everything", "get-structured-content", json!({"location": "Chicago"})),
        ["toolward__server_config", {}],
        ["everything__get-sum", {"a": 2, "b": 3}],
    ]);
    for (client, mode) in [
        (Client::Python, "--legacy"),
        (Client::Python, "--modern"),
        (Client::TypeScript, "--legacy"),
        (Client::TypeScript, "--modern"),
    ] {
        let seen = work.see(client, mode, &calls, &place(&gate, "a", "/mcp"));
        let about = format!("{client:?} {mode}");
        assert_eq!(seen["tools"].as_array().unwrap().len(), 5, "{about}");
        let said = |at: usize| -> &Value { &seen["calls"][at] };
        let found = |at: usize| -> &Value { &said(at)["structuredContent"] };
        let servers: Vec<&str> = found(0)["servers"]
            .as_array()
            .unwrap_or_else(|| panic!("{about}: {}", said(0)))
            .iter()
            .map(|server| server["name"].as_str().unwrap())
            .collect();
        assert_eq!(servers, ["everything", "files", "time"], "{about}");
        let first = &found(1)["tools"][0];
        assert_eq!((&first["server"], &first["name"]), (&json!("everything"), &json!("get-sum")));
        assert_eq!(found(2)["tools"].as_array().unwrap().len(), 1, "{about}: {}", said(2));
        assert_eq!(found(2)["tools"][0]["inputSchema"]["type"], "object");
        assert_eq!(found(2)["not_found"], json!(["get-env"]));
        let text = |at: usize| said(at)["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text(3).contains("is 5"), "{about}: {}", said(3));
        assert_eq!(said(4)["code"], -32602, "{about}: {}", said(4));
        let refused = said(4)["error"].as_str().unwrap();
        assert!(refused.contains("everything/get-env is not permitted"), "{about}: {refused}");
        assert!(text(5).contains("21:00"), "{about}: {}", said(5));
        assert_eq!(seen["progress"][6], 3, "{about}: {}", said(6));
        assert!(said(7)["structuredContent"]["temperature"].is_number(), "{about}: {}", said(7));
        assert_eq!(found(8)["discovery"], "progressive", "{about}: {}", said(8));
        assert_eq!(said(9)["code"], -32602, "{about}: {}", said(9));
    }
}
