//! Fuzzes messages and edits with any bytes.
//!
//! Members have the values that a JSON tree has, and an edit changes only the named members.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use toolward_fuzz::wire::{choice, offsets, shared, strict, well_formed};
use toolward_wire::method::NameAt;
use toolward_wire::{Edit, Era, Id, Kind, MAX_RESPONSE_BYTES, Message, Raw, Sender};

// The first byte selects the sender.
fuzz_target!(|data: &[u8]| {
    let (options, body) = choice(data);
    let sender = if options & 1 == 0 { Sender::Client } else { Sender::Server };
    let Ok(message) = parse(Bytes::copy_from_slice(body), sender) else { return };
    assert_eq!(message.body(), body);
    assert!(well_formed(body));
    if sender == Sender::Client || matches!(message.kind(), Kind::Request | Kind::Notification) {
        assert_eq!(strict(body), Some(message.raw().to_json()));
    }
    parts(&message);
    for era in [Era::Legacy, Era::Modern] {
        if let Ok(row) = message.row(sender, era) {
            assert_eq!(message.method().unwrap(), row.name);
            assert_eq!(row.is_request(), message.kind() == Kind::Request);
            assert_eq!(
                message.name(row.name_at).unwrap().is_none(),
                row.name_at == NameAt::Nowhere
            );
        }
    }
    edits(&message, sender);
});

fn parse(body: Bytes, sender: Sender) -> Result<Message, toolward_wire::MessageError> {
    Message::parse(body, MAX_RESPONSE_BYTES, sender)
}

/// Every member that is read by name equals the one in the tree.
fn parts(message: &Message) {
    let tree = message.raw().to_json();
    let at = |pointer: &str| tree.pointer(pointer).cloned();
    let json = |raw: Option<Raw<'_>>| raw.map(Raw::to_json);
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(String::from));
    assert_eq!(tree["jsonrpc"], "2.0");
    assert_eq!(message.method().map(String::from), text(at("/method")));
    assert_eq!(json(message.params()), at("/params"));
    assert_eq!(json(message.result()), at("/result"));
    assert_eq!(json(message.error_data()), at("/error/data"));
    assert_eq!(message.error_message().map(String::from), text(at("/error/message")));
    if let Some(code) = message.error_code() {
        assert_eq!(at("/error/code"), Some(code.into()));
    }
    for name in ["name", "arguments", "uri", "cursor", "ref", "_meta", "x"] {
        assert_eq!(json(message.param(name)), at(&format!("/params/{name}")));
        assert_eq!(json(message.meta(name)), at(&format!("/params/_meta/{name}")));
        assert_eq!(json(message.result_member(name)), at(&format!("/result/{name}")));
        assert_eq!(json(message.result_meta(name)), at(&format!("/result/_meta/{name}")));
    }
    if let Some(arguments) = message.arguments() {
        assert_eq!(Some(arguments.to_json()), at("/params/arguments"));
        let collision = arguments.case_collision();
        assert!(collision.is_none_or(|(first, second)| first != second));
    }
    if let Some(id) = message.id() {
        assert_eq!(Raw::scan(id.raw(), usize::MAX).map(Raw::to_json).ok(), at("/id"));
    }
    let _ = (message.request_meta(), message.progress_token(), format!("{message:?}"));
    match message.kind() {
        Kind::Request => assert!(message.id().is_some() && message.method().is_some()),
        Kind::Notification => assert!(at("/id").is_none() && message.method().is_some()),
        Kind::Response => assert!(message.id().is_some() && message.result().is_some()),
        Kind::Error => assert!(at("/error/code").is_some() && message.result().is_none()),
    }
}

/// One change: the edit, the path in the tree, and the new value, or `None` to remove it.
type Change = (fn(Edit<'_>) -> Edit<'_>, &'static [&'static str], Option<Value>);

