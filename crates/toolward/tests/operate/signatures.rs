//! `audit.sign` and `audit verify --key`.

use std::process::{Command, Output};

use serde_json::json;

use super::harness::{Gate, eventually, everyone, names, setup};
use super::sinks::{call, lines};

fn toolward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toolward")).args(arguments).output().unwrap()
}

fn verify(gate: &Gate, key: &str, more: &[&str]) -> (Option<i32>, String) {
    let audit = gate.file("audit");
    let mut arguments = vec!["audit", "verify", "--dir", audit.to_str().unwrap(), "--key", key];
    arguments.extend(more);
    let output = toolward(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text + &String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_log_that_was_written_anew_fails_although_its_chain_is_whole() {
    let setup = setup();
    let file = setup.path("audit.key");
    let made = toolward(&["audit", "keygen", file.to_str().unwrap()]);
    assert!(made.status.success());
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    // An existing key is never replaced.
    assert!(!toolward(&["audit", "keygen", file.to_str().unwrap()]).status.success());
    let audit = json!({"dir": "audit", "sign": "audit.key", "anchor": "anchor"});
    let mut gate =
        setup.agents(everyone()).set("audit", audit).web("s", "modern", names(&["a"])).start();
    call(&gate, 5);
    let signatures = gate.file("audit/audit.signatures");
    eventually("the log is signed", || !lines(&signatures).is_empty());
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    let (code, said) = verify(&gate, &key, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("valid signature"), "{said}");
    let anchor = gate.file("anchor");
    assert_eq!(verify(&gate, &key, &["--signatures", anchor.to_str().unwrap()]).0, Some(0));
    // Someone removes the log with its signatures, and lets another gateway write one.
    let away = gate.file("away");
    std::fs::rename(gate.file("audit"), &away).unwrap();
    gate.restart();
    call(&gate, 5);
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    let (code, said) = verify(&gate, &key, &["--signatures", anchor.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("signed"), "{said}");
    let other = format!("ed25519:{}", "0".repeat(64));
    assert_eq!(verify(&gate, &other, &[]).0, Some(1));
}
