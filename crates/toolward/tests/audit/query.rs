//! `toolward audit query`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::log::Log;

/// Two agents, with calls that are allowed and calls that are denied.
fn log() -> Log {
    let log = Log::small();
    let mut other = log.client("other");
    other.call("read", json!({}));
    other.call("crash", json!({}));
    other.close();
    log
}

fn rows(log: &Log, words: &[&str]) -> Vec<Value> {
    let mut all = vec!["audit", "query", "--json"];
    all.extend(words);
    let said = log.run(&all);
    assert_eq!(said.code, 0, "{said:?}");
    said.rows()
}

fn told(rows: &[Value]) -> Vec<String> {
    let word = |row: &Value, name: &str| row[name].as_str().unwrap_or("-").to_string();
    rows.iter()
        .map(|row| ["agent", "exposed_name", "verdict", "outcome"].map(|name| word(row, name)))
        .map(|words| words.join(" "))
        .collect()
}

#[test]
fn a_call_is_one_row_with_what_came_of_it() {
    let log = log();
    let calls = rows(&log, &["--kind", "intent"]);
    assert_eq!(
        told(&calls),
        [
            "dev s__read allow ok",
            "dev s__write allow ok",
            "other s__read allow ok",
            "other s__crash allow server-gone",
        ]
    );
    assert!(calls.iter().all(|call| call["duration_us"].is_u64() && call["ended"].is_string()));
    assert!(calls.iter().all(|call| call.get("prev").is_none()));
    let everything = rows(&log, &[]);
    let records = log.records("audit.jsonl");
    let outcomes = records.iter().filter(|record| record["kind"] == "outcome").count();
    assert_eq!(everything.len(), records.len() - outcomes);
    let ids: Vec<&str> = everything.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted());
}

#[test]
fn filters_are_of_calls_and_so_of_their_outcomes() {
    let log = log();
    let refused = ["dev s__write deny -", "dev s__hidden deny -"];
    let crashed = "other s__crash allow server-gone";
    for (words, expected) in [
        (&["--verdict", "deny"][..], &refused[..]),
        (&["--agent", "other", "--kind", "intent"], &["other s__read allow ok", crashed]),
        (&["--tool", "cra*"], &[crashed]),
        (&["--tool", "s__crash"], &[crashed]),
        (&["--tool", "read", "--agent", "dev"], &["dev s__read allow ok"]),
        (&["--server", "s", "--verdict", "deny"], &refused[..]),
        // An unlisted name is found by its beginning and its end.
        (&["--tool", "hidden"], &refused[1..]),
        (&["--tool", "hid*", "--server", "s"], &refused[1..]),
        (&["--tool", "dden"], &[]),
        (&["--tool", "s__hidden"], &refused[1..]),
        (&["--server", "s__hid"], &[]),
        (&["--kind", "outcome", "--agent", "other"], &["other s__read allow ok", crashed]),
        (
            &["--kind", "refusal", "--kind", "intent", "--agent", "dev", "--limit", "2"],
            &["dev s__read allow ok", refused[0]],
        ),
        (&["--kind", "refusal", "--last", "1"], &refused[1..]),
        (&["--kind", "outcome", "--last", "1"], &[crashed]),
        (&["--agent", "nobody"], &[]),
        (&["--kind", "stranger"], &[]),
        (&["--limit", "0"], &[]),
    ] {
        assert_eq!(told(&rows(&log, words)), expected, "{words:?}");
    }
    let servers: Vec<Value> = rows(&log, &["--server", "s", "--kind", "list"]);
    assert_eq!(servers.len(), 1);
    let nameless = rows(&log, &["--agent", ""]);
    assert!(nameless.is_empty(), "{nameless:?}");
}

