//! Fuzzes headers that mirror the body.
//!
//! Any text survives encoding and decoding, including a round trip through HTTP. Headers generated
//! from a body match that body and no other.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use toolward_fuzz::wire::strict;
use toolward_wire::headers::{self, ParamHeaders, StandardHeaders, decode, encode};
use toolward_wire::http::{self, HeadLimits};
use toolward_wire::{Arguments, Era, MAX_REQUEST_BYTES, Message, Raw, Sender, string};

// Input: a text; or a tool's schema, a line feed, and the arguments of a call.
fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    round_trip(&text);
    standard(&text);
    if let Some((schema, arguments)) = text.split_once('\n') {
        params(schema, arguments);
    }
});

fn round_trip(text: &str) {
    let sent = encode(text);
    assert_eq!(decode(&sent).as_deref(), Some(text));
    let mut out = Vec::new();
    http::write_request(&mut out, "GET", "/", "h", &[("Mcp-Name", &sent)], None)
        .expect("an encoded value can be written");
    let limits = HeadLimits { bytes: 1 << 20, fields: 100 };
    let read = http::read_request(&mut BytesMut::from(&out[..]), &limits).unwrap().unwrap();
    assert_eq!(read.headers.get("mcp-name").and_then(decode).as_deref(), Some(text));
    // A decoded value survives another round trip.
    if let Some(value) = decode(text) {
        assert_eq!(decode(&encode(&value)).as_deref(), Some(&value[..]));
    }
}

fn standard(name: &str) {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{},"_meta":
        {{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#,
        String::from_utf8(string::quote(name)).unwrap()
    );
    let message = Message::parse(body.into(), MAX_REQUEST_BYTES, Sender::Client).unwrap();
    let row = message.row(Sender::Client, Era::Modern).unwrap();
    let made = headers::standard(&message, row);
    let get = |wanted: &str| {
        made.iter().find(|(header, _)| *header == wanted).map(|(_, value)| &value[..])
    };
    let sent = StandardHeaders {
        protocol_version: get(headers::PROTOCOL_VERSION),
        method: get(headers::METHOD),
        name: get(headers::NAME),
    };
    assert_eq!(sent.check(&message, row), Ok(()));
    let other = encode(name).into_owned() + "x";
    assert!(StandardHeaders { name: Some(&other), ..sent }.check(&message, row).is_err());
    assert!(StandardHeaders { name: None, ..sent }.check(&message, row).is_err());
    assert!(StandardHeaders { method: Some("tools/list"), ..sent }.check(&message, row).is_err());
}

fn params(schema: &str, arguments: &str) {
    let Some(Ok(marks)) = strict(schema.as_bytes()).map(|schema| ParamHeaders::read(&schema))
    else {
        return;
    };
    let Ok(raw) = Raw::scan(arguments.as_bytes(), usize::MAX) else { return };
    let arguments = raw.is_object().then_some(Arguments::new(raw));
    let made = marks.make(arguments);
    let get = |wanted: &str| {
        made.iter().find(|(header, _)| header == wanted).map(|(_, value)| &value[..])
    };
    assert_eq!(marks.check(arguments, get), Ok(()));
    for (header, value) in &made {
        assert!(header.starts_with(headers::PARAM_PREFIX));
        assert_eq!(made.iter().filter(|(other, _)| other == header).count(), 1);
        let mut out = Vec::new();
        http::write_request(&mut out, "GET", "/", "h", &[(header, value)], None).unwrap();
        let without = |wanted: &str| get(wanted).filter(|_| wanted != header);
        assert!(marks.check(arguments, without).is_err(), "a missing header was accepted");
        let changed = encode(&(decode(value).unwrap().into_owned() + "x")).into_owned();
        let other = |wanted: &str| if wanted == header { Some(&changed[..]) } else { get(wanted) };
        assert!(marks.check(arguments, other).is_err(), "a wrong header was accepted");
    }
    if !made.is_empty() {
        assert!(marks.check(None, get).is_err(), "headers without a body were accepted");
    }
}
