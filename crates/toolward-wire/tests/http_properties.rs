//! Properties of HTTP parsing: results do not depend on how bytes arrive, serialized heads can be
//! parsed, and another parser agrees.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::BytesMut;
use proptest::prelude::*;
use toolward_wire::http::{
    self, BodyLength, BodyReader, BodyStream, HeadLimits, Method, Piece, ResponseBody,
};

/// Generates nearly valid heads from valid and invalid parts.
fn head() -> impl Strategy<Value = Vec<u8>> {
    const LINES: &[&str] = &[
        "GET / HTTP/1.1",
        "POST /mcp?x=1 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "DELETE http://a:8/x HTTP/1.0",
        "PATCH /{}|^ HTTP/1.1",
        "GET /  HTTP/1.1",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 204",
        "HTTP/1.1 100 Continue",
        "HTTP/1.0 500 \u{e9}",
    ];
    const FIELDS: &[&str] = &[
        "Host: a:8",
        "host:A:8",
        "Content-Length: 3",
        "content-length:\t3 ",
        "Content-Length: +3",
        "Transfer-Encoding: chunked",
        "transfer-encoding : chunked",
        "Connection: close",
        "Accept: */*, text/event-stream",
        "Mcp-Param-X: \u{e9}",
        "X: y",
        " folded",
        "nothing",
        "Expect: 100-continue",
    ];
    let end =
        || prop_oneof![40 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("\0\r\n")];
    let line = (prop::sample::select(LINES), end());
    let field = (prop::sample::select(FIELDS), end());
    let byte = prop::option::weighted(0.1, (any::<prop::sample::Index>(), any::<u8>()));
    (line, prop::collection::vec(field, 0..6), end(), byte).prop_map(|(line, fields, end, byte)| {
        let mut head = [line.0, line.1].concat();
        // Most heads should reach the last rule.
        head.push_str(if fields.len() % 3 == 0 { "" } else { "Host: a:8\r\n" });
        fields.iter().for_each(|(field, end)| head.extend([*field, *end]));
        head.push_str(end);
        let mut head = head.into_bytes();
        if let Some((at, byte)) = byte {
            let at = at.index(head.len());
            head[at] = byte;
        }
        head
    })
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..8)
}

fn pieces<'b>(bytes: &'b [u8], cuts: &[prop::sample::Index]) -> Vec<&'b [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// The result of a read as text, and the remaining bytes.
fn outcome<T, E>(
    pieces: &[&[u8]],
    read: fn(&mut BytesMut, &HeadLimits) -> Result<Option<T>, E>,
    say: fn(T) -> String,
    wrong: fn(E) -> String,
) -> (String, Option<Vec<u8>>) {
    let limits = HeadLimits { bytes: 150, fields: 4 };
    let mut buffer = BytesMut::new();
    for (at, piece) in pieces.iter().enumerate() {
        buffer.extend_from_slice(piece);
        match read(&mut buffer, &limits) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let left = [&buffer[..], &pieces[at + 1..].concat()].concat();
                return (say(head), Some(left));
            }
            Err(problem) => return (wrong(problem), None),
        }
    }
    ("more".into(), Some(buffer.to_vec()))
}

