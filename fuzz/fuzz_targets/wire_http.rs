//! Fuzzes the HTTP parser and writer with any bytes, split in any way.
//!
//! The result does not depend on the split, ambiguous messages are rejected, another parser agrees,
//! and serialized messages can be parsed.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use toolward_fuzz::wire::{choice, pieces};
use toolward_wire::http::{
    self, BodyError, BodyLength, BodyReader, BodyStream, HeadError, HeadLimits, Headers, Method,
    Piece, RequestHead, ResponseBody,
};

const LIMITS: HeadLimits = HeadLimits { bytes: 600, fields: 12 };
const LIMIT: usize = 200;

// The first byte selects how the stream is split.
fuzz_target!(|data: &[u8]| {
    let (seed, data) = choice(data);
    let cut = pieces(data, seed);

    let whole = head(&[data], http::read_request);
    let same = head(&cut, http::read_request);
    let print = |head: &RequestHead| format!("{head:?} {:?}", fields(&head.headers));
    assert_eq!(shown(&whole, print), shown(&same, print), "requests depend on how they arrive");
    if let Ok(Some((head, rest))) = whole {
        let sent = &data[..data.len() - rest.len()];
        let named = plain(sent);
        assert_eq!(count(&named, "host"), 1);
        assert_eq!(fields(&head.headers), named);
        lengths(&named, head.body, BodyLength::Empty);
        another_parser(sent, &head);
        round_trip(&head);
        bodies(head.body, &rest, seed);
    }

    let whole = head(&[data], http::read_response);
    let same = head(&cut, http::read_response);
    let print = |head: &http::ResponseHead| format!("{head:?} {:?}", fields(&head.headers));
    assert_eq!(shown(&whole, print), shown(&same, print), "responses depend on how they arrive");
    if let Ok(Some((head, rest))) = whole {
        // Interim responses may precede it.
        let sent = &data[..data.len() - rest.len()];
        let before = sent[..sent.len() - 4].windows(4).rposition(|four| four == b"\r\n\r\n");
        let named = plain(&sent[before.map_or(0, |at| at + 4)..]);
        assert_eq!(fields(&head.headers), named);
        if matches!(head.status, 204 | 304) {
            assert_eq!(head.body, BodyLength::Empty);
        } else {
            lengths(&named, head.body, BodyLength::UntilClose);
        }
        assert!(!head.keep_alive || head.body != BodyLength::UntilClose);
        bodies(head.body, &rest, seed);
    }

    for length in [BodyLength::Chunked, BodyLength::Known(20), BodyLength::UntilClose] {
        bodies(length, data, seed);
    }
    in_chunks(&cut, data);
    injection(data);
});

/// A head and the bytes after it.
type Read<T> = Result<Option<(T, Bytes)>, HeadError>;

fn head<T>(
    pieces: &[&[u8]],
    read: fn(&mut BytesMut, &HeadLimits) -> Result<Option<T>, HeadError>,
) -> Read<T> {
    let mut buffer = BytesMut::new();
    for (at, piece) in pieces.iter().enumerate() {
        buffer.extend_from_slice(piece);
        if let Some(head) = read(&mut buffer, &LIMITS)? {
            pieces[at + 1..].iter().for_each(|piece| buffer.extend_from_slice(piece));
            return Ok(Some((head, buffer.freeze())));
        }
    }
    Ok(None)
}

fn shown<T>(read: &Read<T>, print: impl Fn(&T) -> String) -> String {
    match read {
        Ok(Some((head, rest))) => format!("{} {rest:?}", print(head)),
        Ok(None) => "more".into(),
        Err(error) => format!("{error:?}: {error} {}", error.status()),
    }
}

/// Names and values of header fields.
type Named = Vec<(String, Vec<u8>)>;

fn fields(headers: &Headers) -> Named {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_vec())).collect()
}

fn count(fields: &Named, wanted: &str) -> usize {
    fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).count()
}

