//! Fuzzes server-sent events with any stream, split in any way.
//!
//! The decoder finds the same events as a naive one, and encoded events can be decoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolward_fuzz::wire::{choice, pieces};
use toolward_wire::sse::{self, EventTooLarge, SseDecoder, SseEvent};

// The first byte selects how the stream is split, the second the maximum size of an event.
fuzz_target!(|data: &[u8]| {
    let (seed, data) = choice(data);
    let (limit, data) = choice(data);
    let limited = read(&pieces(data, seed), usize::from(limit));
    assert_eq!(limited, read(&[data], usize::from(limit)));

    let all = read(&pieces(data, seed), usize::MAX);
    assert!(all.iter().all(Result::is_ok));
    let all: Vec<SseEvent> = all.into_iter().flatten().collect();
    assert_eq!(all, naive(data));
    // A limit may end the stream early, but does not change earlier events.
    let fine: Vec<_> = limited.iter().filter_map(|event| event.as_ref().ok()).collect();
    assert!(all.iter().take(fine.len()).eq(fine.iter().copied()));
    let failed = limited.iter().position(Result::is_err);
    assert_eq!(failed.unwrap_or(fine.len()), fine.len(), "events after an error");
    if failed.is_none() {
        assert_eq!(fine.len(), all.len());
    }
    for event in fine {
        assert!(event.data.len() <= usize::from(limit) + 64);
    }
    round_trip(data);
});

fn read(pieces: &[&[u8]], limit: usize) -> Vec<Result<SseEvent, EventTooLarge>> {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(event) = decoder.next_event() {
            events.push(event);
        }
    }
    events
}

/// The algorithm of the standard, step by step, on the whole stream.
fn naive(data: &[u8]) -> Vec<SseEvent> {
    let data = data.strip_prefix("\u{feff}".as_bytes()).unwrap_or(data);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = data.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => lines.push(std::mem::take(&mut line)),
            b'\r' => {
                bytes.next_if(|next| **next == b'\n');
                lines.push(std::mem::take(&mut line));
            }
            _ => line.push(*byte),
        }
    }
    let mut events = Vec::new();
    let mut event = SseEvent::default();
    let mut data: Vec<Vec<u8>> = Vec::new();
    for line in lines {
        if line.is_empty() {
            let mut done = std::mem::take(&mut event);
            done.data = std::mem::take(&mut data).join(&b'\n').into();
            done.event = done.event.filter(|event| !event.is_empty());
            if done != SseEvent::default() {
                events.push(done);
            }
            continue;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8_lossy(value).into_owned();
        match name {
            b"event" => event.event = Some(text),
            b"data" => data.push(value.to_vec()),
            b"id" if !value.contains(&0) => event.id = Some(text),
            b"retry" if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                event.retry = text.parse().ok();
            }
            _ => {}
        }
    }
    events
}

/// Encodes and decodes an event whose type, id and message come from the input.
fn round_trip(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'|');
    let mut text = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned());
    let (event, id, body) = (text(), text(), text().unwrap_or_default());
    let mut out = Vec::new();
    sse::encode_keep_alive(&mut out);
    sse::encode(event.as_deref(), id.as_deref(), body.as_bytes(), &mut out);
    sse::encode_primer(event.as_deref().unwrap_or("i"), Some(7), &mut out);
    let plain = |text: String| text.replace(['\n', '\r', '\0'], "");
    let expected = [
        SseEvent {
            event: event.clone().map(plain).filter(|event| !event.is_empty()),
            data: body.replace(['\n', '\r'], " ").into_bytes().into(),
            id: id.map(plain),
            retry: None,
        },
        SseEvent {
            id: Some(plain(event.unwrap_or("i".into()))),
            retry: Some(7),
            ..SseEvent::default()
        },
    ];
    let expected: Vec<_> =
        expected.into_iter().filter(|event| *event != SseEvent::default()).map(Ok).collect();
    assert_eq!(read(&[&out], usize::MAX), expected);
}
