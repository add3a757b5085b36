//! Lists are parsed entry by entry and keep their bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::{Value, json};
use toolward_wire::list::{self, Entry, EntryError, List, ListError, ListKind, MalformedEntry};
use toolward_wire::{Id, MAX_RESPONSE_BYTES, Message, Sender, jsonrpc};

fn answer(result: &str) -> Message {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    Message::parse(body.into(), MAX_RESPONSE_BYTES, Sender::Server).unwrap()
}

fn tools(result: &str) -> Result<List, ListError> {
    List::read(&answer(result), ListKind::Tools, &mut HashSet::new())
}

#[test]
fn a_malformed_entry_does_not_affect_the_others() {
    let list = tools(
        r#"{"tools": [
            {"name": "a", "execution": {"taskSupport" : "optional"}, "n": 1.50},
            "text", null, {}, {"name": ""}, {"name": 7}, {"Name": "b"},
            {"name": "c", "name": "d"}, {"name": "e", "inputSchema": {"type": "x", "type": "y"}},
            {"name": "a", "description": "again"}, {"name": "f", "Description": "x"},
            {"\u006eame": "\u0067"}
        ], "nextCursor": "p\u0032"}"#,
    )
    .unwrap();
    let names: Vec<&str> = list.entries.iter().map(Entry::name).collect();
    assert_eq!(names, ["a", "g"]);
    assert_eq!(
        &list.entries[0].bytes()[..],
        br#"{"name": "a", "execution": {"taskSupport" : "optional"}, "n": 1.50}"#
    );
    assert_eq!(list.next_cursor.as_deref(), Some("p2"));
    let dropped: Vec<usize> = list.malformed.iter().map(|entry| entry.index).collect();
    assert_eq!(dropped, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(list.malformed[8].problem, EntryError::Repeated);
    assert_eq!(list.malformed[8].name.as_deref(), Some("a"));
}

#[test]
fn an_entry_is_strict_at_any_depth() {
    let list = tools(
        r#"{"tools": [
            {"name": "a", "inputSchema": {"default": "\ud800"}}, {"name": "b\udc00"},
            {"name": "c", "x": [{"\ud800": 1}]}, {"name": "d", "inputSchema": {"maximum": 1e400}},
            {"name": "e", "inputSchema": {"default": "\ud83d\ude00", "maximum": 1e300}}
        ]}"#,
    )
    .unwrap();
    assert_eq!(list.entries.iter().map(Entry::name).collect::<Vec<_>>(), ["e"]);
    let strict = |entry: &MalformedEntry| matches!(entry.problem, EntryError::Json(_));
    assert!(list.malformed.len() == 4 && list.malformed.iter().all(strict));
}

