//! Large messages are changed and decoded without a copy, and read as small ones do.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use toolward_wire::line::LineDecoder;
use toolward_wire::sse::SseDecoder;
use toolward_wire::{Id, Message, Sender};

fn answer(length: usize) -> Bytes {
    let text = "x".repeat(length);
    format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{text}","resultType":"complete"}}}}"#)
        .into()
}

#[test]
fn an_edit_in_pieces_is_the_edit_as_a_whole() {
    for length in [0, 100, 16 << 10, 1 << 20] {
        let body = answer(length);
        let message = Message::parse(body.clone(), body.len(), Sender::Server).unwrap();
        let edit = |which: usize| match which {
            0 => message.edit().id(&Id::text("a")),
            1 => message.edit().id(&Id::number(12345)).remove_result("resultType"),
            _ => message.edit().set_result("ttlMs", &b"1"[..]).set_result("resultType", &b"2"[..]),
        };
        for which in 0..3 {
            let pieces = edit(which).finish_shared();
            assert_eq!(pieces.concat(), edit(which).finish(), "{length}");
            let within = body.as_ptr_range();
            assert_eq!(within.contains(&pieces[1].as_ptr()), length >= 16 << 10, "{length}");
        }
    }
}

#[test]
fn a_long_event_is_the_same_however_it_arrives() {
    let long = "y".repeat(100 << 10);
    let stream = format!(
        ": hello\ndata: {long}\nid: 1\n\ndata: {long}\r\ndata: {long}\r\n\r\ndata: a\ndata: {long}\n\n\
         event: {long}\ndata: z\n\n:{long}\ndata: last\n\n"
    );
    let expected =
        [long.clone(), format!("{long}\n{long}"), format!("a\n{long}"), "z".into(), "last".into()];
    for step in [1000, 4096, 70_000, stream.len()] {
        let mut decoder = SseDecoder::new(1 << 20);
        let mut seen = Vec::new();
        for part in stream.as_bytes().chunks(step) {
            decoder.push(part);
            while let Some(event) = decoder.next_event() {
                seen.push(String::from_utf8(event.unwrap().data.to_vec()).unwrap());
            }
        }
        assert_eq!(seen, expected, "in steps of {step}");
        assert_eq!(decoder.held(), 0);
    }
}

#[test]
fn a_long_line_leaves_no_large_buffer() {
    let mut lines = LineDecoder::new(64 << 20);
    lines.push(&vec![b'x'; 8 << 20]);
    lines.push(b"\nnext");
    assert_eq!(lines.next_line().unwrap().unwrap().len(), 8 << 20);
    assert_eq!(lines.unfinished(), b"next");
    assert!(lines.buffer().capacity() < 64 << 10);
    lines.push(b"\n");
    assert_eq!(lines.next_line().unwrap().unwrap(), &b"next"[..]);
}
