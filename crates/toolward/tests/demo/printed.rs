//! Every line that the demo prints, run as it is printed.

use serde_json::{Value, json};

use toolward_testkit::wait::eventually;

use super::running::{Demo, answer, shell};

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn the_list_differs_by_agent() {
    let demo = Demo::start(&[]);
    let line = demo.line("list the tools of reader");
    let read = answer(line, demo.home.path());
    assert_eq!(
        names(&read),
        [
            "tracker__search_issues",
            "tracker__get_issue",
            "tracker__board",
            "tracker__weekly_report",
            "files__list_files",
            "files__read_file",
        ]
    );
    let board = &read["result"]["tools"][2]["inputSchema"]["properties"]["action"]["enum"];
    assert_eq!(*board, json!(["show"]));
    let file = &read["result"]["tools"][5];
    assert_eq!(file["description"], "Reads one file of the project.");
    let as_other = |agent: &str| line.replace(demo.token("reader"), demo.token(agent));
    let visited = answer(&as_other("visitor"), demo.home.path());
    assert_eq!(names(&visited), ["tracker__search_issues", "tracker__get_issue"]);
    let kept = answer(&as_other("maintainer"), demo.home.path());
    assert_eq!(names(&kept).len(), 11, "{kept}");
    assert!(!names(&kept).contains(&"tracker__delete_issue"));
    // Without a token, the request is rejected.
    let nobody = line.replace(demo.token("reader"), "nobody");
    let turned_away = shell(&nobody, demo.home.path(), None);
    let body = String::from_utf8(turned_away.stdout).unwrap();
    assert!(!body.contains("search_issues"), "{body}");
}

#[test]
fn an_allowed_call_passes_and_a_denied_one_has_a_reason() {
    let demo = Demo::start(&[]);
    let issue = answer(demo.line("allowed"), demo.home.path());
    assert_eq!(issue["result"]["structuredContent"]["number"], 17, "{issue}");
    assert!(issue["result"].get("isError").is_none(), "{issue}");
    let refused = answer(demo.line("refused"), demo.home.path());
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("tracker__delete_issue is not permitted. Allowed: "), "{message}");
    assert!(message.contains("tracker__get_issue"), "{message}");
    // The issue still exists.
    assert_eq!(answer(demo.line("allowed"), demo.home.path()), issue);
}

#[test]
fn a_call_waits_until_a_person_approves_it() {
    let demo = Demo::start(&[]);
    let closed = std::thread::scope(|scope| {
        let waits = scope.spawn(|| answer(demo.line("waits until you approve"), demo.home.path()));
        let pending = demo.line("calls that wait for a person");
        let ticket = eventually("the call waits", || {
            let listed = shell(&format!("{pending} --json"), demo.home.path(), None);
            let listed: Value = serde_json::from_slice(&listed.stdout).ok()?;
            Some(listed[0]["id"].as_str()?.to_string())
        });
        let approve = pending.replace(" pending ", &format!(" approve {ticket} "));
        let approved = shell(&approve, demo.home.path(), None);
        assert!(approved.status.success(), "{approved:?}");
        waits.join().unwrap()
    });
    let text =
        closed["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{closed}"));
    assert!(text.contains("is closed"), "{closed}");
}

#[test]
fn the_commands_answer_as_the_gateway_does() {
    let demo = Demo::start(&[]);
    let listed = shell(demo.line("what reader may do"), demo.home.path(), None);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success() && text.contains("`reader` sees 6 of 12 tools"), "{text}");
    assert!(text.contains("fs_get_v2 as read_file"), "{text}");
    let asked = shell(demo.line("check one call"), demo.home.path(), None);
    assert_eq!(asked.status.code(), Some(1));
    assert!(String::from_utf8(asked.stdout).unwrap().starts_with("no: "));
    let why = shell(demo.line("explain the denial"), demo.home.path(), None);
    let text = String::from_utf8(why.stdout).unwrap();
    assert!(text.contains("maintainer calls files/write_file: deny"), "{text}");
    assert!(text.contains("args.path.startsWith(\"drafts/\")"), "{text}");
}

#[test]
fn the_admin_ui_is_at_the_printed_address() {
    let demo = Demo::start(&[]);
    let page = demo.address("Admin UI");
    assert_eq!(demo.address("Open"), page);
    let status = |url: &str, home: &std::path::Path| {
        let line = format!("curl -s -o /dev/null -w '%{{http_code}}' '{url}'");
        String::from_utf8(shell(&line, home, None).stdout).unwrap()
    };
    assert_eq!(status(page, demo.home.path()), "303");
    let without = page.split('?').next().unwrap();
    assert_eq!(status(without, demo.home.path()), "401");
    assert_eq!(status(&format!("{without}?token=wrong"), demo.home.path()), "401");
}

#[test]
fn nothing_but_text_is_printed_where_there_is_no_terminal() {
    let demo = Demo::start(&[]);
    assert!(!demo.printed.contains('\u{1b}'));
    assert!(demo.printed.lines().all(|line| line.trim_end() == line), "{}", demo.printed);
}
