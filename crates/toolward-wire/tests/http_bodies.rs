//! HTTP/1.1 bodies, and serialization of heads and chunks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::{Bytes, BytesMut};
use toolward_wire::http::{
    self, BadField, BodyError, BodyLength, BodyReader, BodyStream, Piece, ResponseBody,
};

/// Reads a body that arrives in pieces of `step` bytes. Returns the body and the rest of the
/// buffer.
fn body(
    length: BodyLength,
    limit: usize,
    bytes: &[u8],
    step: usize,
) -> Result<Option<(Bytes, Bytes)>, BodyError> {
    let mut reader = BodyReader::new(length, limit)?;
    let mut buffer = BytesMut::new();
    let mut pieces = bytes.chunks(step);
    loop {
        if let Some(body) = reader.read(&mut buffer)? {
            pieces.for_each(|piece| buffer.extend_from_slice(piece));
            return Ok(Some((body, buffer.freeze())));
        }
        match pieces.next() {
            Some(piece) => buffer.extend_from_slice(piece),
            None => return Ok(None),
        }
    }
}

#[test]
fn bodies_of_known_length_are_not_copied() {
    let mut buffer = BytesMut::from(&b"hello, world"[..]);
    let place = buffer.as_ptr();
    let mut reader = BodyReader::new(BodyLength::Known(5), 5).unwrap();
    let read = reader.read(&mut buffer).unwrap().unwrap();
    assert_eq!((&read[..], read.as_ptr()), (&b"hello"[..], place));
    assert_eq!(&buffer[..], b", world");

    assert_eq!(BodyReader::new(BodyLength::Known(6), 5).unwrap_err(), BodyError::TooLarge);
    assert_eq!(BodyReader::new(BodyLength::Known(u64::MAX), 5).unwrap_err(), BodyError::TooLarge);
    let mut short = BodyReader::new(BodyLength::Known(5), 5).unwrap();
    let mut buffer = BytesMut::from(&b"hell"[..]);
    assert_eq!(short.read(&mut buffer), Ok(None));
    assert_eq!(short.at_eof(&mut buffer), Err(BodyError::CutShort));
    for length in [BodyLength::Empty, BodyLength::Known(0)] {
        let (read, rest) = body(length, 0, b"x", 1).unwrap().unwrap();
        assert_eq!((&read[..], &rest[..]), (&b""[..], &b"x"[..]));
    }
}

#[test]
fn chunks() {
    for step in [1, 2, 3, 100] {
        for (bytes, said, left) in [
            ("0\r\n\r\n", "", ""),
            ("5\r\nhello\r\n0\r\n\r\nGET", "hello", "GET"),
            ("00000005\r\nhello\r\n00\r\n\r\n", "hello", ""),
            ("1\r\nh\r\nA\r\n0123456789\r\n0\r\n\r\n", "h0123456789", ""),
            ("3\r\n\r\n0\r\n0\r\n\r\n", "\r\n0", ""),
        ] {
            let read = body(BodyLength::Chunked, 11, bytes.as_bytes(), step).unwrap().unwrap();
            assert_eq!(read, (Bytes::from(said), Bytes::from(left)), "{bytes:?}");
        }
        for bytes in [
            "\r\n",
            "x\r\n",
            "5\n",
            "5\r5",
            "5 \r\n",
            " 5\r\n",
            "5;x\r\n",
            "5;x=y\r\n",
            "0x5\r\n",
            "-1\r\n",
            "+1\r\n",
            "000000005\r\n",
            "5\r\nhello!\r\n",
            "5\r\nhello\n",
            "5\r\nhello\r0",
            "0\r\nX: y\r\n\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "5\r\nhello\r\n\r\n",
        ] {
            let read = body(BodyLength::Chunked, 11, bytes.as_bytes(), step);
            assert_eq!(read, Err(BodyError::Malformed), "{bytes:?}");
        }
        for bytes in ["c\r\n", "ffffffff\r\n", "6\r\nabcdef\r\n6\r\n"] {
            let read = body(BodyLength::Chunked, 11, bytes.as_bytes(), step);
            assert_eq!(read, Err(BodyError::TooLarge), "{bytes:?}");
        }
        for bytes in ["", "5", "5\r", "5\r\nhell", "5\r\nhello\r", "0\r\n", "0\r\n\r"] {
            assert_eq!(
                body(BodyLength::Chunked, 11, bytes.as_bytes(), step),
                Ok(None),
                "{bytes:?}"
            );
        }
    }
    let mut reader = BodyReader::new(BodyLength::Chunked, 11).unwrap();
    let mut buffer = BytesMut::from(&b"5\r\nhel"[..]);
    assert_eq!(reader.at_eof(&mut buffer), Err(BodyError::CutShort));
}

