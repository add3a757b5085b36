//! Rules for HTTP/1.1 heads, one by one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::BytesMut;
use toolward_wire::http::{
    self, BodyLength, HeadError, HeadLimits, Method, RequestHead, ResponseHead,
};

fn request(bytes: impl AsRef<[u8]>) -> Result<Option<RequestHead>, HeadError> {
    http::read_request(&mut BytesMut::from(bytes.as_ref()), &HeadLimits::default())
}

fn response(bytes: impl AsRef<[u8]>) -> Result<Option<ResponseHead>, HeadError> {
    http::read_response(&mut BytesMut::from(bytes.as_ref()), &HeadLimits::default())
}

/// Parses a request with these lines after the request line and `Host`.
fn post(fields: &str) -> Result<RequestHead, HeadError> {
    request(format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).map(Option::unwrap)
}

fn answer(lines: &str) -> Result<ResponseHead, HeadError> {
    response(format!("HTTP/1.1 {lines}\r\n")).map(Option::unwrap)
}

#[test]
fn a_request_is_parsed_as_sent() {
    let head = b"POST /a%2Fb/../c?x=1?y HTTP/1.1\r\nHost: Example.COM:80\r\n\
        X-One:\t v  w \t\r\nx-one:\r\nAccept: \xc3\xa9\r\nContent-Length: 007\r\n\r\n";
    let mut buffer = BytesMut::from(&head[..]);
    buffer.extend_from_slice(b"body");
    let read = http::read_request(&mut buffer, &HeadLimits::default()).unwrap().unwrap();
    assert_eq!(&buffer[..], b"body");
    assert_eq!(read.method, Method::Post);
    assert_eq!((&read.path[..], read.query.as_deref()), ("/a%2Fb/../c", Some("x=1?y")));
    assert_eq!(
        (&read.host[..], read.headers.get("hOST")),
        ("example.com:80", Some("Example.COM:80"))
    );
    assert_eq!(read.body, BodyLength::Known(7));
    assert!(read.keep_alive && !read.old && !read.expects_continue);
    assert_eq!((read.headers.get("X-ONE"), read.headers.count("x-One")), (Some("v  w"), 2));
    assert_eq!((read.headers.get("accept"), read.headers.count("accept")), (None, 1));
    assert_eq!(read.headers.get("nothing"), None);
    let values = |name| read.headers.values(name).collect::<Vec<_>>();
    assert_eq!(values("X-one"), [&b"v  w"[..], b""]);
    assert_eq!(values("accept"), ["é".as_bytes()]);
    // The same length as another name.
    assert!(values("expect").is_empty() && values("nothing").is_empty());
    let fields: Vec<_> = read.headers.iter().collect();
    assert_eq!(fields[1], ("X-One", &b"v  w"[..]));
    assert_eq!(fields[2], ("x-one", &b""[..]));
    assert_eq!(fields[3], ("Accept", "é".as_bytes()));
    assert_eq!(fields.len(), 5);
}

