//! Configurations for scenarios.

use serde_json::{Value, json};

use crate::harness::{Setup, setup};
use crate::kit::{Site, issue_tools, tool};

/// The agents of a mixed configuration, in the policy's order.
pub const MIXED: &[&str] = &["reader", "keeper", "bot", "nobody", "default"];

/// More rows than the first response contains.
fn many_tools() -> Vec<Value> {
    let kinds = ["get", "list", "create", "delete"];
    let of = |number: usize| {
        let kind = kinds[number % kinds.len()];
        let hints = json!({"readOnlyHint": number % 4 < 2, "destructiveHint": number % 4 == 3});
        tool(&format!("{kind}_{number:03}"), hints)
    };
    issue_tools().into_iter().chain((0..300).map(of)).collect()
}

fn tools_of(server: &str) -> Value {
    if server == "files" { many_tools().into() } else { issue_tools().into() }
}

/// A policy with each kind of rule, and agents that see different things.
pub fn mixed() -> Setup {
    setup()
        .stdio("hub", "modern", tools_of("hub"))
        .stdio("files", "legacy", tools_of("files"))
        .with("hub", "expose", json!([
            "get_*", "list_*", "delete_*", "create_*", "manage",
            {"tool": "internal", "display_name": "shown"},
        ]))
        .with("files", "hints", json!({"internal": ["read-only", "billing"]}))
        .agents(json!({
            "reader": {"allow": {"servers": ["*"], "tools": {"*": ["hint:read-only", "manage.list"]}}},
            "keeper": {
                "allow": {"servers": ["*"]},
                "deny": {"tools": {"*": ["delete_*", "manage.remove"]}},
            },
            "bot": {"allow": {"servers": ["hub", "files"], "tools": {
                "hub": [{"tool": "create_*", "when": "args.repo == 'a/b'"}, "internal"],
                "files": [{"tool": "get_issue", "limit": "5/min"}, {"tool": "*_1*", "when": "args.n > 1"}],
            }}},
            "nobody": {"allow": {"servers": []}},
            "default": {"allow": {"servers": ["hub"], "tools": {"hub": ["list_issues"]}}},
        }))
        .set("defaults", json!({"deny_on_missing_agent": false}))
        .set("list_timeout", json!("60s"))
}

/// A rule that asks.
pub fn asking() -> Setup {
    setup().stdio("hub", "modern", tools_of("hub")).agents(json!({
        "a": {"allow": {"servers": ["hub"], "tools": {"hub": ["hint:read-only", {"tool": "delete_*", "ask": true}]}}},
    }))
}

/// The agents of the configuration with prompts and resources, in the policy's order.
pub const KINDS: &[&str] = &["admin", "reader", "stepper", "nobody"];

/// Servers with tools, prompts, resources and templates. Both list the same resource and the same template.
pub fn kinds() -> Setup {
    let prompt = |name: &str| json!({"name": name, "description": format!("About {name}.")});
    let resource = |uri: &str| json!({"uri": uri, "name": uri.rsplit('/').next()});
    let template = |uri: &str| json!({"uriTemplate": uri, "name": "any"});
    let prompts = ["summarize", "review", "internal_plan"].map(prompt);
    let uris = ["note://a/1", "note://a/2", "note://b/1", "shared://one", "note://a/../b"];
    let templates = ["note://{area}/{page}", "shared://{id}", "secret://{id}"].map(template);
    let notes = json!({
        "tools": issue_tools(),
        "prompts": prompts,
        "resources": uris.map(resource),
        "resourceTemplates": templates,
    });
    let mut many = (0..100).map(|at| resource(&format!("doc://guide/{at:03}"))).collect::<Vec<_>>();
    many.push(resource("shared://one"));
    let docs = json!({
        "prompts": [prompt("explain")],
        "resources": many,
        "resourceTemplates": [template("shared://{id}")],
    });
    setup()
        .stdio("notes", "legacy", notes)
        .stdio("docs", "modern", docs)
        .stdio("plain", "modern", issue_tools().into())
        .with("notes", "expose_prompts", json!([
            "summarize", "review", {"prompt": "internal_plan", "display_name": "plan"},
        ]))
        .agents(json!({
            "admin": {"allow": {"servers": ["*"]}, "limits": {"calls": "90/min"}},
            "reader": {
                "allow": {
                    "servers": ["*"],
                    "tools": {"*": ["hint:read-only"]},
                    "prompts": {"notes": [{"prompt": "summarize", "when": "args.style == 'short'"}, "internal_plan"]},
                    "resources": {"notes": ["note://a/*"], "docs": ["doc://guide/0*", "shared://*"]},
                },
                "deny": {"resources": {"notes": ["note://a/2"]}},
            },
            "stepper": {"allow": {"servers": ["*"]}, "discovery": "progressive"},
            "nobody": {"allow": {"servers": []}},
        }))
        .set("builtin", json!(true))
        .set("list_timeout", json!("60s"))
}