#[test]
fn calls_are_counted_by_agent_and_tool() {
    let log = log();
    let count = |words: &[&str]| -> Vec<String> {
        let mut all = vec!["--count-by"];
        all.extend(words);
        rows(&log, &all).iter().map(Value::to_string).collect()
    };
    assert_eq!(
        count(&["agent,tool"]),
        [
            r#"{"count":2,"agent":"dev","tool":"s/write"}"#,
            r#"{"count":1,"agent":"dev","tool":"s/hidden"}"#,
            r#"{"count":1,"agent":"dev","tool":"s/read"}"#,
            r#"{"count":1,"agent":"other","tool":"s/crash"}"#,
            r#"{"count":1,"agent":"other","tool":"s/read"}"#,
        ]
    );
    assert_eq!(
        count(&["verdict"]),
        [r#"{"count":4,"verdict":"allow"}"#, r#"{"count":2,"verdict":"deny"}"#]
    );
    assert_eq!(count(&["agent", "--limit", "1"]), [r#"{"count":4,"agent":"dev"}"#]);
    assert_eq!(count(&["kind", "--kind", "start"]), [r#"{"count":2,"kind":"start"}"#]);
    let said = log.run(&["audit", "query", "--count-by", "agent,tool", "--limit", "1"]);
    let lines: Vec<Vec<&str>> = said.out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines, [["COUNT", "AGENT", "TOOL"], ["2", "dev", "s/write"]]);
    assert_eq!(log.run(&["audit", "query", "--count-by", "color"]).code, 2);
}

#[test]
fn unnamed_rejected_requests_are_found_by_the_empty_name() {
    let log = log();
    let mut lines = log.lines("audit.jsonl");
    let rejected = |id: u8, more: &str| {
        format!(
            "{{\"id\":\"ffffffffffff{id}-0-0\",\"time\":\"2026-11-16T04:26:39.454083Z\",\
             \"kind\":\"turned-away\",\"count\":2,\"reason\":\"no token\"{more},\"prev\":\"\"}}"
        )
    };
    lines.push(rejected(0, ",\"source\":\"127.0.0.1\""));
    lines.push(rejected(1, ",\"agent\":\"dev\""));
    log.write("audit.jsonl", &lines);
    for flags in [&["--agent", ""][..], &["--agent", "", "--last", "9"]] {
        let found = rows(&log, flags);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["source"], "127.0.0.1");
    }
}

#[test]
fn tables_fit_the_terminal() {
    let log = log();
    for words in [&["audit", "query"][..], &["tail", "--no-follow"]] {
        for columns in [80, 120] {
            let mut command = log.command(words);
            command.env("COLUMNS", columns.to_string());
            let said = super::log::said(command);
            assert_eq!(said.code, 0, "{said:?}");
            let widest = said.out.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns, "{columns}: {}", said.out);
            assert!(said.out.contains("s/read") && said.out.contains("deny"), "{}", said.out);
            for row in rows(&log, &["--kind", "refusal"]) {
                let id = row["id"].as_str().unwrap().split('-').next().unwrap();
                assert!(said.out.contains(id), "{}", said.out);
                // The part of an id that is shown is enough to explain it.
                let explained = log.run(&["explain", id, "--json"]);
                assert_eq!(explained.rows()[0]["id"], row["id"], "{explained:?}");
            }
        }
    }
}

#[test]
fn times_are_local_unless_utc_is_asked_for() {
    let log = log();
    let first = rows(&log, &["--kind", "intent", "--limit", "1"])[0]["time"].clone();
    let first = first.as_str().unwrap();
    let shown = |zone: &str, flags: &[&str]| {
        let mut words = vec!["audit", "query", "--kind", "intent", "--limit", "1"];
        words.extend(flags);
        let mut command = log.command(&words);
        command.env("TZ", zone);
        let said = super::log::said(command);
        assert_eq!(said.code, 0, "{said:?}");
        said.out.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_string()
    };
    let (utc, east) = (shown("EST5", &["--utc"]), shown("EST5", &[]));
    assert_eq!(utc, format!("{}Z", &first[..23]));
    assert!(east.ends_with("-05:00") && east[14..23] == first[14..23], "{east} {first}");
    // A shown value can be searched for.
    for zone in ["EST5", "CET-1CEST,M3.5.0,M10.5.0/3"] {
        let local = shown(zone, &[]);
        assert_eq!(shown(zone, &["--since", &local[..23]]), local);
    }
}

#[test]
fn piped_columns_are_aligned_in_every_zone() {
    let log = log();
    for (zone, flags) in [("EST5", &[][..]), ("EST5", &["--utc"]), ("CET-1", &[])] {
        let mut command =
            log.command(&[&["audit", "query", "--kind", "intent", "--limit", "2"], flags].concat());
        command.env("TZ", zone);
        let said = super::log::said(command);
        let lines: Vec<&str> = said.out.lines().collect();
        let agent = lines[0].find("AGENT").unwrap();
        for row in &lines[1..] {
            let (time, rest) = row.split_at(agent);
            assert!(time.ends_with("  ") && !rest.starts_with(' '), "{}", said.out);
        }
    }
}

#[test]
fn the_last_rows_are_those_of_the_whole() {
    let log = log();
    for words in [&[][..], &["--agent", "dev"], &["--kind", "intent"], &["--verdict", "allow"]] {
        let all = rows(&log, words);
        for count in [0, 1, 3, all.len(), 1000] {
            let mut words = words.to_vec();
            let text = count.to_string();
            words.extend(["--last", &text]);
            assert_eq!(rows(&log, &words), all[all.len().saturating_sub(count)..], "{words:?}");
        }
    }
}

#[test]
fn times_are_points_and_spans() {
    let log = log();
    let all = rows(&log, &["--kind", "intent"]);
    let time = |row: &Value| row["time"].as_str().unwrap().to_string();
    assert_eq!(rows(&log, &["--kind", "intent", "--since", "10m"]), all);
    assert_eq!(rows(&log, &["--kind", "intent", "--since", &time(&all[2])]), all[2..]);
    // A call belongs to the time at which it started.
    assert_eq!(rows(&log, &["--kind", "intent", "--until", &time(&all[1])]), all[..2]);
    let (since, until) = (time(&all[1]), time(&all[2]));
    let middle = ["--kind", "intent", "--since", &since, "--until", &until];
    assert_eq!(rows(&log, &middle), all[1..3]);
    assert!(rows(&log, &["--until", "2020-01-01"]).is_empty());
    assert!(rows(&log, &["--since", "2200-01-01"]).is_empty());
    let said = log.run(&["audit", "query", "--since", "soon"]);
    assert!(said.code == 2 && said.err.contains("not a point in time"), "{said:?}");
}

#[test]
fn the_table_shows_every_kind_also_unknown_ones() {
    let log = log();
    let mut lines = log.lines("audit.jsonl");
    lines.push(
        "{\"id\":\"ffffffffffff0-0-0\",\"time\":\"2026-11-16T04:26:39.454083Z\",\"kind\":\"approval\",\
         \"person\":\"\u{1b}[31mme\",\"count\":2,\"prev\":\"\"}"
            .replace('\u{1b}', "\\u001b"),
    );
    log.write("audit.jsonl", &lines);
    let said = log.run(&["audit", "query"]);
    assert_eq!(said.code, 0, "{said:?}");
    let shown: Vec<&str> = said.out.lines().collect();
    assert!(shown[0].starts_with("TIME ") && shown[0].ends_with(" ID"), "{shown:#?}");
    for expected in ["segment 1", "start 0.1.0, policy ", "list s 4/5", "s/read", "stop"] {
        assert!(said.out.contains(expected), "{expected}: {}", said.out);
    }
    assert!(said.out.contains("approval person=␛[31mme count=2"), "{}", said.out);
    let denied = shown.iter().find(|line| line.contains("6-default-deny")).unwrap();
    assert!(denied.contains(" deny ") && denied.contains("s/write"), "{denied}");
    assert!(!said.out.contains('\u{1b}'));
    let mut coloured = log.command(&["audit", "query"]);
    coloured.env("CLICOLOR_FORCE", "1");
    let out = super::log::said(coloured).out;
    assert!(out.contains("\u{1b}[1m\u{1b}[31mdeny") || out.contains("\u{1b}[31m"), "{out:?}");
    assert!(!out.contains("\u{1b}[31mme"));
    let mut plain = log.command(&["audit", "query"]);
    plain.env("NO_COLOR", "1");
    assert!(!super::log::said(plain).out.contains('\u{1b}'));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let log = log();
    let lines = log.lines("audit.jsonl");
    let line = lines.iter().find(|line| line.contains("\"refusal\"")).unwrap().clone();
    log.write("audit.jsonl", &vec![line; 20_000]);
    for words in [&["audit", "query"][..], &["audit", "export", "--format", "csv"]] {
        let mut command = log.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().is_ok());
        drop(lines);
        let output = child.wait_with_output().unwrap();
        // Not 0: the log was not read to its end.
        assert!(output.status.code() == Some(141) && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn lines_that_are_not_records_are_reported_as_skipped() {
    let log = log();
    let mut lines = log.lines("audit.jsonl");
    lines.insert(3, "junk".into());
    log.write("audit.jsonl", &lines);
    for words in [
        &["audit", "query"][..],
        &["audit", "query", "--last", "1000"],
        &["audit", "export", "--format", "jsonl"],
    ] {
        let said = log.run(words);
        assert!(said.code == 1 && said.err.contains("1 line is not a record"), "{said:?}");
    }
}

#[test]
fn older_records_are_not_read_however_many_there_are() {
    let log = log();
    let lines = log.lines("audit.jsonl");
    let line = lines.iter().find(|line| line.contains("\"refusal\"")).unwrap();
    let (id, rest) = (&line[..19], &line[line.find("\",\"time\":\"").unwrap() + 11..]);
    let rest = &rest[rest.find('"').unwrap()..];
    assert!(id.starts_with("{\"id\":\""), "{id}");
    // One record per second, over some hours; and one in between that was written late.
    let (begin, count) = (1_784_000_000_u64, 20_000);
    let record = |second: u64, kind: &str| {
        let time = toolward_gateway::audit::line::time(second * 1_000_000);
        let rest = rest.replacen("refusal", kind, 1);
        format!("{{\"id\":\"{:012x}-1-{second:x}\",\"time\":\"{time}{rest}", second * 1_000_000)
    };
    let mut written: Vec<String> = (begin..begin + count).map(|at| record(at, "refusal")).collect();
    for at in (0..written.len()).step_by(100) {
        written.insert(at, record(begin, "outcome"));
    }
    // A process that reads these files reports it.
    written.splice(0..0, vec!["junk".to_string(); 3]);
    log.write("audit.jsonl", &written);
    for (since, expected) in [(500, 500), (5, 5), (5_000, 5_000), (19_990, 19_990)] {
        let from = toolward_gateway::audit::line::time((begin + count - since) * 1_000_000);
        let said = log.run(&[
            "audit", "query", "--kind", "intent", "--kind", "refusal", "--json", "--since", &from,
        ]);
        assert_eq!(said.rows().len(), expected as usize, "{since}: {}", said.err);
        let all = since > 19_000;
        assert_eq!(said.code, i32::from(all), "{since}: {}", said.err);
    }
}

#[test]
fn the_directory_is_the_configured_one() {
    let log = log();
    let run = |words: &[&str], config: Option<&str>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        command.args(words).current_dir("/").env_clear().env("HOME", log.path("home"));
        command.envs(config.map(|config| ("TOOLWARD_CONFIG", config)));
        super::log::said(command)
    };
    let config = log.path("toolward.yaml");
    let config = config.to_str().unwrap();
    assert_eq!(run(&["audit", "verify", "-c", config], None).code, 0);
    assert_eq!(run(&["audit", "verify"], Some(config)).code, 0);
    assert_eq!(run(&["audit", "verify", "-c", config, "--dir", "x"], None).code, 2);
    // Without a configuration, the directory is the one that `wrap` uses.
    assert_eq!(run(&["audit", "verify"], None).code, 3);
    let standard = log.path("home/.local/state/toolward");
    std::fs::create_dir_all(&standard).unwrap();
    std::os::unix::fs::symlink(log.path("audit"), standard.join("audit")).unwrap();
    assert_eq!(run(&["audit", "verify"], None).code, 0);
    // An invalid configuration names no directory.
    std::fs::write(log.path("broken.yaml"), "agnets: {}\n").unwrap();
    let said = run(&["audit", "verify", "-c", log.path("broken.yaml").to_str().unwrap()], None);
    assert!(said.code == 3 && said.err.contains("--dir DIR"), "{said:?}");
}

#[test]
fn every_command_that_reads_the_audit_log_has_examples() {
    for words in
        [&["audit"][..], &["audit", "verify"], &["audit", "query"], &["audit", "export"], &["tail"]]
    {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        command.args(words).arg("--help");
        let said = super::log::said(command);
        assert!(said.code == 0 && said.out.contains("Examples:\n  toolward "), "{said:?}");
    }
}

#[test]
fn arguments_are_found_by_their_keyed_hash() {
    let log = Log::small();
    let records = log.records("audit.jsonl");
    let hashes = records.iter().filter_map(|record| record["arguments"].as_str());
    let hashes: Vec<&str> = hashes.collect();
    assert_eq!(hashes.len(), 4);
    assert!(hashes.iter().all(|hash| hash.starts_with("blake3:")), "{hashes:?}");
    let plain = super::log::hash("{\"path\":\"/srv/a\"}");
    assert!(hashes.iter().all(|hash| !hash.contains(&plain)));
    let (state, empty) = (log.path("state"), log.path("empty"));
    std::fs::create_dir(&empty).unwrap();
    let (state, empty) = (state.to_str().unwrap(), empty.to_str().unwrap());
    let ask = |arguments: &str, state: &str| {
        log.run(&["audit", "query", "--json", "--arguments", arguments, "--state", state])
    };
    let given = "{ \"path\" : \"/srv/a\" }";
    let said = ask(given, state);
    assert_eq!((said.code, said.rows().len()), (0, 1), "{said:?}");
    assert_eq!(said.rows()[0]["exposed_name"], "s__write");
    let said = ask("{\"path\":\"/b\"}", state);
    assert_eq!((said.code, said.rows().len()), (0, 0), "{said:?}");
    // With a configuration, the key is in its state directory.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["audit", "query", "--json", "--arguments", given, "-c"])
        .arg(log.path("toolward.yaml"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "{output:?}");
    // Without the key no comparison is possible, and the output states that.
    let said = ask(given, empty);
    assert_eq!((said.code, said.rows().len()), (1, 0), "{said:?}");
    assert!(said.err.contains("4 records were not compared"), "{said:?}");
    assert!(std::fs::read_dir(empty).unwrap().next().is_none(), "a question makes no key");
    // Hashes of earlier versions can still be compared.
    let old: Vec<String> = log
        .lines("audit.jsonl")
        .iter()
        .map(|line| match hashes.iter().find(|hash| line.contains(**hash)) {
            Some(hash) => line.replace(hash, &format!("sha256:{plain}")),
            None => line.clone(),
        })
        .collect();
    log.write("audit.jsonl", &old);
    let said = ask(given, empty);
    assert_eq!((said.code, said.rows().len()), (0, 4), "{said:?}");
    let said = log.run(&["audit", "query", "--arguments", "[1]"]);
    assert!(said.code == 2 && said.err.contains("not a JSON object"), "{said:?}");
}
