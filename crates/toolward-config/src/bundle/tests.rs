use super::archive::archive;
use super::*;

fn bundle() -> Bundle {
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    Bundle { revision: 7, files: vec![file("a/one.yaml", "x: 1"), file("two.yaml", "y: 2")] }
}

fn key() -> SigningKey {
    SigningKey::generate().unwrap().0
}

/// An archive with these entries, whose manifest is signed.
fn signed_archive(key: &SigningKey, manifest: &Value, files: &[(&str, &[u8])]) -> Vec<u8> {
    let manifest = manifest.to_string();
    let signature = key.0.sign(&signed(manifest.as_bytes()));
    let mut entries: Vec<(&str, &[u8])> =
        vec![(MANIFEST, manifest.as_bytes()), (SIGNATURE, signature.as_ref())];
    entries.extend(files);
    archive(&entries).unwrap()
}

fn listed(name: &str, content: &[u8]) -> Value {
    json!({"path": name, "size": content.len(), "sha256": hex(&Sha256::digest(content))})
}

fn why(bytes: &[u8], key: &SigningKey) -> String {
    Bundle::open(bytes, &key.public()).unwrap_err().to_string()
}

#[test]
fn a_bundle_contains_what_was_signed() {
    let (key, document) = SigningKey::generate().unwrap();
    let bytes = bundle().seal(&key).unwrap();
    assert_eq!(bytes, bundle().seal(&key).unwrap(), "the same files make the same bundle");
    let again = SigningKey::read(&document).unwrap();
    let public = BundleKey::parse(&again.public().to_string()).unwrap();
    assert_eq!(Bundle::open(&bytes, &public), Ok(bundle()));
    for bad in
        ["", "ed25519:", "ed25519:00", &"0".repeat(64), &format!("ed25519:{}", "g".repeat(64))]
    {
        assert!(BundleKey::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn no_bit_of_a_bundle_can_change() {
    let key = key();
    let bytes = bundle().seal(&key).unwrap();
    assert!(why(&bytes, &self::key()).contains("signature"));
    for at in 0..bytes.len() {
        // Time, operating system and flags of the gzip header mean nothing.
        if (4..10).contains(&at) {
            continue;
        }
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        if let Ok(opened) = Bundle::open(&changed, &key.public()) {
            assert_eq!(opened, bundle(), "at {at}");
        }
    }
}

#[test]
fn a_bundle_that_is_cut_short_or_continued_is_rejected() {
    let key = key();
    let bytes = bundle().seal(&key).unwrap();
    for length in 0..bytes.len() {
        assert!(Bundle::open(&bytes[..length], &key.public()).is_err(), "{length} bytes");
    }
    assert!(why(&[&bytes[..], b"x"].concat(), &key).contains("follows"));
    assert!(why(&[&bytes[..], &bytes[..]].concat(), &key).contains("follows"));
}

#[test]
fn files_are_exactly_those_of_the_manifest() {
    let key = key();
    let content: &[u8] = b"x: 1";
    let manifest = |files: Vec<Value>| json!({"version": 1, "revision": 1, "files": files});
    let one = manifest(vec![listed("one.yaml", content)]);
    assert!(
        Bundle::open(&signed_archive(&key, &one, &[("one.yaml", content)]), &key.public()).is_ok()
    );
    type Files<'a> = &'a [(&'a str, &'a [u8])];
    let cases: [(&str, Value, Files<'_>); 8] = [
        ("missing", one.clone(), &[]),
        ("not what", one.clone(), &[("one.yaml", b"x: 2")]),
        ("not what", one.clone(), &[("two.yaml", content)]),
        ("does not list", one.clone(), &[("one.yaml", content), ("two.yaml", content)]),
        ("twice", manifest(vec![listed("one.yaml", content); 2]), &[("one.yaml", content); 2]),
        ("1 to 256", manifest(Vec::new()), &[]),
        ("not complete", json!({"version": 1, "files": []}), &[]),
        ("newer", json!({"version": 2, "revision": 1, "files": []}), &[]),
    ];
    for (expected, manifest, files) in cases {
        let found = why(&signed_archive(&key, &manifest, files), &key);
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

#[test]
fn names_cannot_leave_the_bundle() {
    let key = key();
    let names = [
        "/etc/passwd",
        "../up.yaml",
        "a/../../up.yaml",
        "./x.yaml",
        "a//b",
        "",
        "a\\b.yaml",
        ".hidden",
        "manifest.json",
        "a b.yaml",
        "ü.yaml",
        "x\n.yaml",
    ];
    for name in names {
        let manifest = json!({"version": 1, "revision": 1, "files": [listed(name, b"x")]});
        let found = why(&signed_archive(&key, &manifest, &[(name, b"x")]), &key);
        assert!(found.contains("not a name"), "{name}: {found}");
        let bundle = Bundle { revision: 1, files: vec![(name.into(), b"x".to_vec())] };
        assert!(bundle.seal(&key).is_err(), "{name}");
    }
}

/// An archive that has one entry with a changed header.
fn with_header(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    use std::io::{Read, Write};
    let plain = archive(&[("manifest.json", b"{}")]).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&plain[..]).read_to_end(&mut bytes).unwrap();
    change(&mut bytes[..512]);
    let blank: u32 =
        (0..512).map(|at| u32::from(if (148..156).contains(&at) { b' ' } else { bytes[at] })).sum();
    bytes[148..156].copy_from_slice(format!("{blank:06o}\0 ").as_bytes());
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(&bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn links_devices_and_extended_headers_are_rejected() {
    let key = key();
    for kind in *b"1234567xgLKS\0 " {
        let found = why(&with_header(|header| header[156] = kind), &key);
        assert!(found.contains("plain files"), "{}: {found}", char::from(kind));
    }
    assert!(
        why(&with_header(|header| header[345] = b'/'), &key).contains("plain files"),
        "a prefix"
    );
    assert!(
        why(&with_header(|header| header[124] = 0x80), &key).contains("plain files"),
        "a binary size"
    );
    let huge = |header: &mut [u8]| header[124..135].copy_from_slice(b"77777777777");
    assert!(why(&with_header(huge), &key).contains("too large"));
}

#[test]
fn a_bomb_is_not_unpacked() {
    use std::io::Write;
    let key = key();
    // Zeros, which are compressed to a thousandth. The first block ends the archive.
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..64 {
        out.write_all(&[0; 1 << 20]).unwrap();
    }
    let bomb = out.finish().unwrap();
    assert!(Bundle::open(&bomb, &key.public()).is_err());
    // Files are read only as far as the limit.
    let large = vec![0; (4 << 20) + 1];
    let bundle = Bundle { revision: 1, files: vec![("a".into(), large)] };
    assert!(bundle.seal(&key).unwrap_err().to_string().contains("too large"));
    assert!(why(&vec![0; MAX_BYTES + 1], &key).contains("larger"));
}
