//! The gateway's own `_meta` keys: no peer can set them, and payload is not modified.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolward_wire::list::{List, ListKind};
use toolward_wire::{MAX_RESPONSE_BYTES, Message, Sender};

fn parsed(body: &str, sender: Sender) -> Message {
    Message::parse(body.to_string().into(), MAX_RESPONSE_BYTES, sender).unwrap()
}

fn cleaned(body: &str) -> String {
    let sender = if body.contains("\"method\"") { Sender::Client } else { Sender::Server };
    let out = parsed(body, sender).edit().remove_own_meta().finish();
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn own_keys_are_removed_from_every_meta_of_the_protocol() {
    // `@` is a reserved key with its value, `#` another key.
    for (before, after) in [
        (
            r#"{"result":{"content":[{"type":"text","_meta":{@}}]}}"#,
            r#"{"result":{"content":[{"type":"text"}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"_meta":{@, "a":1},"text":"x"}]}}"#,
            r#"{"result":{"content":[{"_meta":{"a":1},"text":"x"}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"_meta":{ @ },"text":"x"}]}}"#,
            r#"{"result":{"content":[{"text":"x"}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"_meta":{"a":1,@,#},"text":"x"}]}}"#,
            r#"{"result":{"content":[{"_meta":{"a":1},"text":"x"}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"_meta":{@,#,"a":1}}]}}"#,
            r#"{"result":{"content":[{"_meta":{"a":1}}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"_meta":{@,"a":1,#,"b":2}}]}}"#,
            r#"{"result":{"content":[{"_meta":{"a":1,"b":2}}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"_Meta":{@}, "_meta" : {#}}]}}"#,
            r#"{"result":{"content":[{}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"\u005fmeta":{@},"x":[]}]}}"#,
            r#"{"result":{"content":[{"x":[]}]}}"#,
        ),
        (
            r#"{"result":{"content":[{"resource":{"uri":"u","_meta":{@}},"_meta":{#}}]}}"#,
            r#"{"result":{"content":[{"resource":{"uri":"u"}}]}}"#,
        ),
        (
            r#"{"result":{"contents":[{"uri":"u","_meta":{@}}]}}"#,
            r#"{"result":{"contents":[{"uri":"u"}]}}"#,
        ),
        (
            r#"{"result":{"messages":[{"content":{"type":"text","_meta":{@}}}]}}"#,
            r#"{"result":{"messages":[{"content":{"type":"text"}}]}}"#,
        ),
        // Descriptions of servers and clients have a `_meta` too, also inside another one.
        (
            r#"{"result":{"serverInfo":{"name":"s","_meta":{@}}}}"#,
            r#"{"result":{"serverInfo":{"name":"s"}}}"#,
        ),
        (
            r#"{"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","_meta":{@}}}}}"#,
            r#"{"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}}"#,
        ),
        (
            r#"{"result":{"_meta":{@,"io.modelcontextprotocol/serverInfo":{"_meta":{#,"a":1}}}}}"#,
            r#"{"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"_meta":{"a":1}}}}}"#,
        ),
        (
            r#"{"_meta":{@,"io.modelcontextprotocol/serverInfo":{"_meta":{#},"x":1}},"result":{}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"x":1}},"result":{}}"#,
        ),
        (
            r#"{"method":"m","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"_meta":{@}}}}}"#,
            r#"{"method":"m","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{}}}}"#,
        ),
        (r#"{"result":{"x":{"y":[[{"_meta":{@}}]]}}}"#, r#"{"result":{"x":{"y":[[{}]]}}}"#),
        (r#"{"_meta":{@},"result":{}}"#, r#"{"result":{}}"#),
        (r#"{"result":{},"_meta":{@,"a":1}}"#, r#"{"result":{},"_meta":{"a":1}}"#),
        (r#"{"result":{},"_meta":{@}}"#, r#"{"result":{}}"#),
        (r#"{"result":{"_meta":{@}},"_meta":{#}}"#, r#"{"result":{}}"#),
        (
            r#"{"result":{"_meta":{"a":1,@},"content":[{"_meta":{#}}]}}"#,
            r#"{"result":{"_meta":{"a":1},"content":[{}]}}"#,
        ),
        (
            r#"{"error":{"code":1,"message":"m","_meta":{@}}}"#,
            r#"{"error":{"code":1,"message":"m"}}"#,
        ),
        // The peer chooses the ids of these maps.
        (
            r#"{"result":{"inputRequests":{"data":{"params":{"_meta":{@}}}}}}"#,
            r#"{"result":{"inputRequests":{"data":{"params":{}}}}}"#,
        ),
        (
            r#"{"method":"m","params":{"inputResponses":{"_meta":{"_meta":{@}}}}}"#,
            r#"{"method":"m","params":{"inputResponses":{"_meta":{}}}}"#,
        ),
        (
            r#"{"method":"m","params":{"_meta":{@,"a":1},"x":{"_meta":{#}}}}"#,
            r#"{"method":"m","params":{"_meta":{"a":1},"x":{}}}"#,
        ),
        (r#"{"method":"m","_meta":{@},"params":{"_meta":{#}}}"#, r#"{"method":"m","params":{}}"#),
    ] {
        let rest = r#""jsonrpc":"2.0","id":1,"#;
        for [own, other] in [
            [r#""io.toolward/refusal":{"error":"x"}"#, r#""io.toolward/":[1]"#],
            [r#""IO.Toolward/X" : null"#, r#""io.TOOLWARD/y":"}""#],
            [r#""\u0069o.toolward\/a":1"#, r#""io\u002etoolward\u002fb":"\"""#],
        ] {
            let before = before.replacen('{', &format!("{{{rest}"), 1);
            let before = before.replace('@', own).replace('#', other);
            let after = after.replacen('{', &format!("{{{rest}"), 1);
            assert_eq!(cleaned(&before), after, "{before}");
        }
    }
}

#[test]
fn payload_and_other_keys_are_not_touched() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"_meta":{"io.toolward/x":1}}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":[{"_meta":{"io.toolward/x":1}}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"structured\u0043ontent":{"_meta":{"io.toolward/x":1}}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"_meta":{"io.toolward/x":1}}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"\"_meta\":{\"io.toolward/x\":1}"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"_meta":{"x":{"io.toolward/x":1}}}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"_meta":["io.toolward/x"],"io.toolward/x":1}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"_meta":{"io.toolward":1,"io.toolwards/x":1}}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"_meta":{},"x":{"io.toolward/x":1}}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{"_meta":{"io.toolward/x":1}}}}"#,
    ] {
        assert_eq!(cleaned(body), body);
    }
}

#[test]
fn own_keys_are_removed_from_the_entries_of_a_list() {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
        {"name":"a","_meta":{"io.toolward/x":1}},
        {"name":"b","_meta":{"\u0069o.toolward/x":1,"kept":1},"inputSchema":{"_meta":{"io.toolward/x":1}}},
        {"name":"c","title":"t"}]}}"#;
    let message = parsed(body, Sender::Server);
    let list = List::read(&message, ListKind::Tools, &mut HashSet::new()).unwrap();
    let entries: Vec<_> = list.entries.iter().map(|entry| entry.bytes().clone()).collect();
    assert_eq!(
        entries,
        [
            &br#"{"name":"a"}"#[..],
            br#"{"name":"b","_meta":{"kept":1},"inputSchema":{"_meta":{"io.toolward/x":1}}}"#,
            br#"{"name":"c","title":"t"}"#,
        ]
    );
}

