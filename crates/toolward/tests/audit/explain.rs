//! `toolward explain DECISION_ID`.

use serde_json::{Value, json};

use super::log::Log;

/// The decision id in a refusal.
fn decision(answer: &Value) -> String {
    let listed = &answer["result"]["_meta"]["io.toolward/refusal"]["decision_id"];
    listed.as_str().or(answer["error"]["data"]["decision_id"].as_str()).unwrap().into()
}

#[test]
fn the_time_of_a_past_decision_is_local_unless_utc_is_asked_for() {
    let log = Log::new();
    let mut client = log.client("dev");
    client.call("hidden", json!({}));
    client.close();
    let records = log.records("audit.jsonl");
    let call = records.iter().find(|record| record["kind"] == "refusal").unwrap();
    let (id, time) = (call["id"].as_str().unwrap(), call["time"].as_str().unwrap());
    let shown = |flags: &[&str]| {
        let mut command = log.command(&[&["explain", id], flags].concat());
        command.env("TZ", "EST5");
        let said = super::log::said(command);
        let line = said.out.lines().find(|line| line.trim_start().starts_with("when")).unwrap();
        line.split_whitespace().last().unwrap().to_string()
    };
    assert_eq!(shown(&["--utc"]), format!("{}Z", &time[..23]));
    let local = shown(&[]);
    assert!(local.ends_with("-05:00") && local[14..23] == time[14..23], "{local} {time}");
}

#[test]
fn a_past_decision_is_explained_by_the_rule_as_it_was() {
    let mut log = Log::new();
    let mut client = log.client("dev");
    let hidden = decision(&client.call("hidden", json!({})));
    let answer = client.call("write", json!({"path": "/etc"}));
    let refused = decision(&answer);
    // The command in a refusal works.
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let command = format!("Decision {refused} (a person can run: toolward explain {refused})");
    assert!(text.ends_with(&command), "{text}");
    assert!(text.contains("You sent path = \"/etc\"."), "{text}");
    client.call("write", json!({"path": "/srv/a"}));
    client.close();
    // The policy has changed since.
    log.allow(json!(["hidden"]));
    log.client("dev").close();
    let records = log.records("audit.jsonl");
    let call = records.iter().find(|record| record["kind"] == "intent").unwrap();
    let outcome = records.iter().find(|record| record["kind"] == "outcome").unwrap();
    for id in [&call["id"], &outcome["id"]] {
        let said = log.run(&["explain", id.as_str().unwrap()]);
        assert_eq!(said.code, 0, "{said:?}");
        let rule = "write when args.path.startsWith(\"/srv/\")";
        for expected in [
            "dev called s/write: allow",
            call["id"].as_str().unwrap(),
            &call["time"].as_str().unwrap()[14..23],
            "launch-flag",
            "test 1",
            "s__write",
            "3-exact-allow, in layer 0",
            "agents.dev.allow.tools.s[3]",
            rule,
            call["rule_at"].as_str().unwrap(),
            call["reason"].as_str().unwrap(),
            call["policy"].as_str().unwrap(),
            "outcome    ok after ",
            "audit.jsonl:",
        ] {
            assert!(said.out.contains(expected), "{expected}: {}", said.out);
        }
        assert!(!said.out.contains("warning"), "{}", said.out);
    }
    let said = log.run(&["explain", "--json", call["id"].as_str().unwrap()]);
    let explained = said.json();
    assert_eq!(
        (&explained["rule_text"], &explained["outcome"]),
        (&call["rule_text"], &json!("ok"))
    );
    assert_eq!(explained["fits"], true);
    let said = log.run(&["explain", &refused]);
    assert!(said.code == 0 && said.out.contains("dev called s/write: deny"), "{said:?}");
    assert!(said.out.contains("6-default-deny"), "{said:?}");
    // The text that the agent got, without the arguments, which are not logged.
    for line in text.replace("\"/etc\"", "[not recorded]").lines() {
        assert!(said.out.lines().any(|out| out.ends_with(line)), "{line}\n{}", said.out);
    }
    let record = log.records("audit.jsonl");
    let record = record.iter().find(|record| record["id"] == *refused).unwrap();
    let why = "`s/write` is allowed only when `args.path.startsWith(\"/srv/\")`, which is false";
    assert!(record["reason"].as_str().unwrap().starts_with(why), "{record}");
    assert!(said.out.contains(why), "{said:?}");
    let said = log.run(&["explain", &hidden]);
    assert!(said.code == 0 && said.out.contains("s__hidden"), "{said:?}");
}

#[test]
fn a_decision_is_found_in_any_segment() {
    let log = Log::new().audit("rotate", json!({"size": "1500 B", "age": "1 day"}));
    let mut client = log.client("dev");
    let ids: Vec<String> = (0..12).map(|_| decision(&client.call("hidden", json!({})))).collect();
    client.close();
    assert!(log.segments().len() >= 3);
    for id in &ids {
        let said = log.run(&["explain", id]);
        assert!(said.code == 0 && said.out.contains(id.as_str()), "{said:?}");
    }
}

#[test]
fn a_changed_record_is_not_trusted() {
    let log = Log::small();
    let mut lines = log.lines("audit.jsonl");
    let at = lines.iter().position(|line| line.contains("\"kind\":\"refusal\"")).unwrap();
    lines[at] = lines[at].replace("\"verdict\":\"deny\"", "\"verdict\":\"allow\"");
    log.write("audit.jsonl", &lines);
    let record: Value = serde_json::from_str(&lines[at]).unwrap();
    let said = log.run(&["explain", record["id"].as_str().unwrap()]);
    assert!(said.out.contains("warning:") && said.out.contains("audit verify"), "{said:?}");
}

#[test]
fn a_missing_decision_is_reported() {
    let log = Log::small();
    let said = log.run(&["explain", "6605d2f252b7f-226f8544-0"]);
    assert!(said.code == 1 && said.err.contains("no record in "), "{said:?}");
    // A word that is not an id is still a query of the policy.
    let said = log.run(&["explain", "6605d2f252b"]);
    assert!(said.code == 2 && said.err.contains("SERVER/TOOL"), "{said:?}");
}