fn fields(headers: &http::Headers) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_vec())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn heads_do_not_depend_on_how_they_arrive(head in head(), after in "[a-z]{0,4}", cuts in cuts()) {
        let bytes = [&head[..], after.as_bytes()].concat();
        let pieces = pieces(&bytes, &cuts);
        let wrong = |problem: http::HeadError| format!("{problem:?}");
        let say = |head: http::RequestHead| format!("{head:?} {:?}", fields(&head.headers));
        prop_assert_eq!(
            outcome(&pieces, http::read_request, say, wrong),
            outcome(&[&bytes], http::read_request, say, wrong)
        );
        let say = |head: http::ResponseHead| format!("{head:?} {:?}", fields(&head.headers));
        prop_assert_eq!(
            outcome(&pieces, http::read_response, say, wrong),
            outcome(&[&bytes], http::read_response, say, wrong)
        );
    }

    #[test]
    fn another_parser_reads_the_same_request(head in head()) {
        let mut buffer = BytesMut::from(&head[..]);
        let Ok(Some(ours)) = http::read_request(&mut buffer, &HeadLimits::default()) else {
            return Ok(());
        };
        let mut slots = [httparse::EMPTY_HEADER; 100];
        let mut theirs = httparse::Request::new(&mut slots);
        let length = theirs.parse(&head).unwrap();
        prop_assert_eq!(length, httparse::Status::Complete(head.len() - buffer.len()));
        let method = match theirs.method.unwrap() {
            "GET" => Method::Get,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "HEAD" => Method::Head,
            _ => Method::Other,
        };
        prop_assert_eq!(ours.method, method);
        prop_assert_eq!(ours.old, theirs.version == Some(0));
        let target = match &ours.query {
            Some(query) => format!("{}?{query}", ours.path),
            None => ours.path.clone(),
        };
        prop_assert!(theirs.path.unwrap().ends_with(&target));
        let expected: Vec<_> =
            theirs.headers.iter().map(|field| (field.name.to_string(), field.value.to_vec())).collect();
        prop_assert_eq!(fields(&ours.headers), expected);
    }

    #[test]
    fn another_parser_reads_the_same_response(head in head()) {
        let mut buffer = BytesMut::from(&head[..]);
        let Ok(Some(ours)) = http::read_response(&mut buffer, &HeadLimits::default()) else {
            return Ok(());
        };
        let mut slots = [httparse::EMPTY_HEADER; 100];
        let mut theirs = httparse::Response::new(&mut slots);
        let length = theirs.parse(&head).unwrap();
        prop_assert_eq!(length, httparse::Status::Complete(head.len() - buffer.len()));
        prop_assert_eq!(Some(ours.status), theirs.code);
        let expected: Vec<_> =
            theirs.headers.iter().map(|field| (field.name.to_string(), field.value.to_vec())).collect();
        prop_assert_eq!(fields(&ours.headers), expected);
    }

    #[test]
    fn bodies_do_not_depend_on_how_they_arrive(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        wrong in prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        limit in 0usize..160,
        cuts in cuts(),
    ) {
        let mut bytes = Vec::new();
        chunks.iter().for_each(|chunk| http::write_chunk(&mut bytes, chunk));
        http::write_last_chunk(&mut bytes);
        bytes.extend_from_slice(b"rest");
        let said = chunks.concat();
        if let Some((at, byte)) = wrong {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let pieces = pieces(&bytes, &cuts);
        let read = |pieces: &[&[u8]]| {
            let mut reader = BodyReader::new(BodyLength::Chunked, limit).unwrap();
            let mut buffer = BytesMut::new();
            for (at, piece) in pieces.iter().enumerate() {
                buffer.extend_from_slice(piece);
                match reader.read(&mut buffer) {
                    Ok(None) => {}
                    Ok(Some(body)) => return Ok(Some((body, [&buffer[..], &pieces[at + 1..].concat()].concat()))),
                    Err(problem) => return Err(problem),
                }
            }
            Ok(None)
        };
        let whole = read(&[&bytes]);
        prop_assert_eq!(&read(&pieces), &whole);
        if wrong.is_none() {
            match whole {
                Ok(Some((body, rest))) => {
                    prop_assert!(body.len() <= limit);
                    prop_assert_eq!((&body[..], &rest[..]), (&said[..], &b"rest"[..]));
                }
                Ok(None) => prop_assert!(false, "no end"),
                Err(problem) => prop_assert_eq!((problem, said.len() > limit), (http::BodyError::TooLarge, true)),
            }
        }

        // A stream without a limit returns the same bytes.
        let mut stream = BodyStream::new(BodyLength::Chunked);
        let (mut buffer, mut streamed, mut ended) = (BytesMut::new(), Vec::new(), false);
        'pieces: for piece in &pieces {
            buffer.extend_from_slice(piece);
            loop {
                match stream.next(&mut buffer) {
                    Ok(Piece::Data(data)) => {
                        prop_assert!(!data.is_empty());
                        streamed.extend_from_slice(&data);
                    }
                    Ok(Piece::NeedMore) => break,
                    Ok(Piece::End) => {
                        ended = true;
                        break 'pieces;
                    }
                    Err(_) => break 'pieces,
                }
            }
        }
        if wrong.is_none() {
            prop_assert!(ended);
            prop_assert_eq!(streamed, said);
        }
    }

    #[test]
    fn serialized_requests_can_be_parsed(
        method in prop::sample::select(&["GET", "POST", "DELETE", "PATCH"][..]),
        path in "/[!-~]{0,20}",
        host in "[a-zA-Z0-9.-]{1,12}(:[1-9][0-9]{0,3})?",
        names in prop::collection::vec("[a-z]{1,6}-x", 0..5),
        values in prop::collection::vec("[ -~\t]{0,20}", 5),
        body in prop::option::of(0usize..1000),
    ) {
        let fields_in: Vec<(&str, &str)> =
            names.iter().zip(&values).map(|(name, value)| (&name[..], &value[..])).collect();
        let mut out = Vec::new();
        let written = http::write_request(&mut out, method, &path, &host, &fields_in, body);
        let trimmed = fields_in.iter().all(|(_, value)| value.trim_matches([' ', '\t']) == *value);
        prop_assert_eq!(written.is_ok(), trimmed && !path.contains('#'));
        if written.is_err() {
            prop_assert!(out.is_empty());
            return Ok(());
        }
        let mut buffer = BytesMut::from(&out[..]);
        let read = http::read_request(&mut buffer, &HeadLimits::default()).unwrap().unwrap();
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(read.host, host.to_ascii_lowercase());
        let query = read.query.map(|query| format!("?{query}")).unwrap_or_default();
        prop_assert_eq!(format!("{}{query}", read.path), path);
        let length = body.map_or(BodyLength::Empty, |length| BodyLength::Known(length as u64));
        prop_assert_eq!(read.body, length);
        for (at, (name, value)) in fields_in.iter().enumerate() {
            prop_assert_eq!(read.headers.iter().nth(at + 1), Some((*name, value.as_bytes())));
        }
    }

    #[test]
    fn serialized_responses_can_be_parsed(
        status in 200u16..600,
        value in "[ -~\t]{0,20}",
        body in prop_oneof![
            Just(ResponseBody::Empty),
            (0usize..1000).prop_map(ResponseBody::Length),
            Just(ResponseBody::Chunked),
            Just(ResponseBody::UntilClose),
        ],
        keep_alive: bool,
    ) {
        let mut out = Vec::new();
        let value = value.trim_matches([' ', '\t']);
        http::write_response(&mut out, status, &[("X-Y", value)], body, keep_alive).unwrap();
        let mut buffer = BytesMut::from(&out[..]);
        let read = http::read_response(&mut buffer, &HeadLimits::default()).unwrap().unwrap();
        prop_assert!(buffer.is_empty());
        prop_assert_eq!((read.status, read.headers.get("x-y")), (status, Some(value)));
        let expected = match body {
            _ if matches!(status, 204 | 304) => BodyLength::Empty,
            ResponseBody::Empty => BodyLength::Known(0),
            ResponseBody::Length(length) => BodyLength::Known(length as u64),
            ResponseBody::Chunked => BodyLength::Chunked,
            ResponseBody::UntilClose => BodyLength::UntilClose,
        };
        prop_assert_eq!(read.body, expected);
        prop_assert_eq!(read.keep_alive, keep_alive && body != ResponseBody::UntilClose);
    }
}
