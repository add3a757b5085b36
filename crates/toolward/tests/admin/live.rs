//! Decisions as they happen.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::event_stream::Watch;
use super::harness::{Setup, eventually, names, setup};
use super::html::{between, encoded, escaped};
use super::kit::Site;

fn call(site: &Site, agent: &str, name: &str) -> Value {
    let params = json!({"name": name, "arguments": {"path": "/a"}});
    site.gate.agent(agent).modern("tools/call", params)
}

/// One server, an agent that may do everything and one that may read.
fn ready() -> Setup {
    setup().stdio("files", "modern", names(&["read", "write", "slow"])).agents(json!({
        "all": {"allow": {"servers": ["*"]}},
        "reader": {"allow": {"servers": ["*"], "tools": {"files": ["read"]}},
            "deny": {"tools": {"*": ["write"]}}},
    }))
}

/// Follows from now on, as a browser does.
fn watching(site: &Site, wanted: &str) -> Watch {
    site.gate.records();
    let html = site.html(&format!("live?{wanted}"));
    let after = encoded(between(&html, " data-after=\"", "\"")[0]);
    Watch::open(site, &format!("live/events?after={after}&{wanted}"), &[])
}

fn newest(site: &Site) -> Value {
    eventually("it is recorded", || site.gate.records().into_iter().last())
}

#[test]
fn a_call_appears_by_itself_with_what_came_of_it() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    let mut watch = watching(&site, "");
    call(&site, "all", "files__write");
    let told = watch.rows_with(">ok<");
    assert!(told.data.contains("files/write"), "{}", told.data);
    for said in [">all<", "no allow list narrows what it offers", "word allow", ">ok<"] {
        assert!(told.data.contains(said), "{said}: {}", told.data);
    }
}

#[test]
fn a_call_that_takes_long_is_there_before_its_end_and_is_one_row() {
    let site = Site::of(ready().stdio("other", "modern", names(&["hang"])));
    call(&site, "all", "files__read");
    let mut watch = watching(&site, "");
    let params = json!({"name": "other__hang", "arguments": {}});
    let open = site.gate.agent("all").modern_open(json!(1), "tools/call", params);
    let before = watch.rows_with("other/hang");
    assert!(before.data.contains("in flight"), "{}", before.data);
    // A client that disconnects cancels its call.
    open.stream.shutdown(std::net::Shutdown::Both).unwrap();
    drop(open);
    let after = watch.rows_with("other/hang");
    assert_eq!(before.ids(), after.ids());
    let ends = ["cancelled", "aborted"];
    assert!(ends.iter().any(|end| after.data.contains(end)), "{}", after.data);
}

#[test]
fn the_latest_decisions_are_shown_and_none_is_sent_twice() {
    let site = Site::of(ready());
    for _ in 0..3 {
        call(&site, "all", "files__read");
    }
    site.gate.records();
    let html = site.html("live");
    assert_eq!(between(&html, " data-id=\"", "\"").len(), 3, "{html}");
    let mut watch = watching(&site, "");
    call(&site, "all", "files__write");
    let told = watch.rows_with(">ok<");
    assert_eq!(told.ids().len(), 1, "{}", told.data);
    drop(watch);
    // One more while no browser is watching.
    call(&site, "reader", "files__read");
    site.gate.records();
    let mut again = Watch::open(&site, "live/events?after=", &[("Last-Event-ID", &told.id)]);
    let news = again.event("rows");
    assert_eq!(news.ids().len(), 1, "{}", news.data);
    assert!(news.data.contains(">reader<") && news.ids() != told.ids(), "{}", news.data);
    assert!(again.next(Duration::from_millis(600)).is_none());
}

#[test]
fn a_hidden_name_is_shown_with_the_rule_that_hides_it() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    let mut watch = watching(&site, "");
    call(&site, "reader", "files__write");
    let told = watch.rows_with("files/write").data;
    assert!(told.contains("<code>write</code> in the deny list of agent"), "{told}");
    assert!(told.contains("toolward.yaml:"), "{told}");
    let record = newest(&site);
    call(&site, "reader", "files__nothing");
    let told = watch.rows_with("files/nothing").data;
    assert!(told.contains("has no tool") && !told.contains("no-such-tool"), "{told}");
    // The panel has the tool's name, and requests its explanation.
    let id = record["id"].as_str().unwrap();
    let one = site.part(&format!("live?id={id}"));
    assert!(one.contains("hx-get=\"explain?server=files&amp;tool=write&amp;agent=reader"), "{one}");
}