#[test]
fn field_values_are_not_printed_by_debug() {
    let read = post("Authorization: Bearer s3cret\r\n").unwrap();
    let shown = format!("{read:?}");
    assert!(shown.contains("Authorization") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn request_lines() {
    use HeadError::*;
    let too_long = TargetTooLong { limit: http::MAX_TARGET };
    let long = "x".repeat(http::MAX_TARGET);
    let longest = format!("GET /{} HTTP/1.1", &long[1..]);
    for (line, method, path) in [
        ("GET / HTTP/1.1", Method::Get, "/"),
        ("DELETE //x HTTP/1.0", Method::Delete, "//x"),
        ("HEAD /\\\"<>^`{|} HTTP/1.1", Method::Head, "/\\\"<>^`{|}"),
        ("OPTIONS * HTTP/1.1", Method::Options, "*"),
        ("OPTIONS /x HTTP/1.1", Method::Options, "/x"),
        ("PATCH /x HTTP/1.1", Method::Other, "/x"),
        ("get /x HTTP/1.1", Method::Other, "/x"),
        ("GET http://A:80/x HTTP/1.1", Method::Get, "/x"),
        ("GET HTTPS://a:80/?q HTTP/1.1", Method::Get, "/"),
        (&longest, Method::Get, &longest[4..longest.len() - 9]),
    ] {
        let read = request(format!("{line}\r\nHost: a:80\r\n\r\n"));
        let read = read.unwrap_or_else(|problem| panic!("{line}: {problem}")).unwrap();
        assert_eq!((read.method, &read.path[..]), (method, path), "{line}");
        assert_eq!(read.old, line.ends_with("1.0"));
    }
    for (line, problem) in [
        ("", BadRequestLine),
        (" GET / HTTP/1.1", BadRequestLine),
        ("GET  / HTTP/1.1", BadRequestLine),
        ("GET /  HTTP/1.1", BadRequestLine),
        ("GET / HTTP/1.1 ", BadRequestLine),
        ("GET\t/ HTTP/1.1", BadRequestLine),
        ("GET /", BadRequestLine),
        ("GET / x HTTP/1.1", BadRequestLine),
        ("G(T / HTTP/1.1", BadRequestLine),
        ("GET / http/1.1", BadRequestLine),
        ("GET / HTTP/1.01", BadRequestLine),
        ("GET / HTTP/1", BadRequestLine),
        ("GET / XTTP/1.1", BadRequestLine),
        ("GET / HTTP/2.0", BadVersion),
        ("GET / HTTP/0.9", BadVersion),
        ("GET / HTTP/1.2", BadVersion),
        ("GET x HTTP/1.1", BadTarget),
        ("GET * HTTP/1.1", BadTarget),
        ("GET /# HTTP/1.1", BadTarget),
        ("GET /\t HTTP/1.1", BadTarget),
        ("GET /é HTTP/1.1", BadTarget),
        ("GET ftp://a:80/ HTTP/1.1", BadTarget),
        ("GET http://a:80 HTTP/1.1", BadTarget),
        ("GET http://a:80?x HTTP/1.1", BadTarget),
        ("GET a:80 HTTP/1.1", BadTarget),
        ("GET http:/a:80/ HTTP/1.1", BadTarget),
        ("GET http://b:80/ HTTP/1.1", HostDiffers),
        ("GET http://a/ HTTP/1.1", HostDiffers),
        ("GET http://u@a:80/ HTTP/1.1", HostDiffers),
        ("GET http:///x HTTP/1.1", HostDiffers),
        ("CONNECT a:80 HTTP/1.1", Tunnel),
        ("CONNECT / HTTP/1.1", Tunnel),
        (&format!("GET /{long} HTTP/1.1"), too_long.clone()),
        (&format!("GET /{} HTTP/1.1", long.repeat(5)), too_long),
    ] {
        let read = request(format!("{line}\r\nHost: a:80\r\n\r\n"));
        assert_eq!(read.unwrap_err(), problem, "{line:.80}");
    }
}

#[test]
fn lines_end_in_cr_lf() {
    use HeadError::*;
    for (head, problem) in [
        ("GET / HTTP/1.1\nHost: a\n\n", BadLineEnd),
        ("GET / HTTP/1.1\n", BadLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", BadLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", BadLineEnd),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", BadLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", BadLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", BadLineEnd),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", BadRequestLine),
        ("\n", BadRequestLine),
        ("\x16\x03\x01", BadRequestLine),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", ControlByte),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \x0b\r\n\r\n", ControlByte),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", ControlByte),
        ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", ControlByte),
    ] {
        assert_eq!(request(head).unwrap_err(), problem, "{head:?}");
    }
    for head in
        ["", "G", "GET / HTTP/1.1\r", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r"]
    {
        assert!(request(head).unwrap().is_none(), "{head:?}");
    }
}

#[test]
fn field_lines() {
    use HeadError::*;
    for fields in ["X:\r\n", "X:y\r\n", "!#$%&'*+-.^_`|~09AZaz: y\r\n", "X: \t:é,\"\\\r\n"] {
        assert!(post(fields).is_ok(), "{fields:?}");
    }
    for (fields, problem) in [
        (" X: y\r\n", FoldedField),
        ("X: y\r\n z\r\n", FoldedField),
        ("X: y\r\n\tz: q\r\n", FoldedField),
        ("X : y\r\n", BadFieldName),
        ("X\t: y\r\n", BadFieldName),
        (": y\r\n", BadFieldName),
        ("X\r\n", BadFieldName),
        ("X y: z\r\n", BadFieldName),
        ("X(: z\r\n", BadFieldName),
        ("é: z\r\n", BadFieldName),
        ("X\"Y: z\r\n", BadFieldName),
    ] {
        assert_eq!(post(fields).unwrap_err(), problem, "{fields:?}");
    }
}

#[test]
fn hosts() {
    let with = |host: &str| request(format!("GET / HTTP/1.1\r\n{host}\r\n"));
    for host in [
        "a",
        "A_b-c.d.",
        "127.0.0.1:1",
        "localhost:65535",
        "[::1]",
        "[2001:DB8::1]:443",
        "[::ffff:1.2.3.4]",
    ] {
        let read = with(&format!("Host: {host}\r\n")).unwrap().unwrap();
        assert_eq!(read.host, host.to_ascii_lowercase());
    }
    for host in [
        "",
        "a:",
        "a:65536",
        "a:000080",
        "a:+1",
        "a:b",
        ":80",
        "u@a",
        "a/b",
        "a b",
        "a,b",
        "a?",
        "[::1",
        "::1",
        "[::1]80",
        "[::1]:",
        "[]",
        "[::g]",
        "[fe80::1%25eth0]",
        "a%41",
        "a:1:2",
        "é",
        "a#",
        "a\\b",
        "[a]",
        "[1.2.3.4]",
    ] {
        let read = with(&format!("Host: {host}\r\n"));
        assert_eq!(read.unwrap_err(), HeadError::BadHost, "{host}");
    }
    let invalid = b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n";
    assert_eq!(request(invalid).unwrap_err(), HeadError::BadHost);
    assert_eq!(with("").unwrap_err(), HeadError::NoHost);
    assert_eq!(request("GET / HTTP/1.0\r\n\r\n").unwrap_err(), HeadError::NoHost);
    let old = request("GET / HTTP/1.0\r\nX: a\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let old = old.unwrap().unwrap();
    assert!(old.old && !old.keep_alive);
}

#[test]
fn lengths_of_requests() {
    use HeadError::*;
    let largest = format!("Content-Length: {}\r\n", u64::MAX);
    for (fields, body) in [
        ("", BodyLength::Empty),
        ("Content-Length: 0\r\n", BodyLength::Known(0)),
        ("CONTENT-LENGTH:12\r\n", BodyLength::Known(12)),
        (&largest, BodyLength::Known(u64::MAX)),
        ("Transfer-Encoding: chunked\r\n", BodyLength::Chunked),
        ("transfer-encoding:\tChUnKeD \r\n", BodyLength::Chunked),
    ] {
        assert_eq!(post(fields).unwrap().body, body, "{fields}");
    }
    for (fields, problem) in [
        ("Content-Length:\r\n", BadContentLength),
        ("Content-Length: +1\r\n", BadContentLength),
        ("Content-Length: -1\r\n", BadContentLength),
        ("Content-Length: 0x1\r\n", BadContentLength),
        ("Content-Length: 1, 1\r\n", BadContentLength),
        ("Content-Length: 1,\r\n", BadContentLength),
        ("Content-Length: 1 1\r\n", BadContentLength),
        ("Content-Length: 1.0\r\n", BadContentLength),
        ("Content-Length: ١\r\n", BadContentLength),
        ("Content-Length: 18446744073709551616\r\n", BadContentLength),
        ("Content-Length: 99999999999999999999999999\r\n", BadContentLength),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", duplicate("content-length")),
        ("Transfer-Encoding:\r\n", BadTransferEncoding),
        ("Transfer-Encoding: chunked, chunked\r\n", BadTransferEncoding),
        ("Transfer-Encoding: chunked,\r\n", BadTransferEncoding),
        ("Transfer-Encoding: \"chunked\"\r\n", BadTransferEncoding),
        ("Transfer-Encoding: chunked;x=y\r\n", BadTransferEncoding),
        ("Transfer-Encoding: gzip\r\n", UnknownTransferCoding),
        ("Transfer-Encoding: gzip, chunked\r\n", UnknownTransferCoding),
        ("Transfer-Encoding: chunked, identity\r\n", UnknownTransferCoding),
        ("Transfer-Encoding: xchunked\r\n", UnknownTransferCoding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-encoding: chunked\r\n",
            duplicate("transfer-encoding"),
        ),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", TwoLengths),
        ("Content-Length: 0\r\nTransfer-Encoding: gzip\r\n", TwoLengths),
    ] {
        assert_eq!(post(fields).unwrap_err(), problem, "{fields}");
    }
    let old = request("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old.unwrap_err(), CodingInOldVersion);
}

fn duplicate(name: &str) -> HeadError {
    HeadError::DuplicateField { name: name.into() }
}

#[test]
fn singleton_fields_are_not_duplicated() {
    for name in [
        "host",
        "content-length",
        "transfer-encoding",
        "authorization",
        "content-type",
        "content-encoding",
        "origin",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "expect",
        "mcp-param-",
        "mcp-param-path",
    ] {
        let twice = format!("{name}: a\r\nX: y\r\n{}: b\r\n", name.to_ascii_uppercase());
        assert_eq!(post(&twice).unwrap_err(), duplicate(name), "{name}");
    }
    for name in ["accept", "cookie", "x-forwarded-for", "connection", "mcp-params", "mcp-para"] {
        assert_eq!(post(&format!("{name}: a\r\n{name}: a\r\n")).unwrap().headers.count(name), 2);
    }
    assert!(post("Mcp-Param-A: 1\r\nMcp-Param-B: 1\r\n").is_ok());

    for name in [
        "content-length",
        "transfer-encoding",
        "content-type",
        "content-encoding",
        "mcp-session-id",
        "location",
    ] {
        let twice = format!("200 OK\r\n{name}: 1\r\n{}: 1\r\n", name.to_ascii_uppercase());
        assert_eq!(answer(&twice).unwrap_err(), duplicate(name), "{name}");
    }
    assert!(answer("200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n").is_ok());
}

#[test]
fn expectations_and_connections() {
    assert!(post("Expect: 100-Continue\r\n").unwrap().expects_continue);
    let old = request("POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
    assert!(!old.unwrap().unwrap().expects_continue);
    for expectation in ["", "100-continue, x", "x", "100-continue;q"] {
        let problem = post(&format!("Expect: {expectation}\r\n")).unwrap_err();
        assert_eq!(problem, HeadError::UnknownExpectation, "{expectation}");
    }
    for (fields, keep_alive) in [
        ("Connection: close\r\n", false),
        ("Connection: x,\tCLOSE \r\n", false),
        ("Connection: x\r\nConnection: close\r\n", false),
        ("Connection: keep-alive\r\n", true),
        ("Connection: closed, not-close\r\n", true),
        ("Connection:\r\n", true),
    ] {
        assert_eq!(post(fields).unwrap().keep_alive, keep_alive, "{fields}");
    }
}

#[test]
fn limits_of_heads() {
    let limits = HeadLimits { bytes: 64, fields: 3 };
    let read = |bytes: &[u8]| http::read_request(&mut BytesMut::from(bytes), &limits);
    let head = |pad: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(pad));
    assert_eq!(head(32).len(), 64);
    assert!(read(head(32).as_bytes()).unwrap().is_some());
    let too_large = HeadError::HeadTooLarge { limit: 64 };
    assert_eq!(read(head(33).as_bytes()).unwrap_err(), too_large);
    assert!(read(&head(33).as_bytes()[..63]).unwrap().is_none());
    assert_eq!(read(&head(33).as_bytes()[..64]).unwrap_err(), too_large);
    assert_eq!(read(&[b'x'; 64]).unwrap_err(), too_large);
    assert!(read(b"GET / HTTP/1.1\r\nHost: a\r\nb:\r\nc:\r\n\r\n").unwrap().is_some());
    let too_many = HeadError::TooManyFields { limit: 3 };
    assert_eq!(read(b"GET / HTTP/1.1\r\nHost: a\r\nb:\r\nc:\r\nd:\r\n").unwrap_err(), too_many);

    let fields = |count: usize| post(&"a:\r\n".repeat(count - 1));
    assert!(fields(100).is_ok());
    assert_eq!(fields(101).unwrap_err(), HeadError::TooManyFields { limit: 100 });
}

#[test]
fn every_error_has_a_message_and_a_status() {
    use HeadError::*;
    for (problem, status) in [
        (BadLineEnd, 400),
        (ControlByte, 400),
        (BadRequestLine, 400),
        (BadVersion, 505),
        (BadTarget, 400),
        (TargetTooLong { limit: 1 }, 414),
        (Tunnel, 400),
        (FoldedField, 400),
        (BadFieldName, 400),
        (duplicate("x"), 400),
        (NoHost, 400),
        (BadHost, 400),
        (HostDiffers, 400),
        (BadContentLength, 400),
        (BadTransferEncoding, 400),
        (UnknownTransferCoding, 501),
        (TwoLengths, 400),
        (CodingInOldVersion, 400),
        (UnknownExpectation, 417),
        (HeadTooLarge { limit: 1 }, 431),
        (TooManyFields { limit: 1 }, 431),
        (BadStatusLine, 502),
        (SwitchedProtocols, 502),
    ] {
        assert_eq!(problem.status(), status, "{problem}");
        assert!(!problem.to_string().is_empty());
    }
}

#[test]
fn status_lines() {
    for (line, status) in [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.0 599 \u{e9} any: \"text\"", 599),
        ("HTTP/1.1 404 ", 404),
        ("HTTP/1.1 404", 404),
        ("HTTP/1.1 200  two  spaces ", 200),
    ] {
        assert_eq!(response(format!("{line}\r\n\r\n")).unwrap().unwrap().status, status, "{line}");
    }
    for line in [
        "",
        "200 OK",
        "HTTP/2 200 OK",
        "http/1.1 200 OK",
        "HTTP/1.2 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2x0 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1",
        "HTTP/1.1 600 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 200\tOK",
        " HTTP/1.1 200 OK",
    ] {
        let read = response(format!("{line}\r\n\r\n"));
        assert_eq!(read.unwrap_err(), HeadError::BadStatusLine, "{line}");
    }
    // An invalid status line is rejected before its end.
    assert_eq!(response("\x15").unwrap_err(), HeadError::BadStatusLine);
    assert!(response("HTT").unwrap().is_none());
    for (head, problem) in [
        ("HTTP/1.1 200 O\0K\r\n\r\n", HeadError::ControlByte),
        ("HTTP/1.1 200 OK\n\n", HeadError::BadLineEnd),
        ("HTTP/1.1 200 OK\r\nX : y\r\n\r\n", HeadError::BadFieldName),
        ("HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", HeadError::FoldedField),
    ] {
        assert_eq!(response(head).unwrap_err(), problem);
    }
}

#[test]
fn lengths_of_responses() {
    use BodyLength::*;
    for (lines, body, keep_alive) in [
        ("200 OK\r\nContent-Length: 3\r\n", Known(3), true),
        ("200 OK\r\nContent-Length: 3\r\nConnection: close\r\n", Known(3), false),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", Chunked, true),
        ("200 OK\r\n", UntilClose, false),
        ("204 x\r\n", Empty, true),
        ("204 x\r\nContent-Length: 0\r\n", Empty, true),
        ("204 x\r\nContent-Length: 5\r\n", Empty, false),
        ("204 x\r\nTransfer-Encoding: chunked\r\n", Empty, false),
        ("304 x\r\nContent-Length: 5\r\n", Empty, true),
    ] {
        let read = answer(lines).unwrap();
        assert_eq!((read.body, read.keep_alive), (body, keep_alive), "{lines}");
    }
    let old = response("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n").unwrap().unwrap();
    assert_eq!((old.body, old.keep_alive), (Known(3), false));
    for (lines, problem) in [
        ("200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", HeadError::TwoLengths),
        ("200 OK\r\nTransfer-Encoding: gzip\r\n", HeadError::UnknownTransferCoding),
        ("200 OK\r\nContent-Length: 3, 3\r\n", HeadError::BadContentLength),
        ("304 x\r\nContent-Length: x\r\n", HeadError::BadContentLength),
    ] {
        assert_eq!(answer(lines).unwrap_err(), problem, "{lines}");
    }
}

#[test]
fn interim_responses_are_skipped() {
    let mut buffer = BytesMut::from(
        &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 2"[..],
    );
    let limits = HeadLimits::default();
    assert!(http::read_response(&mut buffer, &limits).unwrap().is_none());
    buffer.extend_from_slice(b"00 OK\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(http::read_response(&mut buffer, &limits).unwrap().unwrap().status, 200);
    assert_eq!(&buffer[..], b"x");
    let switched = answer("101 Switching Protocols\r\nUpgrade: x\r\n").unwrap_err();
    assert_eq!(switched, HeadError::SwitchedProtocols);
}
