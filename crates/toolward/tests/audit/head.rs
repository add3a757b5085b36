//! The head file, which has the end of the audit log: a missing one is noticed, recreated and reported.

use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};
use toolward_testkit::wait::eventually;

use super::log::Log;

const FILE: &str = "audit.jsonl";
const HEAD: &str = "audit.head";

fn kinds(log: &Log) -> Vec<String> {
    let records = log.records(FILE);
    records.iter().map(|record| record["kind"].as_str().unwrap().to_string()).collect()
}

/// Runs a command, and fails if it takes longer than anyone would wait.
fn at_once(log: &Log, words: &[&str]) -> super::log::Said {
    let mut command = Command::new("timeout");
    let program = env!("CARGO_BIN_EXE_toolward");
    command.args(["10", program]).args(words).arg("--dir").arg(log.path("audit"));
    super::log::said(command)
}

#[test]
fn removed_records_are_missed_also_after_a_start_without_the_head() {
    for content in [None, Some(&b""[..]), Some(b"{\"hash\":\"zz\"}"), Some(&[b'x'; 5000])] {
        let log = Log::small();
        let lines = log.lines(FILE);
        log.write(FILE, &lines[..lines.len() - 4]);
        match content {
            None => std::fs::remove_file(log.file(HEAD)).unwrap(),
            Some(content) => std::fs::write(log.file(HEAD), content).unwrap(),
        }
        log.client("dev").close();
        let said = log.verify();
        assert_eq!(said.code, 1, "{said:?}");
        let findings = said.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0]["what"], "no-head");
        let gap = log.records(FILE).into_iter().find(|record| record["kind"] == "gap").unwrap();
        assert!(gap["reason"].as_str().unwrap().starts_with("the head "), "{gap}");
        // It is reported once, and stays in the log.
        log.client("dev").close();
        assert_eq!(log.verify().findings().len(), 1);
    }
}

#[test]
fn a_first_start_has_nothing_to_miss() {
    let log = Log::new();
    log.client("dev").close();
    assert!(!kinds(&log).contains(&"gap".to_string()));
    assert_eq!(log.verify().code, 0);
    // A gateway that was killed before its first record, or just after it.
    let nothing = json!({"hash": "0".repeat(64), "segment": 0, "bytes": 0}).to_string();
    std::fs::write(log.file(HEAD), nothing).unwrap();
    let findings = log.verify().findings();
    assert_eq!(findings[0]["what"], "inserted", "{findings:#?}");
    log.client("dev").close();
    assert!(!kinds(&log).contains(&"gap".to_string()));
    assert_eq!(log.verify().code, 0);
}

#[test]
fn a_head_removed_while_a_gateway_writes_is_recreated() {
    let replaced: [&dyn Fn(&Log); 3] = [
        &|log| std::fs::remove_file(log.file(HEAD)).unwrap(),
        &|log| {
            std::fs::remove_file(log.file(HEAD)).unwrap();
            std::fs::write(log.file(HEAD), [b'x'; 3000]).unwrap();
        },
        &|log| {
            std::fs::remove_dir_all(log.path("audit")).unwrap();
            std::fs::create_dir(log.path("audit")).unwrap();
        },
    ];
    for (at, replace) in replaced.iter().enumerate() {
        let log = Log::new();
        let mut client = log.client("dev");
        client.call("read", json!({}));
        replace(&log);
        eventually(&format!("{at}: there is a head"), || {
            client.call("read", json!({}));
            std::fs::read_to_string(log.file(HEAD)).is_ok_and(|head| head.contains("segment"))
        });
        client.call("read", json!({}));
        client.close();
        let said = log.verify();
        match at {
            2 => assert_eq!(said.code, 1, "{said:?}"),
            _ => {
                assert_eq!(said.code, 0, "{said:?}");
                assert!(kinds(&log).contains(&"head".to_string()), "{:?}", kinds(&log));
            }
        }
        // Records truncated from now on are noticed.
        let lines = log.lines(FILE);
        log.write(FILE, &lines[..lines.len() - 1]);
        let cut =
            |finding: &Value| finding["message"].to_string().contains("head includes records");
        assert!(log.verify().findings().iter().any(cut), "{:?}", log.verify());
    }
}

#[test]
fn a_pipe_in_place_of_a_file_blocks_nothing() {
    let log = Log::small();
    let kept = log.file("kept");
    for name in [HEAD, FILE] {
        let path = log.file(name);
        std::fs::rename(&path, &kept).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let said = at_once(&log, &["audit", "verify"]);
        match name {
            HEAD => assert!(said.code == 1 && said.out.contains("no-head"), "{said:?}"),
            _ => assert!(said.code == 3 && said.err.contains("is not a file"), "{said:?}"),
        }
        assert!(said.code != 124, "{said:?}");
        assert_ne!(at_once(&log, &["audit", "verify", "--repair"]).code, 124);
        let mut command = Command::new("timeout");
        command.args(["10", env!("CARGO_BIN_EXE_toolward"), "stdio", "--agent", "dev", "-c"]);
        command.arg(log.path("toolward.yaml")).stdin(std::process::Stdio::null());
        let said = super::log::said(command);
        let shown = path.display().to_string();
        assert_eq!(said.code, 3, "{said:?}");
        assert!(said.err.contains(&format!("{shown} is not a file: move it away")), "{said:?}");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&kept, &path).unwrap();
    }
    assert_eq!(log.verify().code, 0);
}

#[test]
fn a_pipe_in_the_place_of_the_head_refuses_calls_until_it_is_gone() {
    let log = Log::new();
    let mut client = log.client("dev");
    let is_refused = |answer: &Value| answer["error"]["data"]["error"] == "not_recorded";
    assert!(!is_refused(&client.call("read", json!({}))));
    std::fs::remove_file(log.file(HEAD)).unwrap();
    assert!(Command::new("mkfifo").arg(log.file(HEAD)).status().unwrap().success());
    eventually("the pipe is noticed", || is_refused(&client.call("read", json!({}))));
    for _ in 0..9 {
        assert!(is_refused(&client.call("read", json!({}))));
    }
    let refused = 10;
    std::fs::remove_file(log.file(HEAD)).unwrap();
    assert!(!is_refused(&client.call("read", json!({}))));
    client.close();
    assert_eq!(log.verify().code, 0);
    // The outage is in the audit log.
    let records = log.records(FILE);
    let told = records.iter().find(|record| record["kind"] == "recovery").unwrap();
    assert_eq!(told["refused"], refused);
    assert!(told["since"].as_str() < told["time"].as_str(), "{told}");
    assert!(told["reason"].as_str().unwrap().contains("is not a file"), "{told}");
}

#[test]
fn a_path_that_cannot_be_a_directory_is_named() {
    let log = Log::new();
    let mut file = std::fs::File::create(log.path("audit")).unwrap();
    file.write_all(b"x").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    log.save();
    command.args(["stdio", "--agent", "dev", "-c"]).arg(log.path("toolward.yaml"));
    let said = super::log::said(command);
    assert!(
        said.code == 3 && said.err.contains("audit is not a directory: move it away"),
        "{said:?}"
    );
}
