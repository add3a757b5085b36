use super::*;
use crate::audit::Setup;
use crate::audit::facts::Facts;
use crate::audit::{Audit, Keep};

use std::sync::Arc;
use std::time::Duration;

fn log(folder: &Path, rotate_size: u64) -> Arc<Audit> {
    let keep = Keep { rotate_size, rotate_age: Duration::from_secs(1000), retain: None };
    Audit::open(Setup { keep, ..Setup::in_folder(folder) }).unwrap()
}

async fn write(audit: &Arc<Audit>, number: u64) {
    let mut facts = Facts::default();
    facts.number("number", number);
    audit.record(&audit.id(), "test", &facts).await.unwrap();
}

fn numbers(records: &Records) -> Vec<u64> {
    records.iter().filter_map(|record| record.members()["number"].as_u64()).collect()
}

fn feed(folder: &Path) -> Feed {
    let stream = Stream::all(folder).unwrap().remove(0);
    Feed::claim(folder, "sink", stream).unwrap().unwrap()
}

/// Everything that is there now.
fn all(feed: &mut Feed, unacknowledged: u64) -> Vec<u64> {
    let mut read = Vec::new();
    while let Some(records) = feed.next().unwrap() {
        read.extend(numbers(&records));
        feed.sent(&records, unacknowledged).unwrap();
    }
    read
}

#[tokio::test]
async fn every_record_is_read_once_across_rotation_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let audit = log(folder.path(), 2000);
    let mut read = Vec::new();
    let mut reader = None;
    for number in 0..300 {
        write(&audit, number).await;
        if number % 7 == 0 {
            let feed = reader.get_or_insert_with(|| feed(folder.path()));
            read.extend(all(feed, 0));
        }
        if number % 50 == 0 {
            // The position is that of the process before.
            reader = None;
        }
    }
    audit.close();
    drop(reader);
    read.extend(all(&mut feed(folder.path()), 0));
    assert_eq!(read, (0..300).collect::<Vec<_>>());
    assert!(Stream::all(folder.path()).unwrap()[0].closed().unwrap().len() > 10);
}

#[tokio::test]
async fn what_was_not_received_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let audit = log(folder.path(), 1 << 20);
    for number in 0..10 {
        write(&audit, number).await;
    }
    audit.close();
    let mut reader = feed(folder.path());
    assert_eq!(all(&mut reader, 1 << 20).len(), 10);
    reader.rewind();
    assert_eq!(all(&mut reader, 1 << 20).len(), 10);
    reader.acknowledge_all();
    reader.rewind();
    assert_eq!(all(&mut reader, 1 << 20), Vec::<u64>::new());
}

#[tokio::test]
async fn one_process_reads_a_stream_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let audit = log(folder.path(), 1 << 20);
    write(&audit, 1).await;
    let first = feed(folder.path());
    let stream = first.stream().clone();
    assert!(Feed::claim(folder.path(), "sink", stream.clone()).unwrap().is_none());
    assert!(Feed::claim(folder.path(), "other", stream.clone()).unwrap().is_some());
    drop(first);
    assert!(Feed::claim(folder.path(), "sink", stream).unwrap().is_some());
}

#[tokio::test]
async fn records_that_the_head_does_not_cover_are_not_read() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let audit = log(folder.path(), 1 << 20);
    write(&audit, 1).await;
    audit.close();
    let mut reader = feed(folder.path());
    assert_eq!(all(&mut reader, 0), [1]);
    // A write that may still be rolled back.
    let mut live = File::options().append(true).open(folder.path().join("audit.jsonl")).unwrap();
    live.write_all(b"{\"id\":\"x\",\"time\":\"t\",\"kind\":\"test\",\"number\":2}\n").unwrap();
    assert_eq!(all(&mut reader, 0), Vec::<u64>::new());
}

#[tokio::test]
async fn segments_that_a_sink_has_not_read_are_kept() {
    use crate::audit::sink_state::SinkState;
    let folder = tempfile::tempdir().unwrap();
    let keep = Keep {
        rotate_size: 500,
        rotate_age: Duration::from_secs(1000),
        retain: Some(Duration::ZERO),
    };
    let sinks = vec![Arc::new(SinkState::new("sink", None))];
    let audit = Audit::open(Setup { keep, sinks, ..Setup::in_folder(folder.path()) }).unwrap();
    for number in 0..50 {
        write(&audit, number).await;
    }
    let closed = || Stream::all(folder.path()).unwrap()[0].closed().unwrap();
    let before = closed();
    assert!(before.len() > 5 && before[0].0 == 1, "{before:?}");
    let mut reader = feed(folder.path());
    let mut read = all(&mut reader, 0);
    // The next rotations delete what was read.
    for number in 50..60 {
        write(&audit, number).await;
    }
    let after = closed();
    assert!(after[0].0 > 5, "{after:?}");
    audit.close();
    read.extend(all(&mut reader, 0));
    assert_eq!(read, (0..60).collect::<Vec<_>>());
}
