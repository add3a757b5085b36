//! A minimal HTTP/1.1 parser: messages with `Content-Length`, and chunked ones for event streams.
//!
//! It is not strict. Only the echo server, the load generator and the gateway talk to each other
//! here.

use std::io::{self, ErrorKind};

use bytes::{Buf, BytesMut};
use memchr::{memchr, memmem};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum length of a head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Minimum free capacity of the buffer before a read.
const MIN_READ_BYTES: usize = 16 << 10;

/// A request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The first line.
    pub line: &'a [u8],
    fields: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Header names as received, with their values.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        fields(self.fields)
    }

    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v)
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        std::str::from_utf8(self.line.get(9..12)?).ok()?.parse().ok()
    }

    /// Whether the sender closes the connection after this message.
    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close"))
    }
}

/// One side of a connection, with a read buffer.
pub struct Connection<S> {
    stream: S,
    buffer: BytesMut,
    /// The length of the message that was returned last.
    used: usize,
    /// The decoded body of a chunked message.
    joined: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub fn new(stream: S) -> Connection<S> {
        let buffer = BytesMut::with_capacity(MIN_READ_BYTES);
        Connection { stream, buffer, used: 0, joined: Vec::new() }
    }

    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(message).await
    }

    /// The next message. `None` if the peer closed the connection between two messages.
    pub async fn receive(&mut self) -> io::Result<Option<Message<'_>>> {
        self.buffer.advance(self.used);
        self.used = 0;
        let mut needed = 1;
        loop {
            if self.buffer.len() >= needed {
                match frame(&self.buffer)? {
                    Frame::More(total) => needed = total,
                    Frame::Whole(layout) => {
                        self.used = layout.total;
                        return Ok(Some(layout.message(&self.buffer, &mut self.joined)));
                    }
                }
            }
            self.buffer.reserve(MIN_READ_BYTES.max(needed - self.buffer.len()));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

/// The result of looking for a message in the bytes read so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// The message is incomplete. Look again when this many bytes are available.
    More(usize),
    Whole(Layout),
}

/// The offsets of the parts of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    line: usize,
    head: usize,
    chunked: bool,
    pub total: usize,
}

impl Layout {
    /// The message. A chunked body is decoded into `joined`.
    pub fn message<'a>(&self, bytes: &'a [u8], joined: &'a mut Vec<u8>) -> Message<'a> {
        let mut body = &bytes[self.head..self.total];
        if self.chunked {
            joined.clear();
            for_each_chunk(body, |chunk| joined.extend_from_slice(chunk)).unwrap_or_default();
            body = joined;
        }
        Message { line: &bytes[..self.line], fields: &bytes[self.line + 2..self.head - 2], body }
    }
}

/// Looks for a complete message at the start of `bytes`.
pub fn frame(bytes: &[u8]) -> io::Result<Frame> {
    let Some(blank) = memmem::find(bytes, b"\r\n\r\n") else {
        return match bytes.len() > MAX_HEAD_BYTES {
            true => Err(bad("the head is too long")),
            false => Ok(Frame::More(bytes.len() + 1)),
        };
    };
    let head = blank + 4;
    let line = memmem::find(bytes, b"\r\n").unwrap_or(blank);
    let mut length = None;
    let mut chunked = false;
    for (name, value) in fields(&bytes[line + 2..head - 2]) {
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let number: usize =
                    number.ok_or_else(|| bad("`Content-Length` is not a number"))?;
                length = Some(number);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("`Transfer-Encoding` is not `chunked`"));
                }
                chunked = true;
            }
            _ => {}
        }
    }
    let total = match (length, chunked) {
        (Some(_), true) => return Err(bad("both `Content-Length` and `Transfer-Encoding`")),
        (None, true) => match for_each_chunk(&bytes[head..], |_| {})? {
            Some(end) => head + end,
            None => return Ok(Frame::More(bytes.len() + 1)),
        },
        (length, false) => head + length.unwrap_or(0),
    };
    Ok(match total > bytes.len() {
        true => Frame::More(total),
        false => Frame::Whole(Layout { line, head, chunked, total }),
    })
}