#[test]
fn a_record_without_a_rule_is_explained_by_the_active_policy() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    let mut watch = watching(&site, "");
    // Records of an older gateway.
    let line = |number: u32, name: &str| {
        format!(
            "{{\"id\":\"ffffffffff{number:03x}-0000000a-{number:x}\",\
             \"time\":\"2026-01-01T00:00:00.000000Z\",\"kind\":\"refusal\",\"agent\":\"reader\",\
             \"exposed_name\":\"{name}\",\"listed\":false,\"verdict\":\"deny\"}}\n"
        )
    };
    let path = site.gate.file("audit/audit.2.jsonl");
    std::fs::write(&path, line(1, "files__write") + &line(2, "files__nothing")).unwrap();
    let told = watch.rows_with("files__nothing").data;
    assert!(told.contains("by the active policy") && told.contains(">write<"), "{told}");
    assert!(told.contains("no server has a tool of this name now"), "{told}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn hostile_names_are_text() {
    let hostile = "x</td><script>alert(1)</script>\u{1b}[31m\u{202e}\n\nevent: evil\ndata: y";
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    let mut watch = watching(&site, "");
    call(&site, "reader", hostile);
    let told = watch.rows_with("alert(1)").data;
    // The audit log has sanitized some of it already.
    for raw in ["<script", "\u{1b}", "\u{202e}", "\nevent:"] {
        assert!(!told.contains(raw), "{told}");
    }
    assert!(told.contains("&lt;script&gt;"), "{told}");
    let id = newest(&site)["id"].as_str().unwrap().to_string();
    for html in [site.html("live"), site.html(&format!("live?id={id}")), site.html("policy")] {
        assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
        assert!(!html.contains("<script>alert") && !html.contains('\u{202e}'), "{html}");
    }
    // The search text is put back into the field.
    let sought = site.html(&format!("live?q={}", encoded("\"><script>")));
    assert!(sought.contains(&format!("value=\"{}\"", escaped("\"><script>"))), "{sought}");
}

#[test]
fn filters_leave_what_was_asked_for() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    call(&site, "reader", "files__read");
    call(&site, "reader", "files__write");
    site.gate.agent("reader").modern("tools/list", json!({}));
    site.gate.records();
    let rows = |query: &str| {
        let html = site.html(&format!("live{query}"));
        let rows = between(&html, "<tr id=", "</tr>");
        rows.into_iter().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(rows("").len(), 4);
    assert_eq!(rows("?kinds=calls").len(), 3);
    assert!(rows("?kinds=all").len() > 4, "the start is among them");
    assert_eq!(rows("?agent=%3Dall").len(), 1);
    assert_eq!(rows("?agent=%3D").len(), 0);
    assert_eq!(rows("?verdict=deny").len(), 1);
    assert_eq!(rows("?verdict=allow&agent=%3Dreader").len(), 1);
    assert_eq!(rows("?server=files&kinds=calls").len(), 3);
    assert_eq!(rows("?server=other").len(), 0);
    assert_eq!(rows("?q=FILES__write").len(), 1);
    assert_eq!(rows("?q=nothing-like-it").len(), 0);
    let mut watch = watching(&site, "verdict=deny");
    call(&site, "all", "files__read");
    call(&site, "reader", "files__nothing");
    let told = watch.event("rows");
    assert_eq!(told.ids().len(), 1, "{}", told.data);
    assert!(told.data.contains("files/nothing"), "{}", told.data);
}

