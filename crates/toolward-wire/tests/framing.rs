//! Edge cases of line and event framing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use toolward_wire::line::{self, LineDecoder, LineTooLong};
use toolward_wire::sse::{self, EventTooLarge, SseDecoder, SseEvent};

#[test]
fn a_message_never_becomes_two_lines() {
    let body = b"{\n \"a\": \"x\\ny\",\r\n \"b\": 1\n}\n{\"jsonrpc\":\"2.0\"}";
    let mut out = Vec::new();
    line::encode(body, &mut out);
    assert_eq!(out, b"{  \"a\": \"x\\ny\",   \"b\": 1 } {\"jsonrpc\":\"2.0\"}\n");
}

#[test]
fn an_overlong_line_is_skipped_and_the_next_one_is_read() {
    for step in [1, 3, 100] {
        let mut decoder = LineDecoder::new(8);
        let mut found = Vec::new();
        for piece in b"12345678\n123456789\n1234567890123456789012345\nab\r\n \n\ncd".chunks(step) {
            decoder.push(piece);
            while let Some(line) = decoder.next_line() {
                found.push(line);
            }
            assert!(decoder.pending() <= 8 + step + 2);
        }
        let too_long = Err(LineTooLong { limit: 8 });
        let line = |text: &'static str| Ok(text.into());
        assert_eq!(found, [line("12345678"), too_long.clone(), too_long, line("ab")], "{step}");
        assert_eq!(decoder.pending(), 2);
    }
}

#[test]
fn the_ends_of_an_overlong_line_are_kept() {
    let long = format!("{{\"id\":7,{}\"z\":8}}", "x".repeat(5000));
    let stream = format!("ab\n{long}\r\ncd\n123456789\nef\n");
    for step in [1, 7, 1000, 100_000] {
        let mut decoder = LineDecoder::reporting_overlong(8);
        let mut found = Vec::new();
        for piece in stream.as_bytes().chunks(step) {
            decoder.push(piece);
            while let Some(line) = decoder.next_line() {
                found.push(line.map_err(|_| decoder.overlong().cloned().unwrap()));
            }
            assert!(decoder.pending() <= 8 + step + 2);
        }
        assert_eq!(found.len(), 5, "{step}");
        assert_eq!((&found[0], &found[2]), (&Ok("ab".into()), &Ok("cd".into())));
        let overlong = found[1].as_ref().unwrap_err();
        // A carriage return before the newline may be counted.
        assert!(overlong.length.abs_diff(long.len() as u64) <= 1, "{step}: {}", overlong.length);
        assert!(overlong.start.starts_with(b"{\"id\":7,x") && overlong.start.len() == 128);
        assert!(String::from_utf8_lossy(&overlong.end).trim_end().ends_with("x\"z\":8}"));
        assert_eq!((found[3].as_ref().unwrap_err().length, &found[4]), (9, &Ok("ef".into())));
    }
    // The limit can change while a line is incomplete.
    let mut decoder = LineDecoder::reporting_overlong(8);
    decoder.set_limit(20);
    decoder.push(b"123456789012\n");
    assert_eq!(decoder.next_line().unwrap().unwrap(), &b"123456789012"[..]);
}

fn events(stream: &[u8]) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new(1024);
    decoder.push(stream);
    std::iter::from_fn(|| decoder.next_event()).map(Result::unwrap).collect()
}

#[test]
fn events_are_parsed_as_the_standard_requires() {
    let read = events(b"\xef\xbb\xbfdata: a\ndata:b\n\n: c\n\nevent: endpoint\ndata: /m\n\nid: 7\nretry: 10\ndata:\n\ndata:  x\n\nid:\0\n\ndata: cut");
    assert_eq!(read.len(), 4);
    assert_eq!(&read[0].data[..], b"a\nb");
    assert!(read[0].is_message());
    assert_eq!((read[1].event.as_deref(), read[1].is_message()), (Some("endpoint"), false));
    assert!(read[2].is_primer());
    assert_eq!((read[2].id.as_deref(), read[2].retry), (Some("7"), Some(10)));
    assert_eq!(&read[3].data[..], b" x");
}

#[test]
fn an_event_that_is_too_large_ends_the_stream() {
    for body in ["x".repeat(200), "data: y\n".repeat(40), ": c".repeat(200)] {
        let mut decoder = SseDecoder::new(100);
        decoder.push(format!("data: {body}\n\n").as_bytes());
        assert_eq!(decoder.next_event(), Some(Err(EventTooLarge { limit: 100 })));
        decoder.push(b"data: a\n\n");
        assert_eq!(decoder.next_event(), None);
    }
    let mut decoder = SseDecoder::new(100);
    for _ in 0..100 {
        decoder.push(b":\n\ndata: abc\n\n");
        assert_eq!(&decoder.next_event().unwrap().unwrap().data[..], b"abc");
    }
}

#[test]
fn encoded_messages_can_be_decoded() {
    let mut out = Vec::new();
    sse::encode_primer("e-1", Some(500), &mut out);
    sse::encode_keep_alive(&mut out);
    sse::encode(Some("message"), Some("e-2"), b"{\n\"a\":1}", &mut out);
    let read = events(&out);
    assert_eq!(read.len(), 2);
    assert!(read[0].is_primer() && read[0].retry == Some(500));
    assert_eq!((read[1].id.as_deref(), &read[1].data[..]), (Some("e-2"), &b"{ \"a\":1}"[..]));
}