fn edits(message: &Message, sender: Sender) {
    let mut changes: Vec<Change> = vec![
        (|edit| edit.id(&Id::number(7)), &["id"], Some(json!(7))),
        (|edit| edit.id(&Id::text("a\"\u{2028}")), &["id"], Some(json!("a\"\u{2028}"))),
        (|edit| edit.set_param_str("name", "n\n"), &["params", "name"], Some(json!("n\n"))),
        (|edit| edit.remove_param("name"), &["params", "name"], None),
        (|edit| edit.remove_param("x"), &["params", "x"], None),
        (|edit| edit.set_meta("x", &b"[1]"[..]), &["params", "_meta", "x"], Some(json!([1]))),
        (|edit| edit.remove_meta("x"), &["params", "_meta", "x"], None),
    ];
    if message.kind() == Kind::Response {
        let more: [Change; 4] = [
            (|edit| edit.set_result("x", &b"{}"[..]), &["result", "x"], Some(json!({}))),
            (|edit| edit.remove_result("x"), &["result", "x"], None),
            (
                |edit| edit.set_result_meta("x", &b"1"[..]),
                &["result", "_meta", "x"],
                Some(json!(1)),
            ),
            (|edit| edit.remove_result_meta("x"), &["result", "_meta", "x"], None),
        ];
        changes.extend(more);
    }
    // A notification with an id would be a request.
    if message.kind() == Kind::Notification {
        changes.drain(..2);
    }
    for (make, path, value) in &changes {
        let changed = make(message.edit()).finish();
        let mut tree = message.raw().to_json();
        change(&mut tree, path, value.clone());
        agrees(&changed, sender, message, &tree);
        only_there(message, path, value.is_some(), &changed);
    }
    // All changes at once. The last change of a member wins.
    let mut tree = message.raw().to_json();
    let mut edit = message.edit();
    for (at, (make, path, value)) in changes.iter().enumerate() {
        edit = make(edit);
        if changes[at + 1..].iter().all(|(_, later, _)| later != path) {
            change(&mut tree, path, value.clone());
        }
    }
    agrees(&edit.finish(), sender, message, &tree);
    assert_eq!(message.edit().finish(), message.body());
}

fn agrees(changed: &Bytes, sender: Sender, message: &Message, tree: &Value) {
    let read = parse(changed.clone(), sender).expect("an edited message can be parsed");
    assert_eq!(read.kind(), message.kind());
    assert_eq!(read.raw().to_json(), *tree, "{}", String::from_utf8_lossy(changed));
}

/// The same change in a tree. A `_meta` whose last member is removed is removed too.
fn change(tree: &mut Value, path: &[&str], value: Option<Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    let is_empty = |object: &Value| object.as_object().is_some_and(Map::is_empty);
    let had_members = !at(tree, parents).is_none_or(is_empty);
    put(tree, path, last, value);
    if let [.., parent, "_meta"] = parents
        && had_members
        && at(tree, parents).is_some_and(is_empty)
        && let Some(Value::Object(map)) = tree.get_mut(parent)
    {
        map.shift_remove("_meta");
    }
}

fn at<'t>(tree: &'t Value, path: &[&str]) -> Option<&'t Value> {
    path.iter().try_fold(tree, |value, key| value.get(key))
}

fn put(tree: &mut Value, path: &[&str], last: &str, value: Option<Value>) {
    let parents = &path[..path.len() - 1];
    let mut at = tree;
    for key in parents {
        if value.is_none() && at.get(key).is_none() {
            return;
        }
        let map = at.as_object_mut().expect("only objects are edited");
        at = map.entry(*key).or_insert_with(|| Map::new().into());
    }
    let map = at.as_object_mut().expect("only objects are edited");
    match value {
        Some(value) => map.insert(last.into(), value),
        None => map.shift_remove(last),
    };
}

/// Checks that every byte outside of the changed member is unchanged.
fn only_there(message: &Message, path: &[&str], set: bool, changed: &[u8]) {
    let body = &message.body()[..];
    let found = path.iter().try_fold(message.raw(), |raw, key| raw.member(key));
    let (start, end) = shared(body, changed);
    match found {
        Some(value) if set => {
            let (from, to) = offsets(body, value.bytes());
            assert!(start >= from && body[to..] == changed[changed.len() - (body.len() - to)..]);
        }
        Some(_) => assert_eq!(start + end, changed.len(), "something was added"),
        None if set => assert_eq!(start + end, body.len(), "something was lost"),
        None => assert_eq!(body, changed),
    }
}
