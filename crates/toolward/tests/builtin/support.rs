//! Shared setup for the tests of the built-in server.

use serde_json::{Value, json};

use super::harness::*;

/// The tools of the built-in server, in order.
pub const OWN: [&str; 5] =
    ["search_tools", "list_servers", "get_server_tools", "execute_tool", "server_config"];

/// A tool with one parameter.
pub fn tool(name: &str, description: &str, parameter: &str) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {parameter: {"type": "string", "description": format!("The {parameter}.")}},
        },
    })
}

/// Two servers with ordinary tools.
pub fn world() -> Setup {
    setup()
        .set("builtin", json!(true))
        .stdio(
            "files",
            "legacy",
            json!([
                tool("read_file", "Reads a file as text.", "path"),
                tool("write_file", "Writes a file.", "path"),
                tool("remove_file", "Deletes a file for good.", "path"),
                tool("list_folder", "What is in a folder.", "path"),
            ]),
        )
        .with("files", "description", json!("Files of the project"))
        .web(
            "tracker",
            "modern",
            json!([
                tool("create_issue", "Opens an issue.", "title"),
                tool("get_issue", "Shows an issue.", "number"),
                tool("echo", "Says it again.", "say"),
            ]),
        )
}

/// Calls one of the built-in tools.
pub fn own(caller: &impl Caller, tool: &str, arguments: Value) -> Value {
    caller.call(&format!("toolward__{tool}"), arguments)
}

/// The text of a built-in tool's result.
pub fn said(answer: &Value) -> Value {
    assert!(answer["result"].get("isError").is_none(), "{answer}");
    let said: Value = serde_json::from_str(text(answer)).unwrap();
    assert_eq!(answer["result"]["structuredContent"], said, "{answer}");
    said
}

/// The error of a call of a built-in tool.
pub fn wrong(answer: &Value) -> String {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(answer["result"].get("structuredContent").is_none(), "{answer}");
    assert!(answer["result"].get("_meta").is_none(), "{answer}");
    text(answer).into()
}

/// Calls a tool through `execute_tool`.
pub fn execute(caller: &impl Caller, server: &str, tool: &str, args: Value) -> Value {
    own(caller, "execute_tool", json!({"server": server, "tool": tool, "args": args}))
}

/// Names of tools that were found or listed.
pub fn found(said: &Value) -> Vec<String> {
    let tools = said["tools"].as_array().unwrap_or_else(|| panic!("{said}"));
    let name = |tool: &Value| match tool["server"].as_str() {
        Some(server) => format!("{server}/{}", tool["name"].as_str().unwrap()),
        None => tool["name"].as_str().unwrap().into(),
    };
    tools.iter().map(name).collect()
}

/// Records of a kind.
pub fn records(gate: &Gate, kind: &str) -> Vec<Value> {
    gate.records().into_iter().filter(|record| record["kind"] == kind).collect()
}

/// JSON without the names after `Allowed:`, which depend on the name that was sent and on the address.
pub fn without_names(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("Allowed: ") {
        out += before;
        out += "Allowed: …";
        rest = &after[after.find(['"', '\\']).unwrap()..];
    }
    out + rest
}
