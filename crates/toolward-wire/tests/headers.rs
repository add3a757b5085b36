//! Headers that mirror the body must match it exactly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use toolward_wire::headers::{self, Mismatch, ParamHeaderError, ParamHeaders, StandardHeaders};
use toolward_wire::{Arguments, Era, MAX_REQUEST_BYTES, Message, Raw, Sender};

fn request(method: &str, params: &str) -> Message {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{meta}}}}}"#);
    Message::parse(body.into(), MAX_REQUEST_BYTES, Sender::Client).unwrap()
}

fn check(
    message: &Message,
    version: &str,
    method: &str,
    name: Option<&str>,
) -> Result<(), Mismatch> {
    let row = message.row(Sender::Client, Era::Modern).unwrap();
    StandardHeaders { protocol_version: Some(version), method: Some(method), name }
        .check(message, row)
}

#[test]
fn generated_headers_pass_the_check() {
    for (method, params) in [
        ("tools/call", r#""name":"get_weather","#),
        ("tools/call", r#""name":"Wetter für 世界","#),
        ("tools/call", r#""name":"=?base64?x?=","#),
        ("tools/call", r#""name":" a ","#),
        ("resources/read", r#""uri":"file:///a b","#),
        ("tools/list", ""),
        ("tasks/get", r#""taskId":"t","#),
    ] {
        let message = request(method, params);
        let row = message.row(Sender::Client, Era::Modern).unwrap();
        let made = headers::standard(&message, row);
        let of = |name: &str| made.iter().find(|(at, _)| *at == name).map(|(_, value)| &value[..]);
        let standard = StandardHeaders {
            protocol_version: of(headers::PROTOCOL_VERSION),
            method: of(headers::METHOD),
            name: of(headers::NAME),
        };
        assert_eq!(standard.check(&message, row), Ok(()), "{method} {params}");
    }
}

#[test]
fn headers_that_differ_from_the_body_are_rejected() {
    let call = request("tools/call", r#""name":"read","#);
    assert!(check(&call, "2026-07-28", "tools/call", Some("read")).is_ok());
    assert!(check(&call, "2026-07-28", "tools/call", Some("=?base64?cmVhZA==?=")).is_ok());
    for (version, method, name) in [
        ("2025-11-25", "tools/call", Some("read")),
        ("2026-07-28 ", "tools/call", Some("read")),
        ("2026-07-28", "tools/list", Some("read")),
        ("2026-07-28", "Tools/Call", Some("read")),
        ("2026-07-28", "tools/call", Some("write")),
        ("2026-07-28", "tools/call", Some("Read")),
        ("2026-07-28", "tools/call", Some(" read")),
        ("2026-07-28", "tools/call", Some("")),
        ("2026-07-28", "tools/call", None),
        ("2026-07-28", "tools/call", Some("=?base64?cmVhZA?=")),
        ("2026-07-28", "tools/call", Some("=?base64?cmVhZB==?=")),
        ("2026-07-28", "tools/call", Some("=?base64?!?=")),
        ("2026-07-28", "tools/call", Some("=?base64?/w==?=")),
        ("2026-07-28", "tools/call", Some("=?BASE64?cmVhZA==?=")),
        ("2026-07-28", "=?base64?dG9vbHMvY2FsbA==?=", Some("read")),
    ] {
        assert!(check(&call, version, method, name).is_err(), "{version} {method} {name:?}");
    }
    let list = request("tools/list", "");
    assert!(check(&list, "2026-07-28", "tools/list", None).is_ok());
    assert!(check(&list, "2026-07-28", "tools/list", Some("read")).is_err());
    let row = call.row(Sender::Client, Era::Modern).unwrap();
    assert!(StandardHeaders::default().check(&call, row).is_err());
}

#[test]
fn annotations_are_valid_only_below_properties() {
    let string = json!({"type": "string", "x-mcp-header": "A"});
    let read = |schema: serde_json::Value| ParamHeaders::read(&schema);
    assert!(read(json!({"properties": {"a": string}})).is_ok());
    assert!(read(json!({"properties": {"o": {"properties": {"a": string}}}})).is_ok());
    assert!(read(json!({"properties": {"x-mcp-header": {"type": "number"}}})).unwrap().is_empty());
    assert!(read(json!({"properties": {"a": {"default": {"x-mcp-header": "A"}}}})).is_ok());
    assert!(read(json!(true)).unwrap().is_empty());
    for schema in [
        json!({"x-mcp-header": "A"}),
        json!({"items": string}),
        json!({"properties": {"a": {"items": string}}}),
        json!({"properties": {"a": {"anyOf": [{"properties": {"b": string}}]}}}),
        json!({"$defs": {"d": string}}),
        json!({"if": {"properties": {"a": string}}}),
        json!({"additionalProperties": string}),
    ] {
        assert_eq!(read(schema.clone()), Err(ParamHeaderError::Unreachable), "{schema}");
    }
    for mark in [json!(""), json!("a b"), json!("a\r\nX: y"), json!(1), json!("é"), json!("a:")] {
        let schema = json!({"properties": {"a": {"type": "string", "x-mcp-header": mark}}});
        assert!(matches!(read(schema), Err(ParamHeaderError::BadName { .. })), "{mark}");
    }
    for kind in [json!("number"), json!("object"), json!(["string"]), json!(null)] {
        let schema = json!({"properties": {"a": {"type": kind, "x-mcp-header": "A"}}});
        assert!(matches!(read(schema), Err(ParamHeaderError::BadType { .. })), "{kind}");
    }
    let twice = json!({"properties": {"a": string, "b": {"type": "string", "x-mcp-header": "a"}}});
    assert!(matches!(read(twice), Err(ParamHeaderError::Repeated { .. })));
}

#[test]
fn param_headers_follow_the_arguments() {
    let schema = json!({"properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "deep": {"properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
    }});
    let marks = ParamHeaders::read(&schema).unwrap();
    let body = r#"{"region":"Zürich","count":42,"deep":{"flag":true}}"#;
    let arguments = Some(Arguments::new(Raw::scan(body.as_bytes(), 1024).unwrap()));
    let made = marks.make(arguments);
    assert_eq!(made[0], ("mcp-param-region".into(), "=?base64?WsO8cmljaA==?=".into()));
    assert_eq!(made[1], ("mcp-param-count".into(), "42".into()));
    assert_eq!(made[2], ("mcp-param-flag".into(), "true".into()));

    let sent = |count: &'static str| {
        move |name: &str| match name {
            "mcp-param-region" => Some("=?base64?WsO8cmljaA==?="),
            "mcp-param-count" => Some(count),
            "mcp-param-flag" => Some("true"),
            _ => None,
        }
    };
    assert!(marks.check(arguments, sent("42")).is_ok());
    assert!(marks.check(arguments, sent("42.0")).is_ok());
    for count in ["43", "42.5", "4.2e1", "0x2a", "", "042x"] {
        assert!(marks.check(arguments, sent(count)).is_err(), "{count}");
    }
    assert!(marks.check(arguments, |_| None).is_err());
    // Null is treated like an absent value: no header is generated, and none is accepted.
    let absent = Some(Arguments::new(Raw::scan(br#"{"region":null}"#, 1024).unwrap()));
    assert!(marks.make(absent).is_empty());
    assert!(marks.check(absent, |_| None).is_ok());
    assert!(marks.check(absent, sent("42")).is_err());
    assert!(marks.check(None, |_| None).is_ok());
}