#[test]
fn names_are_unique_across_pages() {
    let mut seen = HashSet::new();
    List::read(&answer(r#"{"tools":[{"name":"a"}]}"#), ListKind::Tools, &mut seen).unwrap();
    let second =
        List::read(&answer(r#"{"tools":[{"name":"a"},{"name":"b"}]}"#), ListKind::Tools, &mut seen);
    let second = second.unwrap();
    assert_eq!((second.entries.len(), second.malformed.len()), (1, 1));
}

#[test]
fn a_response_without_the_array_is_not_a_list() {
    let member = "tools";
    for result in ["{}", r#"{"tools":null}"#, r#"{"tools":{}}"#, r#"{"prompts":[]}"#] {
        assert_eq!(tools(result).unwrap_err(), ListError::NoArray { member }, "{result}");
    }
    assert_eq!(tools(r#"{"tools":[],"nextCursor":1}"#).unwrap_err(), ListError::BadCursor);
    assert!(tools(r#"{"tools":[],"nextCursor":null}"#).unwrap().next_cursor.is_none());
    let error = br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#;
    let error = Message::parse(error[..].into(), MAX_RESPONSE_BYTES, Sender::Server).unwrap();
    assert!(List::read(&error, ListKind::Tools, &mut HashSet::new()).is_err());
}

#[test]
fn each_kind_has_its_own_identifying_key() {
    let read = |kind: ListKind, entry: &str| {
        let result = format!(r#"{{"{}":[{entry}]}}"#, kind.member());
        let list = List::read(&answer(&result), kind, &mut HashSet::new()).unwrap();
        list.entries.first().map(|entry| entry.name().to_string())
    };
    let resource = r#"{"name":"n","uri":"file:///a"}"#;
    assert_eq!(read(ListKind::Resources, resource).unwrap(), "file:///a");
    let template = r#"{"name":"n","uriTemplate":"file:///{a}"}"#;
    assert_eq!(read(ListKind::ResourceTemplates, template).unwrap(), "file:///{a}");
    assert_eq!(read(ListKind::Prompts, r#"{"name":"n"}"#).unwrap(), "n");
    assert_eq!(read(ListKind::Resources, r#"{"name":"n"}"#), None);
}

#[test]
fn edits_keep_every_other_byte() {
    let bytes = r#"{ "title":"T" , "name" :"a","inputSchema":{"x":[1.0],"properties":{"do":{"enum" : [ "x",
        "\u0079", 3, "z" ] ,"description":"d"}}},"annotations":{"category":"c"} }"#;
    let tool = Entry::parse(Bytes::copy_from_slice(bytes.as_bytes()), ListKind::Tools).unwrap();
    assert_eq!(&tool.edit().finish()[..], bytes.as_bytes());

    let shown = tool.edit().name("say \"hi\"").description("né").keep_enum("do", &["z", "y"]);
    let expected = bytes
        .replace(r#""name" :"a""#, r#""name" :"say \"hi\"""#)
        .replace("[ \"x\",\n        \"\\u0079\", 3, \"z\" ]", "[\"\\u0079\", \"z\"]")
        .replace(r#"{"category":"c"} }"#, r#"{"category":"c"},"description":"né" }"#);
    assert_eq!(std::str::from_utf8(&shown.finish()).unwrap(), expected);

    for path in ["missing", "x"] {
        assert_eq!(&tool.edit().keep_enum(path, &["z"]).finish()[..], bytes.as_bytes());
    }
    let none = tool.edit().keep_enum("do", &[]).finish();
    assert!(String::from_utf8_lossy(&none).contains("\"enum\" : [] ,"));
}

#[test]
fn a_list_is_built_from_raw_entries() {
    let entries: [&[u8]; 2] = [br#"{"name": "a"}"#, br#"{"name":"b" }"#];
    let more: [(&str, &[u8]); 2] = [("resultType", b"\"complete\""), ("ttlMs", b"5000")];
    let result = list::result(ListKind::Tools, &list::array(entries), Some("c\""), &more);
    let body = jsonrpc::result_body(&Id::text("q"), &result);
    assert_eq!(
        std::str::from_utf8(&body).unwrap(),
        r#"{"jsonrpc":"2.0","id":"q","result":{"tools":[{"name": "a"},{"name":"b" }],"nextCursor":"c\"","resultType":"complete","ttlMs":5000}}"#
    );
    let message = Message::parse(body, MAX_RESPONSE_BYTES, Sender::Server).unwrap();
    let list = List::read(&message, ListKind::Tools, &mut HashSet::new()).unwrap();
    assert_eq!(list.entries.len(), 2);
    assert_eq!(&list::array([])[..], b"[]");
}

#[test]
fn an_entry_converts_to_the_tree_any_parser_reads() {
    let definition = json!({"name": "a", "n": [1, -2, 3.5, 1e300, u64::MAX, true, null, "é\n"]});
    let tool = Entry::parse(definition.to_string().into(), ListKind::Tools).unwrap();
    assert_eq!(tool.raw().to_json(), definition);
    let _: Value = serde_json::from_slice(tool.bytes()).unwrap();
}
