//! Attacks: ambiguous messages, and messages that are expensive to parse.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use toolward_wire::scan::{Fault, check};
use toolward_wire::{
    Era, Id, Kind, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Message, MessageError, MessageProblem,
    Raw, Sender, code, jsonrpc, jsonrpc_error,
};

fn from_client(body: impl AsRef<[u8]>) -> Result<Message, MessageError> {
    Message::parse(Bytes::copy_from_slice(body.as_ref()), MAX_REQUEST_BYTES, Sender::Client)
}

fn from_server(body: impl AsRef<[u8]>) -> Result<Message, MessageError> {
    Message::parse(Bytes::copy_from_slice(body.as_ref()), MAX_RESPONSE_BYTES, Sender::Server)
}

fn fault(body: impl AsRef<[u8]>) -> Fault {
    check(body.as_ref(), MAX_REQUEST_BYTES).unwrap_err().fault
}

fn call(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
}

#[test]
fn malformed_json_is_reported_by_kind() {
    let cases: &[(&[u8], Fault)] = &[
        (b"", Fault::Empty),
        (b" \n", Fault::Empty),
        (b"\xef\xbb\xbf{}", Fault::ByteOrderMark),
        (b"{} {}", Fault::TrailingBytes),
        (b"{}\0", Fault::TrailingBytes),
        (b"{}x", Fault::TrailingBytes),
        (b"{\"a\":1", Fault::UnexpectedEnd),
        (b"{\"a\":", Fault::UnexpectedEnd),
        (b"{\"a\"", Fault::UnexpectedEnd),
        (b"{\"a", Fault::UnexpectedEnd),
        (b"tru", Fault::UnexpectedEnd),
        (b"[1,]", Fault::ExpectedValue),
        (b"[,1]", Fault::ExpectedValue),
        (b"{\"a\":1,}", Fault::ExpectedKey),
        (b"{a:1}", Fault::ExpectedKey),
        (b"{'a':1}", Fault::ExpectedKey),
        (b"{\"a\" 1}", Fault::ExpectedColon),
        (b"[1 2]", Fault::ExpectedCommaOrEnd),
        (b"[1}", Fault::ExpectedCommaOrEnd),
        (b"nul", Fault::UnexpectedEnd),
        (b"NaN", Fault::ExpectedValue),
        (b"Infinity", Fault::ExpectedValue),
        (b"-", Fault::UnexpectedEnd),
        (b"[-]", Fault::BadNumber),
        (b"01", Fault::BadNumber),
        (b"-01", Fault::BadNumber),
        (b"[1.]", Fault::BadNumber),
        (b"[.5]", Fault::ExpectedValue),
        (b"+1", Fault::ExpectedValue),
        (b"0x10", Fault::TrailingBytes),
        (b"[1e]", Fault::BadNumber),
        (b"1e999", Fault::NumberOutOfRange),
        (b"-1e999", Fault::NumberOutOfRange),
        (b"\"\\ud800\"", Fault::LoneSurrogate),
        (b"\"\\udc00\"", Fault::LoneSurrogate),
        (b"\"\\ud800\\u0041\"", Fault::LoneSurrogate),
        (b"\"\\ud800\\ud800\"", Fault::LoneSurrogate),
        (b"\"\\x41\"", Fault::BadEscape),
        (b"\"\\u00g0\"", Fault::BadEscape),
        (b"\"a\nb\"", Fault::ControlCharacter),
        (b"\"a\0b\"", Fault::ControlCharacter),
        (b"\"\x1f\"", Fault::ControlCharacter),
        (b"\"\xff\"", Fault::NotUtf8),
        (b"\"\xc0\xaf\"", Fault::NotUtf8),
        (b"\"\xed\xa0\x80\"", Fault::NotUtf8),
        (b"// x\n{}", Fault::ExpectedValue),
        (b"{\"a\":1,\"a\":2}", Fault::DuplicateKey),
        (b"{\"name\":1,\"\\u006eame\":2}", Fault::DuplicateKey),
        (b"[{\"b\":{\"\":1,\"\":1}}]", Fault::DuplicateKey),
        (b"{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", Fault::DuplicateKey),
    ];
    for (body, expected) in cases {
        assert_eq!(fault(body), *expected, "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(fault(format!("1{}", "0".repeat(400))), Fault::NumberOutOfRange);
    assert_eq!(check(br#"["\ud83d\ude00\ud800\udbff"]"#, MAX_REQUEST_BYTES).unwrap_err().at, 14);
    check(br#"{"a":1,"A":2,"\u0000":"\u0000","1e-999":1e-999}"#, MAX_REQUEST_BYTES).unwrap();
}

#[test]
fn nesting_members_and_size_are_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    check(nested(64).as_bytes(), MAX_REQUEST_BYTES).unwrap();
    assert_eq!(fault(nested(65)), Fault::TooDeep);
    assert_eq!(fault("[".repeat(1_000_000)), Fault::TooDeep);
    assert_eq!(fault("{\"a\":".repeat(65)), Fault::TooDeep);

    let wide = |members: usize| {
        let members: Vec<String> = (0..members).map(|key| format!("\"{key}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    check(wide(10_000).as_bytes(), MAX_REQUEST_BYTES).unwrap();
    assert_eq!(fault(wide(10_001)), Fault::TooManyMembers);
    let twice = wide(9_999).replace("}", ",\"\\u0037\":0}");
    assert_eq!(fault(twice), Fault::DuplicateKey);

    assert_eq!(check(b"[1,2]", 5).unwrap().range(), 0..5);
    assert_eq!(check(b"[1,2]", 4).unwrap_err().fault, Fault::TooLarge { limit: 4 });
}

#[test]
fn the_last_key_of_an_object_of_any_size_is_compared_with_all_others() {
    for size in 1..60 {
        let keys: Vec<String> = (0..size).map(|key| format!("\"k{key}\":0")).collect();
        check(format!("{{{}}}", keys.join(",")).as_bytes(), MAX_REQUEST_BYTES).unwrap();
        for twice in [0, size / 2, size - 1] {
            let body = format!("{{{},\"\\u006b{twice}\":1}}", keys.join(","));
            assert_eq!(fault(&body), Fault::DuplicateKey, "{body}");
        }
    }
}

#[test]
fn keys_with_equal_fingerprints_cost_no_more() {
    // Same length, same first and last eight bytes.
    let keys: Vec<String> = (0..9_000).map(|n| format!("\"aaaaaaaa{n:0200}bbbbbbbb\":0")).collect();
    let body = format!("{{{}}}", keys.join(","));
    let start = std::time::Instant::now();
    check(body.as_bytes(), MAX_REQUEST_BYTES).unwrap();
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

#[test]
fn invalid_envelopes_are_rejected() {
    let cases = [
        ("[]", code::INVALID_REQUEST),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, code::INVALID_REQUEST),
        ("1", code::INVALID_REQUEST),
        ("null", code::INVALID_REQUEST),
        ("{}", code::INVALID_REQUEST),
        (r#"{"id":1,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, code::PARSE_ERROR),
        (r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"ping"}"#, code::PARSE_ERROR),
        (r#"{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","Params":{}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":["tools/call"]}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"result":[]}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","result":{}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":""}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#, code::INVALID_REQUEST),
    ];
    for (body, code) in cases {
        let refused = from_client(body).expect_err(body);
        assert_eq!(refused.code(), code, "{body}: {refused}");
    }
}

#[test]
fn ambiguous_params_are_rejected() {
    let cases = [
        r#"{"name":"a","Name":"b"}"#,
        r#"{"NAME":"b"}"#,
        r#"{"name":"a","Arguments":{}}"#,
        r#"{"name":"a","arguments":"x"}"#,
        r#"{"name":"a","arguments":[]}"#,
        r#"{"name":"a","arguments":null}"#,
        r#"{"name":"a","_meta":[]}"#,
        r#"{"name":"a","_Meta":{}}"#,
        r#"{"name":"a","_meta":{"ProgressToken":1}}"#,
        r#"{"name":"a","_meta":{"progressToken":1.5}}"#,
        r#"{"name":"a","_meta":{"progressToken":{}}}"#,
        r#"{"name":"a","_meta":{"io.ModelContextProtocol/protocolVersion":"x"}}"#,
        r#"{"name":"a","_meta":{"IO.modelcontextprotocol/new":"x"}}"#,
        r#"{"name":"a","_meta":{"Traceparent":"x"}}"#,
    ];
    for params in cases {
        let refused = from_client(call(params)).expect_err(params);
        assert_eq!(refused.code(), code::INVALID_PARAMS, "{params}: {refused}");
        assert_eq!(refused.id.unwrap().raw(), b"1");
    }
    for params in [r#"{"name":"a","name":"b"}"#, r#"{"name":"a","\u006eame":"b"}"#] {
        assert_eq!(from_client(call(params)).unwrap_err().code(), code::PARSE_ERROR);
    }
    // Arguments belong to the tool: policy handles case variants there, not the envelope check.
    from_client(call(r#"{"name":"a","arguments":{"Name":1,"name":2}}"#)).unwrap();
}

#[test]
fn a_method_row_checks_kind_and_name() {
    let row = |body: &str| from_client(body).unwrap().row(Sender::Client, Era::Legacy);
    let problem = |body: &str| row(body).unwrap_err().problem;
    assert!(row(&call(r#"{"name":"a"}"#)).is_ok());
    for params in [r#"{"name":1}"#, r#"{"name":null}"#, "{}", r#"{"name":["a"]}"#] {
        let refused = row(&call(params)).unwrap_err();
        assert_eq!(refused.code(), code::INVALID_PARAMS, "{params}");
    }
    assert_eq!(
        problem(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}"#),
        MessageProblem::WrongKind { method: "tools/call" }
    );
    assert_eq!(
        problem(r#"{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}"#),
        MessageProblem::WrongKind { method: "notifications/initialized" }
    );
    for method in
        ["Tools/call", "tools/call ", "tools/call\\u0000", "rpc.discover", "server/discover"]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        assert_eq!(row(&body).unwrap_err().code(), code::METHOD_NOT_FOUND, "{method}");
    }
    let escaped = call(r#"{"\u006eame":"a"}"#).replace("tools/call", "\\u0074ools\\/call");
    assert!(row(&escaped).is_ok());
    let completion = r#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}}}"#;
    assert!(row(completion).is_ok());
    assert!(row(&completion.replace("ref/prompt", "ref/tool")).is_err());
}

#[test]
fn a_modern_request_must_have_its_meta_members() {
    let body = |meta: &str| call(&format!(r#"{{"name":"a","_meta":{meta}}}"#));
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let both = from_client(body(&format!("{{{version},{capabilities}}}"))).unwrap();
    assert_eq!(both.request_meta().unwrap().version, "2026-07-28");
    for meta in [
        "{}".to_string(),
        format!("{{{version}}}"),
        format!("{{{capabilities}}}"),
        format!("{{{version},{}}}", capabilities.replace("{}", "[]")),
        format!("{{{},{capabilities}}}", version.replace("\"2026-07-28\"", "1")),
    ] {
        let refused = from_client(body(&meta)).unwrap().request_meta().unwrap_err();
        assert_eq!(refused.problem.case(), jsonrpc_error::StatusCase::MissingMeta, "{meta}");
        assert_eq!(refused.code(), code::INVALID_PARAMS);
    }
}

#[test]
fn responses_are_strict_where_the_gateway_reads_them() {
    let answer =
        |result: &str| from_server(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
    for refused in [
        r#"{"tools":[],"tools":[]}"#,
        r#"{"tools":[],"Tools":[]}"#,
        r#"{"resultType":"complete","ResultType":"input_required"}"#,
        r#"{"_meta":{"a":1,"a":2}}"#,
        r#"{"_meta":1}"#,
        r#"{"inputRequests":{"a":{"method":"x","method":"y"}}}"#,
        r#"{"inputRequests":{"a":{"params":[{"x":1,"x":1}]}}}"#,
        r#"{"inputRequests":{"a":{"params":["\ud800"]}}}"#,
        r#"{"inputRequests":{"a":{"params":[1e400]}}}"#,
        r#"{"nextCursor":"\udc00"}"#,
        r#"{"x":1e400}"#,
        r#"{"\ud800":1}"#,
        r#"{"_meta":{"a":"\ud800"}}"#,
    ] {
        assert!(answer(refused).is_err(), "{refused}");
    }
    for fine in [
        r#"{"structuredContent":{"a":1,"a":2}}"#,
        r#"{"content":[{"type":"text","text":"x","_meta":{"a":1,"a":1}}]}"#,
        r#"{"tools":[{"name":"a","name":"b"}]}"#,
        r#"{"content":[{"type":"text","text":"cut \ud83d"}]}"#,
        r#"{"structuredContent":{"\ud800":["\udc00\ud83d\ude00"],"\udbff":1,"n":[1e400,-1e400]}}"#,
    ] {
        let answer = answer(fine).expect(fine);
        assert_eq!(answer.kind(), Kind::Response);
        let forwarded = answer.edit().id(&Id::number(7)).finish();
        assert!(forwarded.ends_with(format!("{fine}}}").as_bytes()), "{fine}");
    }
    for malformed in [
        r#"{"structuredContent":{"a":1,}}"#,
        r#"{"structuredContent":{"a":"\ud80"}}"#,
        r#"{"structuredContent":{"a":"\ud800\u12"}}"#,
        r#"{"structuredContent":{"a":1e}}"#,
    ] {
        assert!(answer(malformed).is_err(), "{malformed}");
    }
    let huge = format!(r#"{{"structuredContent":{{"a":{}}}}}"#, "9".repeat(400));
    assert!(answer(&huge).is_ok());
    for told in [r#""\ud800""#, r#"{"\ud800":1}"#, "1e400"] {
        let told = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":[{told}]}}}}"#
        );
        assert!(from_server(&told).is_err(), "{told}");
    }
    // Requests and notifications from a server are strict throughout.
    let told =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":{"a":1,"a":1}}}"#;
    assert!(from_server(told).is_err());
    for body in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x","data":null}}"#,
    ] {
        let error = from_server(body).unwrap();
        assert_eq!(
            (error.kind(), error.id(), error.error_code()),
            (Kind::Error, None, Some(-32700))
        );
    }
}

#[test]
fn ambiguous_payload_can_be_traversed() {
    let body = concat!(
        r#"{"jsonrpc":"2.0","id":1,"result":{"p":["#,
        r#""\ud800","a\udc00\ud800","\ud800\ud83d\ude00","\ud800\n",1e400,-1e400,"#,
        r#"{"\ud800":1,"\ud801":2,"x":3}]}}"#
    );
    let answer = from_server(body).unwrap();
    let payload = answer.result_member("p").unwrap();
    let said: Vec<_> = payload.elements().map(|(element, _)| element.as_str()).collect();
    let texts = ["\u{fffd}", "a\u{fffd}\u{fffd}", "\u{fffd}\u{1f600}", "\u{fffd}\n"];
    for (said, text) in said.iter().zip(texts) {
        assert_eq!(said.as_deref(), Some(text));
    }
    let tree = serde_json::json!([
        texts[0], texts[1], texts[2], texts[3], null, null, {"\u{fffd}": 2, "x": 3}
    ]);
    assert_eq!(payload.to_json(), tree);
    assert_eq!(payload.elements().count(), 7);
}

#[test]
fn ids_return_as_they_were_written() {
    for id in [r#""a""#, r#""\u0061\/é""#, "1", "-7", "123456789012345678901234567890", r#""""#] {
        let body = format!(r#"{{"jsonrpc":"2.0", "id" : {id} ,"method":"ping"}}"#);
        let message = from_client(&body).unwrap();
        assert_eq!(message.id().unwrap().raw(), id.as_bytes());
        let answer = jsonrpc::result_body(message.id().unwrap(), b"{}");
        assert_eq!(
            &answer[..],
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).as_bytes()
        );
    }
    let id = |raw: &str| {
        from_client(format!(r#"{{"jsonrpc":"2.0","id":{raw},"method":"m"}}"#))
            .unwrap()
            .id()
            .cloned()
    };
    assert_eq!(id(r#""a""#), id(r#""\u0061""#));
    assert_ne!(id("1"), id(r#""1""#));
    assert_ne!(id("1"), id("-1"));
}

#[test]
fn untrusted_text_in_an_error_is_escaped() {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"a\u001b[31m\u202e\n"}"#;
    let refused = from_client(body).unwrap().row(Sender::Client, Era::Modern).unwrap_err();
    let text = refused.to_string();
    assert!(text.chars().all(|character| (' '..='~').contains(&character)), "{text}");
}

#[test]
fn keys_are_compared_unescaped() {
    let text = br#"{"a\\b": 1, "\u0063": 2, "result": {"\u0074ask": {}}}"#;
    let raw = Raw::scan(text, MAX_REQUEST_BYTES).unwrap();
    let member = |name: &str| raw.member(name).and_then(Raw::as_i64);
    assert_eq!((member(r"a\b"), member(r"a\\b")), (Some(1), None));
    assert_eq!((member("c"), member(r"\u0063")), (Some(2), None));

    let answer = from_server(format!(
        r#"{{"jsonrpc":"2.0","id":1,"{}":{{"\u0074ask":{{}},"tasc":3}}}}"#,
        r"\u0072esult"
    ));
    let answer = answer.unwrap();
    assert!(answer.result_member("task").is_some_and(Raw::is_object));
    assert_eq!(answer.result_member("tasc").and_then(Raw::as_i64), Some(3));
    assert!(answer.result_member(r"\u0074ask").is_none());
    let names: Vec<_> = answer.result_members().map(|member| member.name()).collect();
    assert_eq!(names, ["task", "tasc"]);
}
