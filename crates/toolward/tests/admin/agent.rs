//! The view of one agent: its tools, limits, hooks, last calls and refusals.

use serde_json::{Value, json};

use super::harness::{Caller, Setup, names, setup};
use super::html::{between, encoded, escaped, plain, unescaped};
use super::kit::Site;
use super::matrix::HOSTILE;

fn guarded() -> Setup {
    setup()
        .stdio("files", "modern", names(&["read", "write", "drop"]))
        .stdio("hub", "modern", names(&["post"]))
        .agents(json!({
            "bot": {
                "allow": {"servers": ["*"], "tools": {"files": ["read", {"tool": "write", "limit": "5/min"}]}},
                "limits": {"lists": "60/min", "tools": {"hub/post": "2/h"}},
            },
            "reader": {"allow": {"servers": ["files"], "tools": {"files": ["read"]}}},
        }))
        .set("hooks", json!([{"name": "vet", "exec": ["/bin/true"], "tools": ["write", "drop"], "agents": ["bot"]}]))
}

fn call(site: &Site, agent: &str, name: &str) -> Value {
    site.gate.agent(agent).modern("tools/call", json!({"name": name, "arguments": {}}))
}

/// A section of the view, by its heading.
fn section(html: &str, headline: &str) -> String {
    let start = format!("<h2>{headline}</h2>");
    unescaped(between(html, &start, "<h2>").first().copied().unwrap_or_else(|| {
        html.split_once(&start).unwrap_or_else(|| panic!("{headline} in {html}")).1
    }))
}

#[test]
fn an_agents_view_has_tools_limits_hooks_calls_and_refusals() {
    let site = Site::of(guarded());
    let table = site.table();
    assert!(table.contains("href=\"agent?name=bot\""), "{table}");
    call(&site, "bot", "files__read");
    call(&site, "bot", "files__drop");
    call(&site, "reader", "files__write");
    let html = site.html("agent?name=bot");
    assert_eq!(between(&html, "<h1>", "</h1>"), ["bot"]);
    let tools = section(&html, "Tools");
    let lines: Vec<&str> = between(&tools, "<tr><td>", "</tr>");
    let of = |name: &str| {
        let code = format!("<code>{name}</code>");
        *lines.iter().find(|line| line.contains(&code)).unwrap_or_else(|| panic!("{name}: {tools}"))
    };
    assert!(of("read").contains("word allow") && !of("read").contains("class=\"guard\""));
    assert!(of("write").contains("5/min") && of("write").contains("vet"), "{}", of("write"));
    assert!(of("post").contains("2/h") && !of("post").contains("vet"), "{}", of("post"));
    // A denied tool has its reason as a sentence.
    assert!(
        plain(of("drop")).contains("no entry of the allow lists of agent bot"),
        "{}",
        of("drop")
    );
    assert!(tools.contains("2 of 3") && tools.contains("1 denied"), "{tools}");
    let limits = section(&html, "Limits");
    for said in ["5/min", "calls of files/write", "2/h", "calls of hub/post", "60/min", "listings"]
    {
        assert!(limits.contains(said), "{said}: {limits}");
    }
    let hooks = section(&html, "Hooks");
    for said in ["vet", "exec", "files/write", "the call is refused"] {
        assert!(hooks.contains(said), "{said}: {hooks}");
    }
    let calls = section(&html, "Last calls");
    assert!(calls.contains("files/read") && !calls.contains("files/drop"), "{calls}");
    let refusals = section(&html, "Last refusals");
    assert!(refusals.contains("drop") && !refusals.contains("write"), "{refusals}");
    // The other agent's calls are separate.
    let html = site.html("agent?name=reader");
    assert!(html.contains("No limit applies") && html.contains("No hook checks"), "{html}");
    assert!(section(&html, "Last refusals").contains("write"));
    assert!(html.contains("Sees and may call <b>1</b> of <b>4</b> tools"), "{html}");
    // The parts that are updated live.
    assert!(!site.part("agent?name=bot").contains("<html"));
    assert!(site.part("agent/calls?name=bot").contains("files/read"));
    assert_eq!(site.get("agent/nothing", &[]).status, 404);
}

#[test]
fn an_unknown_agent_name_is_text() {
    let site = Site::of(guarded());
    site.table();
    for name in HOSTILE {
        let html = site.html(&format!("agent?name={}", encoded(name)));
        assert!(!html.contains(name) && html.contains(&escaped(name)), "{html}");
        assert!(html.contains("<b>0</b> of <b>4</b>"), "{html}");
    }
    assert!(site.html("agent").contains("Callers without a name"));
    assert!(site.html("agent").contains("get 401"));
}

#[test]
fn progressive_agents_are_shown_as_they_are() {
    let agents = json!({
        "finder": {"discovery": "progressive", "allow": {"servers": ["*"], "tools": {"files": ["read"]}}},
        "direct": {"allow": {"servers": ["*"], "tools": {"files": ["read", "write"]}}},
    });
    let site = Site::of(
        setup()
            .stdio("files", "modern", names(&["read", "write"]))
            .agents(agents)
            .set("builtin", json!(true)),
    );
    let html = site.table();
    // The agent lists the five tools of the built-in server, and calls one other tool through them.
    let head = between(&html, "data-agent=\"finder\"", "</div>")[0];
    assert!(
        head.contains("progressive discovery, lists 5 of 7 tools, calls 1 through execute_tool"),
        "{head}"
    );
    assert!(head.contains("<span class=\"sees\">5<span class=\"of\"> + 1 via</span>"), "{head}");
    let read =
        html.split("data-tool=\"read\"").nth(1).unwrap().split("</div></div>").next().unwrap();
    assert!(
        read.contains("class=\"allow via\"") && read.contains("allow, through execute_tool"),
        "{read}"
    );
    assert!(html.contains("</b> through execute_tool</span>"), "the legend: {html}");
    let servers = site.html("servers");
    let files = between(&servers, "aria-label=\"files\"", "</article>")[0];
    assert!(files.contains("finder</th><td>0</td>"), "{files}");
    assert!(files.contains("direct</th><td>2</td>"), "{files}");
    let view = site.html("agent?name=finder");
    assert!(view.contains("<b>progressive discovery</b>"), "{view}");
    assert!(view.contains("Direct calls to them are refused"), "{view}");
    let told = site.part("explain?agent=finder&server=files&tool=read&args=%7B%7D");
    assert!(plain(&told).contains("it calls this tool through toolward/execute_tool"), "{told}");
    // The text is the one that a direct call gets.
    let answer = site.gate.agent("finder").call("files__read", json!({}));
    let message = site.gate.refusal(&answer)["message"].as_str().unwrap().to_string();
    assert!(told.contains(&escaped(message.lines().next().unwrap())), "{message}\n{told}");
    assert!(!site.html("agent?name=direct").contains("progressive"));
}
