//! `/metrics`: what is counted, who may read it, and that callers cannot create series.

use serde_json::json;

use super::harness::{names, setup};
use super::kit::Site;

fn scrape(site: &Site) -> String {
    let bearer = format!("Bearer {}", site.token);
    let reply = site.raw("GET /metrics HTTP/1.1", &[("Authorization", &bearer)], "");
    assert_eq!(reply.status, 200, "{reply:?}");
    let content = reply.header("content-type").unwrap();
    assert!(content.starts_with("application/openmetrics-text"), "{content}");
    String::from_utf8(reply.body).unwrap()
}

/// The value of the only series that has all these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let of_name = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    };
    let lines = text.lines().filter(of_name);
    let found: Vec<&str> =
        lines.filter(|line| labels.iter().all(|label| line.contains(label))).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:#?} in {text}");
    found[0].rsplit(' ').next().unwrap().parse().unwrap()
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

fn site() -> Site {
    Site::of(setup().stdio("one", "modern", names(&["read", "write"])).agents(json!({
        "reader": {"allow": {"servers": ["one"], "tools": {"one": ["read"]}}},
    })))
}

#[test]
fn calls_decisions_and_refusals_are_counted_by_label() {
    let site = site();
    let agent = site.gate.agent("reader");
    for _ in 0..3 {
        agent.modern("tools/call", json!({"name": "one__read", "arguments": {}}));
    }
    agent.modern("tools/call", json!({"name": "one__write", "arguments": {}}));
    let text = scrape(&site);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let call = "mcp_method_name=\"tools/call\"";
    let requests = |error: &str| {
        let error = format!("error_type=\"{error}\"");
        let labels = [call, "agent=\"reader\"", &error, "mcp_protocol_version=\"2026-07-28\""];
        value(&text, "mcp_server_operation_duration_seconds_count", &labels)
    };
    assert_eq!((requests(""), requests("refused")), (3.0, 1.0));
    let labels = [call, "server=\"one\"", "gen_ai_tool_name=\"read\"", "error_type=\"\""];
    assert_eq!(value(&text, "mcp_client_operation_duration_seconds_count", &labels), 3.0);
    assert!(!text.contains("gen_ai_tool_name=\"write\""), "{text}");
    let labels =
        ["verdict=\"allow\"", "step=\"3-exact-allow\"", "agent=\"reader\"", "server=\"one\""];
    assert_eq!(value(&text, "toolward_decisions_total", &labels), 3.0);
    assert_eq!(value(&text, "toolward_decisions_total", &["verdict=\"deny\""]), 1.0);
    assert_eq!(value(&text, "toolward_refusals_total", &["reason=\"policy\""]), 1.0);
    assert_eq!(value(&text, "toolward_upstream_up", &["server=\"one\""]), 1.0);
    assert_eq!(value(&text, "toolward_audit_writable", &[]), 1.0);
    assert_eq!(value(&text, "toolward_policy_info", &["version=\""]), 1.0);
}

#[test]
fn names_that_callers_send_create_no_series() {
    let site = site();
    let agent = site.gate.agent("reader");
    agent.modern("tools/call", json!({"name": "one__guess", "arguments": {}}));
    agent.modern_reply(json!(1), "guess/method", json!({}));
    let before = series(&scrape(&site));
    for number in 0..200 {
        agent.modern("tools/call", json!({"name": format!("one__guess{number}"), "arguments": {}}));
        agent.modern_reply(json!(1), &format!("guess/{number}"), json!({}));
    }
    let text = scrape(&site);
    assert_eq!(series(&text), before, "{text}");
    assert!(!text.contains("guess"), "{text}");
}

#[test]
fn metrics_need_the_admin_token() {
    let site = site();
    let wrong = [("Authorization", "Bearer token-of-agent-reader")];
    for headers in [&[][..], &[("Cookie", &*site.cookie)], &wrong] {
        let reply = site.raw("GET /metrics HTTP/1.1", headers, "");
        assert_eq!(reply.status, 401, "{headers:?}: {reply:?}");
    }
}