/// Calls `chunk` for each chunk. Returns the offset after the last one, or `None` if it is
/// incomplete.
fn for_each_chunk(bytes: &[u8], mut chunk: impl FnMut(&[u8])) -> io::Result<Option<usize>> {
    let mut at = 0;
    loop {
        let Some(end) = bytes.get(at..).and_then(|rest| memmem::find(rest, b"\r\n")) else {
            return Ok(None);
        };
        let size = bytes[at..at + end].split(|byte| *byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(size).ok();
        let size = size.and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let size = size.ok_or_else(|| bad("the size of a chunk is not a number"))?;
        let start = at + end + 2;
        let after = start.saturating_add(size);
        match bytes.get(after..after.saturating_add(2)) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(bad("a chunk is longer than its declared size")),
        }
        if size == 0 {
            return Ok(Some(after + 2));
        }
        chunk(&bytes[start..after]);
        at = after + 2;
    }
}

fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest)?;
        let line = rest[..end].trim_ascii_end();
        rest = &rest[end + 1..];
        let colon = memchr(b':', line).unwrap_or(line.len());
        Some((&line[..colon], line.get(colon + 1..).unwrap_or_default().trim_ascii()))
    })
}

fn bad(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &[u8] =
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nX-Empty:\r\ncontent-LENGTH:  5\r\n\r\nhello";
    const STREAM: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
        7\r\ndata: {\r\n4;x=y\r\n}\n\r\n\r\n0\r\n\r\n";

    fn whole(bytes: &[u8]) -> Layout {
        match frame(bytes).unwrap() {
            Frame::Whole(layout) => layout,
            more => panic!("{more:?}"),
        }
    }

    #[test]
    fn a_message_has_a_line_fields_and_a_body() {
        let mut joined = Vec::new();
        let layout = whole(POST);
        let message = layout.message(POST, &mut joined);
        assert_eq!(message.line, b"POST /mcp HTTP/1.1");
        assert_eq!(message.body, b"hello");
        assert_eq!(message.field("HOST"), Some(&b"a"[..]));
        assert_eq!(message.field("x-empty"), Some(&b""[..]));
        assert_eq!(message.field("nothing"), None);
        assert_eq!(message.fields().count(), 3);
    }

    #[test]
    fn chunks_are_joined() {
        let mut joined = Vec::new();
        let layout = whole(STREAM);
        let message = layout.message(STREAM, &mut joined);
        assert_eq!(message.body, b"data: {}\n\r\n");
        assert_eq!(message.status(), Some(200));
        assert!(message.closes());
    }

    #[test]
    fn an_incomplete_message_is_not_returned() {
        for message in [POST, STREAM] {
            for length in 0..message.len() {
                match frame(&message[..length]).unwrap() {
                    Frame::More(needed) => assert!(length < needed && needed <= message.len()),
                    whole => panic!("{length}: {whole:?}"),
                }
            }
        }
    }

    #[test]
    fn bytes_after_a_message_stay_in_the_buffer() {
        for message in [POST, STREAM] {
            let twice = [message, message].concat();
            assert_eq!(whole(&twice).total, message.len());
        }
        let empty = b"HTTP/1.1 202 Accepted\r\n\r\nHTTP/1.1";
        assert_eq!(whole(empty).total, 25);
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        for fields in [
            "Content-Length: x",
            "Content-Length: -1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            assert!(frame(text.as_bytes()).is_err(), "{fields}");
        }
        for chunks in ["x\r\n", "2\r\nabc\r\n", "ffffffffffffffffff\r\n"] {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert!(frame(text.as_bytes()).is_err(), "{chunks}");
        }
        assert!(frame(&vec![b'a'; MAX_HEAD_BYTES + 1]).is_err());
    }

    #[tokio::test]
    async fn messages_do_not_depend_on_how_bytes_arrive() {
        for piece in [1, 7, 1000] {
            let (near, mut far) = tokio::io::duplex(64);
            let sender = tokio::spawn(async move {
                let all = [POST, STREAM, POST].concat();
                for piece in all.chunks(piece) {
                    far.write_all(piece).await.unwrap();
                }
            });
            let mut connection = Connection::new(near);
            for body in [&b"hello"[..], b"data: {}\n\r\n", b"hello"] {
                assert_eq!(connection.receive().await.unwrap().unwrap().body, body);
            }
            assert_eq!(connection.receive().await.unwrap(), None);
            sender.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_connection_closed_inside_a_message_is_an_error() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(&POST[..20]).await.unwrap();
        drop(far);
        assert!(Connection::new(near).receive().await.is_err());
    }
}