/// The servers' lists as flags: with them a command starts no servers, which would take long.
pub fn lists(site: &Site) -> Value {
    let flag = |server: &str| {
        let file = site.gate.file(&format!("{server}.answer"));
        std::fs::write(&file, json!({"tools": tools_of(server)}).to_string()).unwrap();
        json!(format!("--tools={server}={}", file.display()))
    };
    ["hub", "files"].map(flag).to_vec().into()
}

/// Names that would have an effect if they were shown unescaped.
pub fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "<img src=x onerror=pwned=1>",
        "a\" onmouseover=\"pwned=1\" autofocus onfocus=\"pwned=1",
        "'><script>pwned=1</script>",
        "</script><script>pwned=1</script>",
        "</title></style></textarea><svg onload=pwned=1>",
        "\u{1b}[31mred\u{1b}]8;;http://evil.example\u{7}link\u{202e}\u{2066}\u{200b}\u{feff}x",
        "javascript:pwned=1//",
        "{{constructor.constructor('pwned=1')()}}${pwned=1}",
        "x&#34;&gt;&lt;b hx-get=/ hx-trigger=load&gt;",
        "<b hx-get='http://evil.example/' hx-trigger='load' hx-on:load='pwned=1'>",
        "line\r\nX-Evil: 1\n\nevent: rows\ndata: <script>pwned=1</script>",
        "../../%2e%2e/?token=&amp;#",
    ]
    .map(String::from)
    .into();
    names.push(format!("<b>{}", "long ".repeat(2000)));
    names
}

/// A server whose every text is hostile, an agent that may call everything, and one that sees little.
pub fn hostile() -> Setup {
    let text = "<script>pwned=1</script>\u{1b}[2J\u{202e}\" onmouseover=\"pwned=1";
    let tools: Vec<Value> = hostile_names()
        .iter()
        .map(|name| {
            json!({
                "name": name,
                "title": text,
                "description": text,
                "inputSchema": {"type": "object", "description": text},
                "annotations": {"title": text, "readOnlyHint": true},
            })
        })
        .collect();
    let dead = "printf '<script>pwned=1</script>\\033[31m' >&2; exit 3";
    setup()
        .stdio("s", "modern", tools.into())
        .server("dead", json!({"command": "sh", "args": ["-c", dead]}))
        .set("audit", json!({"dir": "audit", "arguments": "full"}))
        .agents(json!({
            "a": {"allow": {"servers": ["*"]}},
            "b": {"allow": {"servers": ["s"], "tools": {"s": ["<img*", {"tool": "'*", "when": "args.x == '<script>pwned=1</script>'"}]}}},
            "<i onclick=pwned=1>\u{202e}\"'`": {"tokens": ["${TOKEN_OF_odd}"], "allow": {"servers": ["s"]}},
        }))
        .env("TOKEN_OF_odd", "token-of-agent-odd")
}

pub const TOOLS: usize = 10_000;
pub const AGENTS: usize = 50;

pub fn large_name(number: usize) -> String {
    let verbs = ["get", "list", "create", "update", "delete"];
    format!("{}_thing_{number:05}", verbs[number % verbs.len()])
}

/// Many tools of one server, and many agents with rules of their own.
pub fn large() -> Setup {
    let of = |number: usize| {
        tool(&large_name(number), json!({"readOnlyHint": number.is_multiple_of(2)}))
    };
    let tools: Vec<Value> = (0..TOOLS).map(of).collect();
    let agent = |number: usize| {
        let rules = json!(["hint:read-only", format!("*_thing_{number:02}*"), "update_*"]);
        let deny = json!({"tools": {"many": [format!("*{number:02}")]}});
        let rules = json!({"servers": ["*"], "tools": {"many": rules}});
        (
            format!("agent-{number:02}"),
            json!({"tokens": [format!("${{TOKEN_{number}}}")], "allow": rules, "deny": deny}),
        )
    };
    let agents: serde_json::Map<String, Value> = (0..AGENTS).map(agent).collect();
    let setup = setup().stdio("many", "modern", tools.into()).agents(agents.into());
    let setup = setup.set("list_timeout", json!("60s"));
    (0..AGENTS).fold(setup, |setup, number| {
        setup.env(&format!("TOKEN_{number}"), &format!("token-of-agent-{number}"))
    })
}
