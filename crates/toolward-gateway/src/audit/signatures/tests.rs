use super::*;
use crate::audit::facts::Facts;
use crate::audit::{Keep, Setup};

fn log(folder: &Path) -> Arc<Audit> {
    let keep = Keep { rotate_size: 1500, rotate_age: Duration::from_secs(1000), retain: None };
    Audit::open(Setup { keep, ..Setup::in_folder(folder) }).unwrap()
}

async fn write(audit: &Arc<Audit>, times: usize) {
    for _ in 0..times {
        audit.record(&audit.id(), "test", &Facts::default()).await.unwrap();
    }
}

/// A closed log with several segments, its stream, and the public key of its signatures.
async fn signed_log(folder: &Path) -> (Stream, String) {
    let audit = log(folder);
    let key = SigningKey::read(&SigningKey::generate().unwrap()).unwrap();
    let public = key.public();
    let anchor = Some(folder.join("anchor"));
    let mut signer = Signer { key, anchor, signed: None, at: None, failing: false };
    for _ in 0..6 {
        write(&audit, 5).await;
        signer.look(&audit.stream(), false);
    }
    audit.close();
    signer.look(&audit.stream(), true);
    (audit.stream(), public)
}

#[tokio::test]
async fn every_closed_segment_and_the_end_are_signed() {
    let folder = tempfile::tempdir().unwrap();
    let (stream, key) = signed_log(folder.path()).await;
    let closed = stream.closed().unwrap().len() as u64;
    assert!(closed >= 2, "{closed}");
    let found = verify(&stream, &signatures_path(&stream), &key).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    // The first head, each closed segment, and the end.
    assert_eq!(found.valid, closed + 2);
    let anchored = verify(&stream, &folder.path().join("anchor"), &key).unwrap();
    assert_eq!(anchored, found);
}

#[tokio::test]
async fn a_log_that_was_written_anew_does_not_match_its_signatures() {
    let folder = tempfile::tempdir().unwrap();
    let (stream, key) = signed_log(folder.path()).await;
    let problems = || verify(&stream, &signatures_path(&stream), &key).unwrap().problems;
    // The end is cut off.
    let live = stream.live_path();
    let text = std::fs::read_to_string(&live).unwrap();
    let cut = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    std::fs::write(&live, &text[..cut]).unwrap();
    assert!(problems()[0].contains("and are missing"), "{:?}", problems());
    // The last record is another one, of the same length.
    std::fs::write(&live, text.replace("\"kind\":\"stop\"", "\"kind\":\"stip\"")).unwrap();
    assert!(problems()[0].contains("differ from those that were signed"), "{:?}", problems());
    std::fs::write(&live, &text).unwrap();
    assert!(problems().is_empty());
    // A segment in the middle is removed.
    std::fs::remove_file(stream.closed_path(2)).unwrap();
    assert!(problems()[0].contains("segment 2 was signed, and is missing"), "{:?}", problems());
    // The oldest ones expire.
    std::fs::remove_file(stream.closed_path(1)).unwrap();
    let found = verify(&stream, &signatures_path(&stream), &key).unwrap();
    assert!(found.expired >= 2, "{found:?}");
}

#[tokio::test]
async fn forged_signatures_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (stream, key) = signed_log(folder.path()).await;
    let other = SigningKey::read(&SigningKey::generate().unwrap()).unwrap().public();
    let found = verify(&stream, &signatures_path(&stream), &other).unwrap();
    assert!(found.valid == 0 && found.problems[0].contains("not valid for this key"));
    assert!(verify(&stream, &signatures_path(&stream), "ed25519:00").is_err());
    let path = signatures_path(&stream);
    let text = std::fs::read_to_string(&path).unwrap();
    for (what, with) in
        [("\"time\":\"2", "\"time\":\"3"), ("\"bytes\":", "\"bytes\":1"), ("{", "[")]
    {
        std::fs::write(&path, text.replacen(what, with, 1)).unwrap();
        assert_eq!(verify(&stream, &path, &key).unwrap().problems.len(), 1, "{what}");
    }
    std::fs::remove_file(&path).unwrap();
    let found = verify(&stream, &path, &key).unwrap();
    assert!(found.problems[0].contains("there is no signature"), "{found:?}");
}

#[test]
fn a_key_in_pem_is_read_too() {
    let document = SigningKey::generate().unwrap();
    let encoded = STANDARD.encode(&document);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
    let one = SigningKey::read(&document).unwrap().public();
    assert_eq!(SigningKey::read(pem.as_bytes()).unwrap().public(), one);
    assert!(SigningKey::read(b"x").is_err());
}
