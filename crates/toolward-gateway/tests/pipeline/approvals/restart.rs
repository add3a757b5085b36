//! Tickets and grants in the state directory, across restarts and between gateways.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;
use serde_json::json;

fn files(at: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Gives a grant for an hour.
async fn granted(gate: &Gate) {
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({}));
    gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    assert!(is_done(&call.answer().await));
}

#[tokio::test(start_paused = true)]
async fn tickets_and_grants_survive_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let server = Server::legacy(&["echo"]);
    let start = || gate(&asks(), &server).approvals_in(state.path()).start();
    let first = start();
    first.client(Kind::StdioLegacy).await.call("echo").await;
    let ticket = first.ticket().await;
    drop(first);

    let second = start();
    assert_eq!(second.ticket().await, ticket);
    second.approve(&ticket, Scope::Call).await.unwrap();
    drop(second);

    let third = start();
    let client = third.client(Kind::StdioLegacy).await;
    assert!(is_done(&client.call("echo").await));
    drop(third);

    let fourth = start();
    assert!(fourth.grants().await.is_empty());
    let answer = fourth.client(Kind::StdioLegacy).await.call("echo").await;
    assert_eq!(data(&answer)["error"], "approval_pending", "{answer}");
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn grants_of_rules_that_changed_meanwhile_are_void() {
    let state = tempfile::tempdir().unwrap();
    let server = Server::legacy(&["echo"]);
    let start = |config: &str| gate(config, &server).approvals_in(state.path()).start();
    granted(&start(&asks())).await;
    assert_eq!(start(&asks()).grants().await.len(), 1);
    drop(start(&allow("echo")));
    assert!(start(&asks()).grants().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_gateways_share_tickets_and_redeem_a_grant_once() {
    let state = tempfile::tempdir().unwrap();
    let server = Server::legacy(&["echo"]);
    let start = || gate(&asks(), &server).approvals_in(state.path()).start();
    let (one, other) = (start(), start());
    let client = one.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({"say": "hi"}));
    let ticket = one.ticket().await;
    assert_eq!(other.ticket().await.id, ticket.id);
    other.approve(&ticket, Scope::Call).await.unwrap();
    assert!(is_done(&call.answer().await), "the decision of the other gateway arrives");
    assert!(other.grants().await.is_empty() && one.grants().await.is_empty());
    let again = other.client(Kind::StdioLegacy).await.call("echo").await;
    assert_eq!(data(&again)["error"], "approval_pending", "{again}");
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn arguments_are_sealed_and_erased_when_the_ticket_is_decided() {
    let state = tempfile::tempdir().unwrap();
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).approvals_in(state.path()).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({"password": "hunter2hunter2"}));
    let ticket = gate.ticket().await;
    let approvals = &gate.gateway().context.approvals;
    let shown = approvals.params(&ticket).unwrap();
    assert_eq!(shown, r#"{"arguments":{"password":"hunter2hunter2"}}"#);
    for file in files(state.path()) {
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains("hunter2"), "{}", file.display());
        assert_eq!(
            file.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{}",
            file.display()
        );
    }
    gate.approve(&ticket, Scope::Call).await.unwrap();
    call.answer().await;
    let decided = approvals.ticket(&ticket.id).unwrap();
    assert_eq!(approvals.params(&decided), None);
    let kept = files(state.path())
        .into_iter()
        .filter(|file| file.ends_with(format!("{}.json", ticket.id)));
    for file in kept {
        let text = std::fs::read_to_string(file).unwrap();
        let kept: Value = serde_json::from_str(&text).unwrap();
        assert!(kept["sealed"].is_null(), "{kept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_grant_permits_nothing() {
    let state = tempfile::tempdir().unwrap();
    let server = Server::legacy(&["echo"]);
    let start = || gate(&asks(), &server).approvals_in(state.path()).start();
    granted(&start()).await;
    assert_eq!(start().grants().await.len(), 1);
    let grant = files(state.path())
        .into_iter()
        .find(|file| file.to_string_lossy().contains("/grants/"))
        .unwrap();
    let text = std::fs::read_to_string(&grant).unwrap();
    for damage in [
        text[..text.len() / 2].to_string(),
        text.replace("\"once\":false", "\"once\":3"),
        "[]".into(),
    ] {
        std::fs::write(&grant, damage).unwrap();
        assert!(start().grants().await.is_empty());
    }
    // A copy under another name is not a second grant.
    std::fs::write(&grant, &text).unwrap();
    std::fs::write(grant.with_file_name("AAAAAAAA.json"), &text).unwrap();
    assert_eq!(start().grants().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_written_denies() {
    let state = tempfile::tempdir().unwrap();
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).approvals_in(state.path()).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    for folder in files(state.path()).iter().filter_map(|file| file.parent()) {
        if folder.join("tickets").is_dir() {
            std::fs::remove_dir_all(folder.join("tickets")).unwrap();
        }
    }
    let answer = client.call("echo").await;
    assert_eq!(data(&answer)["error"], "approvals_unavailable", "{answer}");
    assert!(server.received("tools/call").is_empty());
}