const KEYS: [&str; 10] = [
    "_meta",
    "content",
    "io.toolward/a",
    "IO.toolward/b",
    "x",
    "structuredContent",
    "arguments",
    "inputRequests",
    "resource",
    "data",
];

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!("}, \"_meta\"")), Just(json!(1.5))];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let key = proptest::sample::select(&KEYS[..]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::vec((key, inner), 0..6).prop_map(|members| {
                let members = members.into_iter().map(|(key, value)| (key.to_string(), value));
                Value::Object(members.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// The expected rest of a value, computed on a tree.
fn expected(value: &Value, is_map: bool) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| expected(item, false)).collect(),
        Value::Object(members) => {
            let kept = members.iter().filter_map(|(key, value)| {
                let left = match (&**key, value) {
                    _ if is_map => Some(expected(value, false)),
                    ("_meta", Value::Object(meta)) => {
                        let own = |key: &str| key.to_lowercase().starts_with("io.toolward/");
                        let mut left = meta.clone();
                        left.retain(|key, _| !own(key));
                        let is_emptied = left.is_empty() && !meta.is_empty();
                        (!is_emptied).then_some(Value::Object(left))
                    }
                    ("_meta" | "structuredContent" | "arguments" | "data", _) => {
                        Some(value.clone())
                    }
                    ("inputRequests", Value::Object(_)) => Some(expected(value, true)),
                    _ => Some(expected(value, false)),
                };
                Some((key.clone(), left?))
            });
            Value::Object(kept.collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn removal_agrees_with_a_walk_over_a_tree(tree in tree(), pretty in any::<bool>()) {
        let message = json!({"jsonrpc": "2.0", "id": 1, "result": {"x": tree}});
        let body = match pretty {
            true => serde_json::to_string_pretty(&message).unwrap(),
            false => message.to_string(),
        };
        let out: Value = serde_json::from_str(&cleaned(&body)).unwrap();
        prop_assert_eq!(out, expected(&message, false), "{}", body);
    }
}
