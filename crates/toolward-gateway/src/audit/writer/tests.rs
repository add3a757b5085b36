use std::io::Error;

use super::*;

fn open(folder: &Path) -> (Writer, Ids) {
    let ids = Ids::new().unwrap();
    let keep = Keep { rotate_size: 1 << 20, rotate_age: Duration::from_secs(9999), retain: None };
    (Writer::open(folder, keep, true, &ids).unwrap(), ids)
}

fn kinds(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    records.map(|record: serde_json::Value| record["kind"].as_str().unwrap().into()).collect()
}

fn one(ids: &Ids, kind: &str, awaited: bool) -> Lines {
    let mut lines = Lines::default();
    lines.push_as(&ids.next(), kind, &Facts::default(), awaited);
    lines
}

#[test]
fn a_partial_write_is_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, ids) = open(folder.path());
    let how = How { awaited: true, head: Head::Written, room: 0, on_disk: true };
    writer.write(&one(&ids, "intent", true), how, &ids).unwrap();
    writer.sync = |_| Err(Error::other("no disk"));
    let mut both = one(&ids, "intent", true);
    both.append(&one(&ids, "outcome", false));
    let before = std::fs::read(folder.path().join("audit.jsonl")).unwrap();
    for _ in 0..3 {
        assert!(writer.write(&both, how, &ids).is_err());
        assert_eq!(std::fs::read(folder.path().join("audit.jsonl")).unwrap(), before);
    }
    writer.sync = File::sync_data;
    writer.write(&one(&ids, "refusal", true), how, &ids).unwrap();
    let outcomes = ["outcome", "outcome", "outcome"];
    let expected = [&["segment", "intent", "recovery"], &outcomes, &["refusal"][..]].concat();
    assert_eq!(kinds(folder.path()), expected);
    drop(writer);
    let stream = Stream { folder: folder.path().into(), number: 1 };
    let report = crate::audit::read::chain::verify(&stream, &mut |_| {}).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(text.contains("\"refused\":3,\"reason\":\"no disk\""), "{text}");
}

#[test]
fn outcomes_are_kept_and_those_that_do_not_fit_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, ids) = open(folder.path());
    let how = How { awaited: true, head: Head::Written, room: 0, on_disk: true };
    writer.sync = |_| Err(Error::other("no disk"));
    let mut facts = Facts::default();
    facts.text("text", &"x".repeat(300 << 10));
    let mut lines = Lines::default();
    lines.push_as(&ids.next(), "outcome", &facts, false);
    for _ in 0..5 {
        assert!(writer.write(&lines, how, &ids).is_err());
    }
    writer.sync = File::sync_data;
    writer.write(&Lines::default(), How { room: 100, ..how }, &ids).unwrap();
    assert_eq!(kinds(folder.path()), ["segment", "recovery", "outcome", "outcome", "outcome"]);
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(text.contains("\"refused\":0,\"outcomes_lost\":2,"), "{text:.900}");
    // Nothing is reported twice.
    writer.write(&Lines::default(), how, &ids).unwrap();
    assert_eq!(kinds(folder.path()).len(), 5);
}
