//! Refusals beyond a limit are counted, so that no agent can fill the disk with records.

use serde_json::{Value, json};

use super::harness::*;

fn of_kind<'r>(records: &'r [Value], kind: &str) -> Vec<&'r Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

fn decision(answer: &Value) -> String {
    let listed = &answer["result"]["_meta"]["io.toolward/refusal"]["decision_id"];
    listed.as_str().or(answer["error"]["data"]["decision_id"].as_str()).unwrap().into()
}

#[test]
fn refusals_beyond_the_limit_are_counted_and_none_is_lost() {
    let audit = json!({"dir": "audit", "refusals": "1/hour burst 20"});
    let mut gate =
        setup().web("s", "modern", names(&["t"])).agents(everyone()).set("audit", audit).start();
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    let told: Vec<String> = (0..200)
        .map(|at| decision(&a.call(&format!("s__hidden_{}", at % 30), json!({}))))
        .collect();
    assert!(a.list() == ["s__t"] && b.list() == ["s__t"]);
    // Another agent's refusals are still recorded individually, and calls always are.
    let other = decision(&b.call("s__hidden", json!({})));
    for _ in 0..5 {
        assert_eq!(text(&a.call("s__t", json!({}))), "did t");
    }
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    let records = gate.records();
    let single: Vec<&str> =
        of_kind(&records, "refusal").iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(single.len(), 21, "{single:?}");
    assert!(single.contains(&other.as_str()));
    assert!(told[..20].iter().all(|id| single.contains(&id.as_str())));
    // The others share one id, whose record is a count.
    let shared = &told[20];
    assert!(told[20..].iter().all(|id| id == shared), "{told:?}");
    let counts = of_kind(&records, "refusals");
    let opened: Vec<_> = counts.iter().filter(|one| one["id"] == **shared).collect();
    assert_eq!((opened.len(), &opened[0]["agent"]), (1, &json!("a")), "{counts:?}");
    let ended: Vec<_> = counts.iter().filter(|one| one["counted_from"] == **shared).collect();
    assert_eq!(ended.len(), 1, "{counts:?}");
    assert_eq!(ended[0]["count"], 181, "180 refusals and a list: {counts:?}");
    assert_eq!(ended[0]["kinds"], json!({"refusal": 180, "list": 1}));
    let names = ended[0]["exposed_names"].as_object().unwrap();
    assert!(names.len() == 16 && names.contains_key("s__hidden_20"), "{names:?}");
    assert_eq!(of_kind(&records, "intent").len(), 5);
}

#[test]
fn a_disk_that_is_nearly_full_is_reported() {
    let audit = |reserve: &str| json!({"dir": "audit", "reserve": reserve});
    let ready = |gate: &Gate| {
        let request = format!("GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", gate.port);
        let reply = gate.raw(request);
        (reply.status, String::from_utf8_lossy(&reply.body).into_owned())
    };
    let start = |reserve: &str| {
        let setup = setup().web("s", "modern", names(&["t"])).agents(everyone());
        setup.set("audit", audit(reserve)).start()
    };
    let gate = start("1 KiB");
    assert_eq!(ready(&gate), (200, "ready".into()));
    // More than any disk has.
    let gate = start("1000000 GiB");
    let (status, word) = ready(&gate);
    assert!(status == 200 && word.contains("nearly full"), "{status} {word}");
    eventually("it is logged", || {
        gate.said.lock().unwrap().contains("less than the reserve").then_some(())
    });
    // Calls continue.
    assert_eq!(text(&gate.agent("a").call("s__t", json!({}))), "did t");
}
