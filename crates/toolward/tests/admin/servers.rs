//! The state of servers, and how many of their tools each agent sees.

use serde_json::{Value, json};

use super::harness::{eventually, names, setup};
use super::html::{between, unescaped};
use super::kit::Site;

fn call(site: &Site, agent: &str, name: &str) -> Value {
    site.gate.agent(agent).modern("tools/call", json!({"name": name, "arguments": {}}))
}

/// The text about a server, without tags.
fn card(site: &Site, server: &str) -> String {
    let html = site.html("servers");
    let cards = between(&html, "<article class=\"server\"", "</article>");
    let label = format!(" aria-label=\"{server}\"");
    let card = cards.into_iter().find(|card| card.starts_with(&label));
    let card = card.unwrap_or_else(|| panic!("{server} in {html}"));
    let mut text = String::new();
    for piece in card.split('<') {
        text += piece.split_once('>').map_or("", |(_, text)| text);
        text.push(' ');
    }
    unescaped(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn calls_failures_and_restarts_are_counted() {
    let site = Site::of(
        setup()
            .stdio("one", "modern", names(&["read", "write", "crash"]))
            .stdio("old", "legacy", names(&["x"]))
            .web("web", "modern", names(&["y"]))
            .server("down", json!({"command": "/nonexistent/program"}))
            .agents(json!({
                "all": {"allow": {"servers": ["*"]}},
                "reader": {"allow": {"servers": ["one"], "tools": {"one": ["read"]}}},
            })),
    );
    for _ in 0..4 {
        call(&site, "all", "one__read");
    }
    call(&site, "all", "old__x");
    call(&site, "all", "web__y");
    let one = card(&site, "one");
    assert!(one.contains("stdio, python3 modern 2026-07-28"), "{one}");
    assert!(one.contains("3 tools offered, 3 shown to someone"), "{one}");
    assert!(one.contains("by agent all 3 reader 1 up"), "{one}");
    assert!(one.contains(" up Calls 4 Failed 0 Starts 1 Restarts 0"), "{one}");
    assert!(one.contains("p50 ") && one.contains("p95 ") && one.contains("of 4 in 5 min"), "{one}");
    let old = card(&site, "old");
    assert!(old.contains("legacy 2025-11-25") && old.contains("Calls 1"), "{old}");
    let web = card(&site, "web");
    assert!(web.contains("http, 127.0.0.1:") && !web.contains("/mcp"), "{web}");
    let down = eventually("it is found to be down", || {
        let down = card(&site, "down");
        down.contains("cannot be started").then_some(down)
    });
    assert!(down.contains("tools not known yet") && down.contains(" down Calls 0"), "{down}");
    // A process that exits is restarted for the next call.
    call(&site, "all", "one__crash");
    let mut failed = 1;
    eventually("it is there again", || {
        let answer = call(&site, "all", "one__read");
        failed += u64::from(answer["error"].is_object());
        answer["result"].is_object().then_some(())
    });
    let status = &site.command(&["status"])[0];
    let servers = status["servers"].as_array().unwrap();
    let one = servers.iter().find(|server| server["name"] == "one").unwrap();
    assert_eq!(one["restarts"], 1, "{one}");
    let errors = one["errors"].as_u64().unwrap();
    assert!((1..=failed).contains(&errors), "{failed}: {one}");
    assert_eq!(one["under_way"], 0);
    let why = one["last_failure"]["text"].as_str().unwrap();
    assert!(why.contains("ended"), "{why}");
    assert!(one["last_5_min"]["p50_us"].as_u64() <= one["last_5_min"]["p95_us"].as_u64());
    let calls = one["calls"].as_u64().unwrap();
    assert!(calls >= 6, "{one}");
    let html = card(&site, "one");
    assert!(html.contains(&format!("Calls {calls} Failed {errors} Starts 2 Restarts 1")), "{html}");
    assert!(html.contains("last failure 20"), "{html}");
}

#[test]
fn changes_arrive_by_themselves_and_need_no_inline_styles() {
    let site = Site::of(setup().stdio("one", "modern", names(&["read", "hang"])).agents(json!({
        "all": {"allow": {"servers": ["*"]}}
    })));
    call(&site, "all", "one__read");
    let params = json!({"name": "one__hang", "arguments": {}});
    let open = site.gate.agent("all").modern_open(json!(1), "tools/call", params);
    let now = eventually("it is in flight", || {
        let now = site.part("servers/now");
        now.contains("1 in flight").then_some(now)
    });
    assert!(now.contains("id=\"state-0\" hx-swap-oob=\"true\""), "{now}");
    assert!(now.contains("<polyline class=\"p95\" points=\""), "{now}");
    assert!(!now.contains("style=") && !site.html("servers").contains("style="), "{now}");
    drop(open);
    eventually("it was given up", || {
        (!site.part("servers/now").contains("in flight")).then_some(())
    });
}

#[test]
fn hostile_servers_are_text() {
    let tool = "a<img src=x onerror=alert(1)>\u{202e}";
    let site = Site::of(setup().stdio("one", "modern", names(&[tool])).agents(json!({
        "<b>x": {"allow": {"servers": ["*"]}, "tokens": ["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}
    })));
    for view in ["servers", "policy", "live"] {
        let html = site.html(view);
        assert!(!html.contains("<img src=x") && !html.contains("<b>x"), "{view}: {html}");
        assert!(!html.contains('\u{202e}'), "{view}");
    }
    assert!(site.html("servers").contains("&lt;b&gt;x"));
    eventually("its list is known", || card(&site, "one").contains(" 1 tool offered, 1 shown"));
}