#[test]
fn bodies_until_the_connection_ends() {
    let mut reader = BodyReader::new(BodyLength::UntilClose, 5).unwrap();
    let mut buffer = BytesMut::from(&b"hello"[..]);
    assert_eq!(reader.read(&mut buffer), Ok(None));
    assert_eq!(reader.at_eof(&mut buffer).unwrap(), &b"hello"[..]);
    let mut buffer = BytesMut::from(&b"hello!"[..]);
    assert_eq!(reader.read(&mut buffer), Err(BodyError::TooLarge));
    assert_eq!(reader.at_eof(&mut buffer), Err(BodyError::TooLarge));
}

#[test]
fn streams_return_available_bytes() {
    let data = |text: &'static str| Ok(Piece::Data(text.into()));
    let mut buffer = BytesMut::from(&b"5\r\nhel"[..]);
    let mut stream = BodyStream::new(BodyLength::Chunked);
    assert_eq!(stream.next(&mut buffer), data("hel"));
    assert_eq!(stream.next(&mut buffer), Ok(Piece::NeedMore));
    buffer.extend_from_slice(b"lo\r\n0\r\n\r\nrest");
    assert_eq!(stream.next(&mut buffer), data("lo"));
    assert_eq!(stream.next(&mut buffer), Ok(Piece::End));
    assert_eq!((stream.next(&mut buffer), stream.at_eof()), (Ok(Piece::End), Ok(())));
    assert_eq!(&buffer[..], b"rest");

    let mut stream = BodyStream::new(BodyLength::Known(6));
    assert_eq!(stream.next(&mut buffer), data("rest"));
    assert_eq!(stream.at_eof(), Err(BodyError::CutShort));
    assert_eq!(stream.next(&mut buffer), Err(BodyError::CutShort));

    let mut stream = BodyStream::new(BodyLength::UntilClose);
    assert_eq!(stream.next(&mut BytesMut::from(&b"x"[..])), data("x"));
    assert_eq!(stream.next(&mut buffer), Ok(Piece::NeedMore));
    assert_eq!((stream.at_eof(), stream.next(&mut buffer)), (Ok(()), Ok(Piece::End)));

    let mut stream = BodyStream::new(BodyLength::Chunked);
    assert_eq!(stream.next(&mut BytesMut::from(&b"z"[..])), Err(BodyError::Malformed));
    assert_eq!(stream.next(&mut BytesMut::from(&b"0\r\n\r\n"[..])), Err(BodyError::Malformed));
    assert_eq!(stream.at_eof(), Err(BodyError::Malformed));
}

#[test]
fn responses_are_serialized() {
    use ResponseBody::*;
    for (status, body, keep_alive, written) in [
        (200, Length(3), true, "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 3\r\n\r\n"),
        (200, Chunked, true, "HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (200, UntilClose, true, "HTTP/1.1 200 OK\r\nX: y\r\nConnection: close\r\n\r\n"),
        (202, Empty, true, "HTTP/1.1 202 Accepted\r\nX: y\r\nContent-Length: 0\r\n\r\n"),
        (204, Empty, false, "HTTP/1.1 204 No Content\r\nX: y\r\nConnection: close\r\n\r\n"),
        (304, Empty, true, "HTTP/1.1 304 Not Modified\r\nX: y\r\n\r\n"),
        (100, Empty, true, "HTTP/1.1 100 Continue\r\nX: y\r\n\r\n"),
        (418, Empty, true, "HTTP/1.1 418 \r\nX: y\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let mut out = Vec::new();
        http::write_response(&mut out, status, &[("X", "y")], body, keep_alive).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), written);
    }
}

