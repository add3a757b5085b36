//! Fuzzes line framing with any stream, split in any way.
//!
//! The decoder finds the same lines as a naive one, and an encoded message is a single line.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use toolward_fuzz::wire::{choice, pieces};
use toolward_wire::line::{self, LineDecoder, LineTooLong};

// The first byte selects how the stream is split, the second the maximum length of a line.
fuzz_target!(|data: &[u8]| {
    let (seed, data) = choice(data);
    let (limit, data) = choice(data);
    let limit = usize::from(limit);
    let mut decoder = LineDecoder::new(limit);
    let mut found = Vec::new();
    for piece in pieces(data, seed) {
        decoder.push(piece);
        while let Some(line) = decoder.next_line() {
            found.push(line);
        }
        assert!(decoder.pending() <= limit + 1, "bytes of an overlong line are kept");
    }
    assert_eq!(found, naive(data, limit));

    let mut out = Vec::new();
    line::encode(data, &mut out);
    assert_eq!(out.len(), data.len() + 1);
    assert_eq!(memchr(&out), Some(data.len()));
    let mut decoder = LineDecoder::new(usize::MAX);
    decoder.push(&out);
    let blank = data.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    let same = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    let expected: Bytes = data.iter().map(same).collect();
    assert_eq!(decoder.next_line(), (!blank).then_some(Ok(expected)));
    assert_eq!(decoder.next_line(), None);
});

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

fn naive(data: &[u8], limit: usize) -> Vec<Result<Bytes, LineTooLong>> {
    let mut lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let mut found: Vec<_> = lines
        .into_iter()
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| line.len() > limit || line.iter().any(|byte| !b" \t".contains(byte)))
        .map(|line| match line.len() > limit {
            true => Err(LineTooLong { limit }),
            false => Ok(Bytes::copy_from_slice(line)),
        })
        .collect();
    // An unfinished line is overlong once no line end could make it valid.
    if rest.len() > limit + 1 {
        found.push(Err(LineTooLong { limit }));
    }
    found
}
