//! Ten thousand calls that wait at the same time.

use toolward_wire::{Message, Sender};

use super::*;

fn message(number: usize) -> Message {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","arguments":{{"n":{number},"text":"{}"}}}}}}"#,
        "x".repeat(200)
    );
    Message::parse(body.into(), 1 << 12, Sender::Client).unwrap()
}

fn subject(agent: usize) -> Subject {
    Subject {
        agent: Some(format!("agent-{agent}").into()),
        holder: None,
        server: "s".into(),
        method: "tools/call".into(),
        name: "x".into(),
        definition: "d".into(),
        entries: vec!["e".into()],
        origin: "o".into(),
    }
}

#[tokio::test]
async fn ten_thousand_tickets_of_five_hundred_agents_are_kept_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let approvals = Approvals::in_state(folder.path(), "test").unwrap();
    for number in 0..10_000 {
        let (message, ttl) = (message(number), Duration::from_secs(3600));
        let binding = match approvals.redeem(subject(number % 500), &message, None).await.unwrap() {
            Ok(redeemed) => panic!("nothing was granted: {redeemed:?}"),
            Err(binding) => binding,
        };
        let (exposed, holder_name, rules) = ("x".into(), None, Vec::new());
        let question = Question { exposed, holder_name, rules, ttl };
        approvals.ask(&binding, &message, question).await.unwrap().unwrap();
    }
    drop(approvals);
    let approvals = Approvals::in_state(folder.path(), "test").unwrap();
    let pending = approvals.pending().await.unwrap();
    assert_eq!((pending.len(), approvals.pending_count()), (10_000, 10_000));
    let last = pending.last().unwrap();
    assert!(approvals.params(last).unwrap().contains("\"n\":9999"));
    approvals.approve(&last.id, &Scope::Tool(Duration::from_secs(60)), ("a", "b")).await.unwrap();
    let agent = 9999 % 500;
    assert!(approvals.redeem(subject(agent), &message(1), None).await.unwrap().is_ok());
    assert!(approvals.redeem(subject(0), &message(1), None).await.unwrap().is_err());
}