#[test]
fn requests_are_serialized() {
    let mut out = Vec::new();
    let fields = [("Accept", "application/json"), ("X", "")];
    http::write_request(&mut out, "POST", "/mcp?x", "h:1", &fields, Some(2)).unwrap();
    let written = "POST /mcp?x HTTP/1.1\r\nHost: h:1\r\nAccept: application/json\r\nX: \r\n\
        Content-Length: 2\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), written);
    let mut out = Vec::new();
    http::write_request(&mut out, "GET", "/", "h", &[], None).unwrap();
    assert_eq!(out, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

#[test]
fn fields_cannot_inject_fields() {
    let bad = |name: &str| Err(BadField { name: name.into() });
    let mut out = b"before".to_vec();
    for value in
        ["a\r\nb", "a\nb", "a\rb", "\0", "\x0b", "\x1b", "\x7f", "é", "\u{85}", " a", "a\t"]
    {
        let fields = [("ok", "fine"), ("x", value)];
        let written = http::write_response(&mut out, 200, &fields, ResponseBody::Empty, true);
        assert_eq!(written, bad("x"), "{value:?}");
        let written = http::write_request(&mut out, "GET", "/", "h", &fields, None);
        assert_eq!(written, bad("x"), "{value:?}");
    }
    for (name, shown) in [
        ("", ""),
        ("a b", "a b"),
        ("a:", "a:"),
        ("a\r\nb", "a\\r\\nb"),
        ("é", "é"),
        ("content-length", "content-length"),
        ("Transfer-Encoding", "Transfer-Encoding"),
        ("Connection", "Connection"),
    ] {
        let fields = [(name, "y")];
        let written = http::write_response(&mut out, 200, &fields, ResponseBody::Empty, true);
        assert_eq!(written, bad(shown), "{name:?}");
        let written = http::write_request(&mut out, "GET", "/", "h", &fields, None);
        assert_eq!(written, bad(shown), "{name:?}");
    }
    for status in [0, 99, 600, u16::MAX] {
        let written = http::write_response(&mut out, status, &[], ResponseBody::Empty, true);
        assert_eq!(written, bad("status"));
    }
    for (method, target, host, fields, name) in [
        ("", "/", "h", &[][..], "method"),
        ("GET /x HTTP/1.1\r\n", "/", "h", &[], "method"),
        ("CONNECT", "/", "h", &[], "method"),
        ("GET", "", "h", &[], "target"),
        ("GET", "x", "h", &[], "target"),
        ("GET", "/ x", "h", &[], "target"),
        ("GET", "/\r\nX: y", "h", &[], "target"),
        ("GET", "/é", "h", &[], "target"),
        ("GET", "/#f", "h", &[], "target"),
        ("GET", "/", "", &[], "host"),
        ("GET", "/", "u@h", &[], "host"),
        ("GET", "/", "h\r\nX: y", &[], "host"),
        ("GET", "/", "h", &[("HOST", "i")], "host"),
    ] {
        let written = http::write_request(&mut out, method, target, host, fields, None);
        assert_eq!(written, bad(name), "{method:?} {target:?} {host:?}");
    }
    assert_eq!(out, b"before");
}

#[test]
fn chunks_are_serialized() {
    let mut out = Vec::new();
    http::write_chunk(&mut out, b"");
    http::write_chunk(&mut out, b"0123456789abcdef");
    http::write_last_chunk(&mut out);
    assert_eq!(out, b"10\r\n0123456789abcdef\r\n0\r\n\r\n");
}