#[test]
fn one_decision_shows_its_whole_audit_record() {
    let audit = json!({"dir": "audit", "arguments": "full"});
    let site = Site::of(ready().set("audit", audit));
    call(&site, "all", "files__read");
    let records = site.gate.records();
    let intent = records.iter().find(|record| record["kind"] == "intent").unwrap();
    let id = intent["id"].as_str().unwrap();
    let one = site.part(&format!("live?id={id}"));
    assert!(!one.contains("<html"), "a part: {one}");
    for name in ["id", "time", "identity", "client", "exposed_name", "policy", "request_id"] {
        let value = escaped(intent[name].as_str().unwrap());
        assert!(one.contains(&value), "{name}: {value} in {one}");
    }
    let arguments = escaped(&intent["arguments"].to_string());
    assert!(one.contains(&arguments), "{arguments} in {one}");
    assert!(one.contains("ok after ") && one.contains(" bytes</dd>"), "{one}");
    let explain = format!("args={}", "%7B%22path%22%3A%22%2Fa%22%7D");
    assert!(one.contains(&explain), "{one}");
    // The same as a linkable page.
    assert!(site.html(&format!("live?id={id}")).contains("<html"));
    for wrong in ["../../etc/passwd", "0000000000001-aaaaaaaa-1", "%00"] {
        let reply = site.get(&format!("live?id={wrong}"), &[("HX-Request", "true")]);
        assert_eq!(reply.status, 400, "{wrong}");
    }
}

#[test]
fn when_too_much_comes_the_end_is_shown_and_the_rest_is_counted() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    let mut watch = watching(&site, "");
    // Another process has its own stream in the same directory.
    let line = |number: u32| {
        format!(
            "{{\"id\":\"{:013x}-0000000a-{number:x}\",\"time\":\"2026-01-01T00:00:00.000000Z\",\
             \"kind\":\"refusal\",\"agent\":\"flood\",\"exposed_name\":\"x{number}\",\
             \"listed\":true,\"verdict\":\"deny\",\"step\":\"limit\",\"limit\":\"l\"}}\n",
            u64::MAX / 4096 - 1_000_000 + u64::from(number)
        )
    };
    let path = site.gate.file("audit/audit.2.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(line(1).as_bytes()).unwrap();
    assert!(watch.rows_with("flood").data.contains("x1<"));
    let many: String = (2..=20_000).map(line).collect();
    file.write_all(many.as_bytes()).unwrap();
    let more = watch.event("more");
    let told = watch.event("rows");
    let rows = told.ids().len() as u64;
    assert!((1..=50).contains(&rows), "{rows}");
    assert!(told.data.contains("x20000<"), "{}", told.data);
    let more: u64 = more.data.parse().unwrap();
    assert_eq!(more + rows, 19_999);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn of_a_call_whose_arguments_are_not_recorded_the_listing_is_explained() {
    let site = Site::of(setup().stdio("files", "modern", names(&["board"])).agents(json!({
        "all": {"allow": {"servers": ["*"]}, "deny": {"tools": {"files": ["board.clear"]}}},
    })));
    let params = json!({"name": "files__board", "arguments": {"action": "clear", "all": true}});
    site.gate.agent("all").modern("tools/call", params);
    let record = newest(&site);
    assert!(record["action"] == "clear" && record["arguments"].is_string(), "{record}");
    let one = site.part(&format!("live?id={}", record["id"].as_str().unwrap()));
    let explain = "hx-get=\"explain?server=files&amp;tool=board&amp;agent=all\"";
    assert!(one.contains(explain) && !one.contains("args="), "{one}");
    assert!(one.contains("About the listing: the audit log does not have the arguments"), "{one}");
}

#[test]
fn the_stream_of_decisions_announces_changes_too() {
    let site = Site::of(ready());
    call(&site, "all", "files__read");
    site.table();
    let mut watch = watching(&site, "");
    let config = site.gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"write\"", "\"slow\"")).unwrap();
    let seen = eventually("the last change is announced", || {
        let told = watch.event("changed");
        let now = site.html("live");
        (between(&now, "data-seen=\"", "\"")[0] == told.data).then_some(told.data)
    });
    drop(watch);
    // A browser that reconnects gets the changes in between, and nothing else.
    let html = site.html("live");
    let after = encoded(between(&html, " data-after=\"", "\"")[0]);
    let first = |seen: &str| {
        let view = format!("live/events?after={after}&seen={seen}");
        let mut watch = Watch::open(&site, &view, &[]);
        watch.next(Duration::from_millis(300)).map(|told| told.event)
    };
    assert_eq!(first(&seen), None);
    std::fs::write(&config, text).unwrap();
    eventually("it is announced at once", || (first(&seen)? == "changed").then_some(()));
}
