//! Properties for any input: the scanner agrees with a reference, edits change nothing else, and
//! framing does not depend on how bytes arrive.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use toolward_wire::line::{self, LineDecoder};
use toolward_wire::scan::{Strictness, check, scan};
use toolward_wire::sse::{self, SseDecoder};
use toolward_wire::{
    Arguments, Id, MAX_DEPTH, MAX_REQUEST_BYTES, Message, Raw, RawMember, Sender, headers, string,
};

/// The reference: serde_json decides what is JSON. Depth and duplicates are counted separately.
fn reference(bytes: &[u8]) -> Option<Value> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let (mut depth, mut deepest, mut colons, mut quoted, mut escaped) = (0, 0, 0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth -= 1,
            b':' => colons += 1,
            _ => {}
        }
    }
    fn members(value: &Value) -> usize {
        match value {
            Value::Array(values) => values.iter().map(members).sum(),
            Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
            _ => 0,
        }
    }
    // A duplicate key is one member in the tree, but has two colons.
    (deepest <= MAX_DEPTH && members(&value) == colons).then_some(value)
}

fn key() -> impl Strategy<Value = String> {
    const KEYS: &[&str] =
        &["a", "b", "A", "\\u0061", "name", "\\u006eame", "id", "", "é", "\\u00e9", "x\\ny"];
    prop_oneof![3 => prop::sample::select(KEYS).prop_map(String::from), 2 => "[a-z]{1,12}"]
}

fn json() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "null",
        "true",
        "0",
        "-0",
        "1.5e3",
        "-12",
        "1e999",
        "01",
        "\"\\ud800\"",
        "\"\\ud83d\\ude00\"",
    ];
    let leaf = prop_oneof![
        4 => prop::sample::select(WORDS).prop_map(String::from),
        2 => any::<i64>().prop_map(|number| number.to_string()),
        2 => any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
        4 => "[ -~é😀]{0,20}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(6, 48, 8, |inner| {
        let space = prop::sample::select(&["", "", "", " ", "\n\t", "\r"][..]);
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..6), space.clone()).prop_map(
                |(values, space)| format!("[{space}{}{space}]", values.join(&format!("{space},")))
            ),
            (prop::collection::vec((key(), inner), 0..8), space).prop_map(|(members, space)| {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!("\"{key}\"{space}:{space}{value}"))
                    .collect();
                format!("{{{space}{}{space}}}", members.join(","))
            }),
        ]
    })
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(&b"{}[]\",:\\0123e.-+tfn \n\r\t\x00\x1f\x7f\xff\xc3\xed/u"[..])
            .prop_map(|byte| vec![byte]),
        prop::sample::select(&["\\u", "\\ud800", "null", "\"a\":1", "1e400", "\u{feff}", "{}"][..])
            .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let edit = (any::<prop::sample::Index>(), piece, 0..3usize);
    (json(), prop::collection::vec(edit, 0..4)).prop_map(|(text, edits)| {
        let mut bytes = text.into_bytes();
        for (at, piece, removed) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, piece);
        }
        bytes
    })
}

