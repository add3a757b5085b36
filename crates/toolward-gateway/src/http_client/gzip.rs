//! Compressed responses.
//!
//! The gateway requests `identity`, but some servers and proxies compress regardless. Output is
//! produced in small steps, so that a decompression bomb is noticed at the limit.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use toolward_wire::http::Headers;

/// The number of compressed bytes per step. They expand to at most about 1,000 times as many.
const STEP_BYTES: usize = 128;

/// The content coding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
}

impl Coding {
    /// Reads `Content-Encoding`. Any other coding, or more than one, is an error.
    pub(crate) fn of(headers: &Headers) -> io::Result<Coding> {
        let coding = headers.get("content-encoding").map(str::to_ascii_lowercase);
        match (headers.count("content-encoding"), coding.as_deref()) {
            (0, _) | (1, Some("identity" | "")) => Ok(Coding::Identity),
            (1, Some("gzip" | "x-gzip")) => Ok(Coding::Gzip),
            _ => Err(io::Error::other("its response has an unsupported content encoding")),
        }
    }
}

/// A streaming decompressor.
pub(crate) struct Gunzip(MultiGzDecoder<Vec<u8>>);

impl Gunzip {
    pub(crate) fn new() -> Gunzip {
        Gunzip(MultiGzDecoder::new(Vec::new()))
    }

    /// Splits compressed bytes into the pieces that are decompressed one at a time.
    pub(crate) fn steps(compressed: &[u8]) -> impl Iterator<Item = &[u8]> {
        compressed.chunks(STEP_BYTES)
    }

    /// Decompresses one piece.
    pub(crate) fn push(&mut self, compressed: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(compressed).map_err(broken)?;
        // The decoder buffers its output until it is flushed.
        self.0.flush().map_err(broken)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// Checks that the stream is complete, and returns the rest.
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        self.0.try_finish().map_err(broken)?;
        Ok(std::mem::take(self.0.get_mut()))
    }
}

fn broken(_: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its response is not valid gzip")
}

/// Decompresses a whole body of at most `limit` bytes.
pub(crate) fn decompress(body: &[u8], limit: usize) -> io::Result<Bytes> {
    let (mut out, mut gunzip) = (Vec::new(), Gunzip::new());
    for step in Gunzip::steps(body) {
        out.extend_from_slice(&gunzip.push(step)?);
        if out.len() > limit {
            return Err(io::Error::other("its response is too large"));
        }
    }
    out.extend_from_slice(&gunzip.finish()?);
    match out.len() > limit {
        true => Err(io::Error::other("its response is too large")),
        false => Ok(out.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn compressed(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_are_decompressed_up_to_a_limit() {
        let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let packed = compressed(&text);
        assert_eq!(decompress(&packed, text.len()).unwrap(), text);
        assert!(decompress(&packed, text.len() - 1).is_err());
        assert!(decompress(&packed[..packed.len() - 1], text.len()).is_err(), "cut short");
        assert!(decompress(b"no gzip", 100).is_err());
        // A decompression bomb is detected long before its end.
        let bomb = compressed(&vec![0; 64 << 20]);
        assert!(decompress(&bomb, 1 << 20).is_err());
        let mut gunzip = Gunzip::new();
        for step in Gunzip::steps(&bomb) {
            assert!(gunzip.push(step).unwrap().len() <= 1 << 20);
        }
    }
}
