//! Fuzzes list parsing with any result.
//!
//! Malformed entries are dropped and the others are kept byte for byte. Names are unique. An edited
//! entry differs from the original only in the edited members.
#![no_main]

use std::collections::HashSet;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use toolward_fuzz::wire::{choice, strict};
use toolward_wire::list::{self, Entry, EntryError, List, ListKind};
use toolward_wire::{Id, MAX_RESPONSE_BYTES, Message, Raw, Sender, jsonrpc};

const KINDS: [ListKind; 4] =
    [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::ResourceTemplates];

// The first byte selects the kind of list. Input that is not an object is the content of its array.
fuzz_target!(|data: &[u8]| {
    let (options, data) = choice(data);
    let kind = KINDS[usize::from(options % 4)];
    let result = match data.first() {
        Some(b'{') if options & 4 == 0 => data.to_vec(),
        _ => list::result(kind, &[b"[", data, b"]"].concat(), None, &[]),
    };
    let body = jsonrpc::result_body(&Id::number(1), &result);
    let Ok(message) = Message::parse(body, MAX_RESPONSE_BYTES, Sender::Server) else { return };
    let mut seen = HashSet::new();
    let Ok(list) = List::read(&message, kind, &mut seen) else { return };

    let elements: Vec<Raw<'_>> =
        message.result_member(kind.member()).unwrap().elements().map(|(raw, _)| raw).collect();
    assert_eq!(list.entries.len() + list.malformed.len(), elements.len());
    let dropped: HashSet<usize> = list.malformed.iter().map(|entry| entry.index).collect();
    let mut names = HashSet::new();
    let mut kept = list.entries.iter();
    for (index, element) in elements.iter().enumerate() {
        if !dropped.contains(&index) {
            let entry = kept.next().unwrap();
            assert_eq!(entry.bytes(), element.bytes());
            assert!(names.insert(entry.name().to_string()), "duplicate name");
            check_entry(entry, kind);
        }
    }
    assert_eq!(names, seen.iter().map(|name| name.to_string()).collect());
    for malformed in &list.malformed {
        let element = elements[malformed.index];
        let alone = strict(element.bytes());
        match &malformed.problem {
            EntryError::NotAnObject => assert!(!element.is_object()),
            EntryError::Json(_) => assert_eq!(alone, None),
            EntryError::Repeated => assert!(names.contains(malformed.name.as_ref().unwrap())),
            EntryError::NoName { .. } => {
                assert!(alone.unwrap()[kind.key()].as_str().is_none_or(str::is_empty));
            }
            EntryError::CaseVariant { key } => assert!(alone.unwrap().get(key).is_some()),
        }
    }
    round_trip(&list, kind);
});

fn check_entry(entry: &Entry, kind: ListKind) {
    let tree = strict(entry.bytes()).expect("an entry is strict");
    assert_eq!(entry.raw().to_json(), tree);
    assert_eq!(tree[kind.key()], entry.name());
    assert_eq!(entry.edit().finish(), entry.bytes());

    let shown = entry.edit().name("n").description("d").keep_enum("do", &["a", "b"]).finish();
    let mut expected = tree;
    expected["name"] = json!("n");
    expected["description"] = json!("d");
    let values = expected.pointer_mut("/inputSchema/properties/do/enum");
    if let Some(Value::Array(values)) = values
        // A JSON pointer also traverses arrays, which are not schemas.
        && let Some(raw) = ["inputSchema", "properties", "do", "enum"]
            .iter()
            .try_fold(entry.raw(), |raw, key| raw.member(key))
    {
        assert_eq!(raw.elements().count(), values.len());
        values.retain(|value| value == "a" || value == "b");
    }
    assert_eq!(strict(&shown), Some(expected), "{}", String::from_utf8_lossy(&shown));
    if matches!(kind, ListKind::Tools | ListKind::Prompts) {
        assert_eq!(Entry::parse(shown, kind).unwrap().name(), "n");
    }
}

/// A list built from the entries has the same entries.
fn round_trip(list: &List, kind: ListKind) {
    let entries: Vec<&[u8]> = list.entries.iter().map(|entry| &entry.bytes()[..]).collect();
    let array = list::array(entries.iter().copied());
    let result = list::result(kind, &array, list.next_cursor.as_deref(), &[("ttlMs", b"5")]);
    let body: Bytes = jsonrpc::result_body(&Id::number(2), &result);
    let message = Message::parse(body, MAX_RESPONSE_BYTES, Sender::Server).unwrap();
    let again = List::read(&message, kind, &mut HashSet::new()).unwrap();
    assert!(again.malformed.is_empty());
    assert_eq!(again.next_cursor, list.next_cursor);
    assert!(again.entries.iter().map(|entry| &entry.bytes()[..]).eq(entries));
}