/// The fields of an accepted head, according to a naive parser.
fn plain(head: &[u8]) -> Named {
    for (at, byte) in head.iter().enumerate() {
        match byte {
            b'\n' => assert_eq!(head[at - 1], b'\r', "a bare line feed"),
            b'\r' => assert_eq!(head[at + 1], b'\n', "a bare carriage return"),
            b'\t' | b' '..=b'~' | 0x80.. => {}
            _ => panic!("a control character"),
        }
    }
    let lines = head.strip_suffix(b"\r\n\r\n").expect("a head ends in an empty line");
    let mut lines = lines.split(|byte| *byte == b'\n');
    lines.next();
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    lines
        .map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let colon = line.iter().position(|byte| *byte == b':').expect("a field has a colon");
            let name = std::str::from_utf8(&line[..colon]).expect("a name is ASCII");
            assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
            let value = &line[colon + 1..];
            let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
            let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |at| at + 1);
            (name.to_string(), value[start..end].to_vec())
        })
        .collect()
}

fn lengths(fields: &Named, body: BodyLength, none: BodyLength) {
    let (lengths, codings) = (count(fields, "content-length"), count(fields, "transfer-encoding"));
    match (lengths, codings) {
        (0, 0) => assert_eq!(body, none),
        (1, 0) => assert!(matches!(body, BodyLength::Known(_))),
        (0, 1) => assert_eq!(body, BodyLength::Chunked),
        _ => panic!("{lengths} lengths and {codings} codings"),
    }
}

/// Compares the result with httparse.
fn another_parser(sent: &[u8], ours: &RequestHead) {
    let mut slots = [httparse::EMPTY_HEADER; 16];
    let mut theirs = httparse::Request::new(&mut slots);
    let length = theirs.parse(sent).expect("httparse accepts it");
    assert_eq!(length, httparse::Status::Complete(sent.len()));
    assert_eq!(ours.method, method(theirs.method.unwrap()));
    assert_eq!(ours.old, theirs.version == Some(0));
    assert!(theirs.path.unwrap().ends_with(&target(ours)));
    let named: Named =
        theirs.headers.iter().map(|field| (field.name.into(), field.value.into())).collect();
    assert_eq!(fields(&ours.headers), named);
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "HEAD" => Method::Head,
        _ => Method::Other,
    }
}

fn target(head: &RequestHead) -> String {
    match &head.query {
        Some(query) => format!("{}?{query}", head.path),
        None => head.path.clone(),
    }
}

/// Writes a parsed head and parses it again.
fn round_trip(head: &RequestHead) {
    let ours = ["host", "connection", "content-length", "transfer-encoding"];
    let named: Vec<(&str, &str)> = head
        .headers
        .iter()
        .filter(|(name, _)| !ours.iter().any(|ours| name.eq_ignore_ascii_case(ours)))
        .filter_map(|(name, value)| Some((name, std::str::from_utf8(value).ok()?)))
        .filter(|(_, value)| value.is_ascii())
        .collect();
    let name = match head.method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Delete => "DELETE",
        Method::Options => "OPTIONS",
        Method::Head => "HEAD",
        Method::Other => "PATCH",
    };
    let body = match head.body {
        BodyLength::Known(length) => usize::try_from(length).ok(),
        _ => None,
    };
    let mut out = Vec::new();
    let written = http::write_request(&mut out, name, &target(head), &head.host, &named, body);
    if head.path == "*" {
        return assert!(written.is_err());
    }
    written.expect("a parsed head can be written");
    let again = http::read_request(&mut BytesMut::from(&out[..]), &HeadLimits::default());
    let again = again.unwrap().unwrap();
    assert_eq!((again.method, target(&again)), (head.method, target(head)));
    assert_eq!(again.host, head.host);
    let (kept, _) = fields(&again.headers).into_iter().partition::<Named, _>(|(name, _)| {
        !ours.iter().any(|ours| name.eq_ignore_ascii_case(ours))
    });
    let named: Named =
        named.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    assert_eq!(kept, named);
    assert_eq!(
        again.body,
        body.map_or(BodyLength::Empty, |length| BodyLength::Known(length as u64))
    );
}

/// A complete body does not depend on the split, and equals the streamed one.
fn bodies(length: BodyLength, bytes: &[u8], seed: u8) {
    let whole = collected(length, &[bytes]);
    assert_eq!(whole, collected(length, &pieces(bytes, seed)), "{length:?}");
    let streamed = streamed(length, &pieces(bytes, seed));
    match (whole, streamed) {
        (Ok(Some((body, rest))), Ok((data, Some(after)))) => {
            assert!(body.len() <= LIMIT);
            assert_eq!((body, rest), (data, after));
        }
        (Ok(None), Ok((_, None))) => {}
        (Err(BodyError::TooLarge), streamed) => {
            assert!(streamed.is_err() || length != BodyLength::Empty);
        }
        (Err(error), Err(other)) => assert_eq!(error, other),
        (whole, streamed) => panic!("{length:?}: {whole:?}, {streamed:?}"),
    }
}