/// Objects with many members, around the size at which duplicate detection changes its algorithm.
fn wide() -> impl Strategy<Value = String> {
    prop::collection::vec((0..200u32, any::<bool>()), 0..60).prop_map(|keys| {
        let members: Vec<String> = keys
            .iter()
            .map(|(key, escaped)| match escaped {
                true => format!("\"\\u006bey-of-some-length-{key}\":{{\"a\":1}}"),
                false => format!("\"key-of-some-length-{key}\":[]"),
            })
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let expected = reference(bytes);
    let found = Raw::scan(bytes, usize::MAX);
    prop_assert_eq!(found.is_ok(), expected.is_some(), "{:?}", found);
    if let (Ok(raw), Some(value)) = (found, expected) {
        prop_assert_eq!(normal(&raw.to_json()), normal(&value));
    }
    // The response rule reports every ambiguity that it tolerates.
    let response = scan(bytes, usize::MAX, Strictness::Response);
    if let Ok(outline) = response {
        prop_assert_eq!(check(bytes, usize::MAX).is_ok(), outline.ambiguity.is_none());
    }
    Ok(())
}

/// Floats are not compared, because serde_json's default parser may be off in the last digit.
fn normal(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => "a float".into(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(normal).collect::<Vec<_>>().join(","))
        }
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| format!("{key:?}:{}", normal(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_scanner_accepts_what_the_reference_accepts(text in json()) {
        agree(text.as_bytes())?;
    }

    #[test]
    fn the_scanner_agrees_on_mutated_json(bytes in mutated()) {
        agree(&bytes)?;
    }

    #[test]
    fn the_scanner_agrees_on_wide_objects(text in wide()) {
        agree(text.as_bytes())?;
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        agree(&bytes)?;
        let _ = Message::parse(bytes.into(), MAX_REQUEST_BYTES, Sender::Server);
    }

    #[test]
    fn floats_are_parsed_exactly(float in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL) {
        let text = format!("{float:e}");
        let value = Raw::scan(text.as_bytes(), usize::MAX).unwrap().to_json();
        prop_assert_eq!(value.as_f64(), Some(float));
    }

    #[test]
    fn written_strings_can_be_read(text in any::<String>()) {
        let quoted = string::quote(&text);
        prop_assert!(!quoted.contains(&b'\n') && !quoted.contains(&b'\r'));
        let raw = Raw::scan(&quoted, usize::MAX).unwrap();
        prop_assert_eq!(raw.as_str().unwrap(), text);
    }

    #[test]
    fn traversal_visits_every_member(text in json()) {
        if let Ok(raw) = Raw::scan(text.as_bytes(), usize::MAX) {
            let value = raw.to_json();
            if let Value::Object(map) = &value {
                let names: Vec<_> = Arguments::new(raw).members().map(|(name, _)| name.into_owned()).collect();
                prop_assert_eq!(names, map.keys().cloned().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn case_collisions_are_found_among_few_keys_and_many(
        keys in prop::collection::vec("[aA][bBé][cC]?(k|K|ſ|s|\\\\u0053)?", 0..20),
    ) {
        let members: Vec<String> = keys.iter().map(|key| format!("\"{key}\":0")).collect();
        if let Ok(raw) = Raw::scan(format!("{{{}}}", members.join(",")).as_bytes(), MAX_REQUEST_BYTES) {
            let names: Vec<_> = raw.members().map(|member| string::fold(&member.name())).collect();
            let alone = names.iter().collect::<std::collections::HashSet<_>>().len() == names.len();
            match Arguments::new(raw).case_collision() {
                None => prop_assert!(alone, "{:?}", names),
                Some((a, b)) => prop_assert!(a != b && string::equal_folded(&a, &b)),
            }
        }
    }

    #[test]
    fn indexed_members_match_a_traversal(result in json(), space in "[ \n]{0,2}") {
        let body = format!("{space}{{\"jsonrpc\":\"2.0\",\"id\":1,{space}\"result\"{space}:{result}}}");
        let read = Message::parse(body.into(), MAX_REQUEST_BYTES, Sender::Server);
        if let Ok(message) = read {
            let show = |member: RawMember<'_>| {
                let name = member.name().into_owned();
                (name, member.value.bytes().to_vec(), member.key_span, member.value_span)
            };
            let walked: Vec<_> = message.result().unwrap().members().map(show).collect();
            for (name, value, ..) in &walked {
                prop_assert_eq!(message.result_member(name).unwrap().bytes(), &value[..]);
            }
            prop_assert_eq!(message.result_members().map(show).collect::<Vec<_>>(), walked);
        }
    }

    #[test]
    fn header_values_can_be_decoded(text in any::<String>()) {
        let encoded = headers::encode(&text);
        prop_assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')));
        prop_assert_eq!(headers::decode(&encoded).unwrap(), &text[..]);
    }

    #[test]
    fn edits_change_only_the_named_members(
        before in json(), after in json(), space in "[ \n]{0,2}",
        meta in prop::collection::vec("[a-e]", 0..4), set in "[a-e]", removed in "[a-e]",
    ) {
        let meta: std::collections::BTreeSet<String> = meta.into_iter().collect();
        let members: Vec<String> = meta.iter().map(|key| format!("{space}\"{key}\"{space}:{space}1{space}")).collect();
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",{space}\"x1\":{before},\"id\":{space}\"q\" ,\"method\":\"m\",\
             \"params\":{{\"_meta\":{{{}}},\"name\":\"n\"}},\"x2\":{after}{space}}}",
            members.join(",")
        );
        let parse = |body: Bytes| Message::parse(body, MAX_REQUEST_BYTES, Sender::Client);
        let Ok(message) = parse(body.clone().into()) else { return Ok(()) };
        prop_assert_eq!(&message.edit().finish()[..], body.as_bytes());

        // Reverting the edit restores the original bytes.
        let there = message.edit().id(&Id::number(5)).set_param_str("name", "né\n").finish();
        let changed = parse(there).unwrap();
        prop_assert_eq!(changed.id().unwrap().raw(), b"5");
        prop_assert_eq!(changed.param("name").unwrap().as_str().unwrap(), "né\n");
        let back = changed.edit().id(message.id().unwrap()).set_param_str("name", "n").finish();
        prop_assert_eq!(&back[..], body.as_bytes());

        let edited = message.edit().set_meta(&set, &b"[2]"[..]).remove_meta(&removed).finish();
        let edited = parse(edited).unwrap();
        let mut expected: Value = serde_json::from_str(&body).unwrap();
        let object = expected["params"]["_meta"].as_object_mut().unwrap();
        if set != removed {
            object.insert(set.clone(), serde_json::json!([2]));
        }
        // A `_meta` object whose last member is removed is removed too.
        if object.shift_remove(&removed).is_some() && object.is_empty() {
            expected["params"].as_object_mut().unwrap().shift_remove("_meta");
        }
        prop_assert_eq!(normal(&edited.raw().to_json()), normal(&expected));
    }

    #[test]
    fn lines_do_not_depend_on_how_bytes_arrive(
        bodies in prop::collection::vec("[ -~\n\r]{1,40}", 1..6), step in 1..7usize,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for body in &bodies {
            line::encode(body.as_bytes(), &mut stream);
            let line = body.replace(['\n', '\r'], " ");
            if !line.trim_matches([' ', '\t']).is_empty() {
                expected.push(line);
            }
        }
        prop_assert_eq!(stream.iter().filter(|byte| **byte == b'\n').count(), bodies.len());
        let mut decoder = LineDecoder::new(64);
        let mut found = Vec::new();
        for piece in stream.chunks(step) {
            decoder.push(piece);
            while let Some(line) = decoder.next_line() {
                found.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn events_do_not_depend_on_how_bytes_arrive(
        lines in prop::collection::vec(
            prop::sample::select(&["data: a", "data:b", "data", "id: 1", "id:\0", "event: e", "retry: 10", "retry: x", ": c", "", "other: x"][..]),
            0..20,
        ),
        ends in prop::sample::select(&["\n", "\r", "\r\n"][..]), step in 1..5usize,
    ) {
        let stream = lines.iter().map(|line| format!("{line}{ends}")).collect::<String>() + ends + ends;
        let read = |step: usize| {
            let mut decoder = SseDecoder::new(1024);
            let mut events = Vec::new();
            for piece in stream.as_bytes().chunks(step) {
                decoder.push(piece);
                while let Some(event) = decoder.next_event() {
                    events.push(event.unwrap());
                }
            }
            events
        };
        prop_assert_eq!(read(step), read(usize::MAX));
    }

    #[test]
    fn values_cannot_inject_event_fields(
        event in "[ -~\n\r\0]{1,10}", id in "[ -~\n\r\0]{1,10}", body in "[!-~][ -~\n\r]{0,20}",
    ) {
        let mut stream = Vec::new();
        sse::encode(Some(&event), Some(&id), body.as_bytes(), &mut stream);
        let mut decoder = SseDecoder::new(1024);
        decoder.push(&stream);
        let read = decoder.next_event().unwrap().unwrap();
        let expected = body.replace(['\n', '\r'], " ");
        prop_assert_eq!(&read.data[..], expected.as_bytes());
        prop_assert!(decoder.next_event().is_none());
    }
}