fn collected(length: BodyLength, pieces: &[&[u8]]) -> Result<Option<(Bytes, Bytes)>, BodyError> {
    let mut reader = BodyReader::new(length, LIMIT)?;
    let mut buffer = BytesMut::new();
    // A body can be complete before any byte has arrived.
    for at in 0..=pieces.len() {
        if let Some(body) = reader.read(&mut buffer)? {
            pieces[at..].iter().for_each(|piece| buffer.extend_from_slice(piece));
            return Ok(Some((body, buffer.freeze())));
        }
        buffer.extend_from_slice(pieces.get(at).copied().unwrap_or_default());
    }
    match reader.at_eof(&mut buffer) {
        Ok(body) => {
            assert_eq!(length, BodyLength::UntilClose);
            Ok(Some((body, Bytes::new())))
        }
        Err(BodyError::CutShort) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All data, and the bytes after the body if it is complete.
fn streamed(length: BodyLength, pieces: &[&[u8]]) -> Result<(Bytes, Option<Bytes>), BodyError> {
    let mut stream = BodyStream::new(length);
    let (mut buffer, mut data) = (BytesMut::new(), Vec::new());
    for at in 0..=pieces.len() {
        loop {
            match stream.next(&mut buffer)? {
                Piece::Data(piece) => {
                    assert!(!piece.is_empty());
                    data.extend_from_slice(&piece);
                }
                Piece::NeedMore => break,
                Piece::End => {
                    assert_eq!(stream.at_eof(), Ok(()));
                    pieces[at..].iter().for_each(|piece| buffer.extend_from_slice(piece));
                    return Ok((data.into(), Some(buffer.freeze())));
                }
            }
        }
        buffer.extend_from_slice(pieces.get(at).copied().unwrap_or_default());
    }
    match stream.at_eof() {
        Ok(()) => {
            assert_eq!(length, BodyLength::UntilClose);
            Ok((data.into(), Some(Bytes::new())))
        }
        Err(error) => {
            assert_eq!(error, BodyError::CutShort);
            Ok((data.into(), None))
        }
    }
}

fn in_chunks(pieces: &[&[u8]], data: &[u8]) {
    let mut out = Vec::new();
    pieces.iter().for_each(|piece| http::write_chunk(&mut out, piece));
    http::write_last_chunk(&mut out);
    out.extend_from_slice(b"next");
    let (body, rest) = streamed(BodyLength::Chunked, &[&out]).expect("written chunks can be read");
    assert_eq!((&body[..], rest.as_deref()), (data, Some(&b"next"[..])));
}

/// Any text at any position of a head is rejected, or is a single field with this value.
fn injection(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split('|');
    let mut part = |or: &'static str| parts.next().map_or(or.to_string(), str::to_string);
    let (name, value, target, host) = (part("x"), part("y"), part("/"), part("h"));
    let limits = HeadLimits { bytes: 1 << 20, fields: 12 };
    let named = [(&name[..], &value[..])];

    let mut out = Vec::new();
    match http::write_request(&mut out, "GET", &target, &host, &named, None) {
        Err(_) => assert!(out.is_empty()),
        Ok(()) => match http::read_request(&mut BytesMut::from(&out[..]), &limits) {
            Ok(Some(head)) => {
                assert_eq!(self::target(&head), target);
                assert_eq!(head.host, host.to_ascii_lowercase());
                assert_eq!(
                    fields(&head.headers)[1..],
                    [(name.clone(), value.clone().into_bytes())]
                );
            }
            // Well-formed, but not supported.
            Err(HeadError::UnknownExpectation) => assert!(name.eq_ignore_ascii_case("expect")),
            read => panic!("{read:?}"),
        },
    }

    let mut out = Vec::new();
    match http::write_response(&mut out, 200, &named, ResponseBody::Length(3), true) {
        Err(_) => assert!(out.is_empty()),
        Ok(()) => {
            let head = http::read_response(&mut BytesMut::from(&out[..]), &limits);
            let head = head.unwrap().unwrap();
            assert_eq!(head.body, BodyLength::Known(3));
            assert_eq!(fields(&head.headers)[..1], [(name, value.into_bytes())]);
            assert_eq!(fields(&head.headers).len(), 2);
        }
    }
}
