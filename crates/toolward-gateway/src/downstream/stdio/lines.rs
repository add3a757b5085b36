//! Lines from and to a stdio client, charged to its account while they arrive and until they are written.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use toolward_wire::Id;
use toolward_wire::line::{self, LineDecoder};

use crate::budget::{Account, Reservation};
use crate::responses::{Body, Outbound};

/// A line of this length is always read. Longer messages are written one by one.
const SHORT: usize = 64 << 10;
/// Memory reserved for the next read of a long line.
const MAX_READ: usize = 32 << 10;

/// Splits a client's input into lines.
pub(super) struct IncomingLines {
    lines: LineDecoder,
    limit: usize,
    account: Arc<Account>,
    /// The memory of the unfinished line, once it is long.
    room: Reservation,
    /// The line is being discarded, because its memory could not be reserved.
    is_refused: bool,
}

/// One line of a client.
pub(super) enum IncomingLine {
    /// With its memory, if it could be reserved.
    Whole(Bytes, Option<Reservation>),
    /// A line above the limit, and the id of its request.
    TooLong(Option<Id>),
    /// A line that was discarded for lack of memory, and the id of its request.
    NoRoom(Option<Id>),
}

impl IncomingLines {
    pub(super) fn new(limit: usize, account: Arc<Account>) -> IncomingLines {
        let lines = LineDecoder::reporting_overlong(limit);
        let room = account.reserve_nothing();
        IncomingLines { lines, limit, account, room, is_refused: false }
    }

    /// The next line that has arrived.
    pub(super) fn next(&mut self) -> Option<IncomingLine> {
        let line = self.lines.next_line()?;
        let room = std::mem::replace(&mut self.room, self.account.reserve_nothing());
        Some(match line {
            Ok(line) => {
                room.shrink_to(line.len());
                let fits = room.try_grow_to(line.len());
                IncomingLine::Whole(line, fits.then_some(room))
            }
            Err(_) => {
                self.lines.set_limit(self.limit);
                let id = self.lines.overlong().and_then(|line| line.request_id());
                match std::mem::take(&mut self.is_refused) {
                    true => IncomingLine::NoRoom(id),
                    false => IncomingLine::TooLong(id),
                }
            }
        })
    }

    /// The buffer for the next read. A long line that does not fit into the memory limit is discarded: it
    /// has not been processed, so it can be rejected.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        let length = self.lines.unfinished().len();
        if length > SHORT && !self.is_refused && !self.room.try_grow_to(length + MAX_READ) {
            self.is_refused = true;
            self.lines.set_limit(SHORT);
            self.room.shrink_to(0);
        }
        self.lines.buffer()
    }
}

/// Writes messages, one per line. Queued short messages are written together; a long one is written
/// without copying it.
pub(in crate::downstream) async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Outbound>,
) {
    let mut buffer = Vec::new();
    while let Some(first) = messages.recv().await {
        let (mut next, mut written) = (Some(first), Vec::new());
        while let Some(Outbound { body, room }) = next.take() {
            // Reserved until the bytes are written.
            written.push(room);
            if body.len() > SHORT && !has_newline(&body) {
                let [first, middle, last] = &body.pieces;
                for piece in [&buffer[..], first, middle, last, b"\n"] {
                    if output.write_all(piece).await.is_err() {
                        return;
                    }
                }
                buffer.clear();
                break;
            }
            line::encode(&body.whole(), &mut buffer);
            if buffer.len() <= SHORT {
                next = messages.try_recv().ok();
            }
        }
        if output.write_all(&buffer).await.is_err() || output.flush().await.is_err() {
            return;
        }
        buffer.clear();
        buffer.shrink_to(2 * SHORT);
    }
}

fn has_newline(body: &Body) -> bool {
    body.pieces.iter().any(|piece| memchr::memchr2(b'\n', b'\r', piece).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn push(lines: &mut IncomingLines, bytes: &[u8]) {
        for part in bytes.chunks(MAX_READ) {
            lines.buffer().extend_from_slice(part);
        }
    }

    fn request(id: u32, bytes: usize) -> Vec<u8> {
        let long = "x".repeat(bytes);
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\",\"params\":{{\"x\":\"{long}\"}}}}\n"
        )
        .into()
    }

    #[test]
    fn an_unfinished_line_is_charged_and_refused_without_room() {
        let budget = Budget::new(1 << 20);
        let account = budget.sole_account();
        let mut lines = IncomingLines::new(64 << 20, account.clone());
        let whole = request(1, 700 << 10);
        push(&mut lines, &whole[..600 << 10]);
        assert!(lines.next().is_none());
        lines.buffer();
        assert!(budget.held() >= 600 << 10, "{}", budget.held());
        push(&mut lines, &whole[600 << 10..]);
        let Some(IncomingLine::Whole(line, Some(room))) = lines.next() else { panic!() };
        assert_eq!(
            (line.len(), room.bytes(), budget.held()),
            (whole.len() - 1, line.len(), line.len())
        );
        // While the first is held, a second one does not fit.
        for part in request(2, 700 << 10).chunks(MAX_READ) {
            push(&mut lines, part);
            if let Some(line) = lines.next() {
                assert!(matches!(line, IncomingLine::NoRoom(Some(id)) if id == Id::number(2)));
            }
        }
        assert_eq!(budget.held(), line.len());
        drop(room);
        push(&mut lines, &request(3, 700 << 10));
        assert!(matches!(lines.next(), Some(IncomingLine::Whole(_, Some(_)))));
    }

    #[tokio::test]
    async fn messages_are_charged_until_they_are_written() {
        let budget = Budget::new(1 << 20);
        let account = budget.sole_account();
        let (output, mut client) = tokio::io::duplex(1024);
        let (out, messages) = mpsc::channel(8);
        let writer = tokio::spawn(write_lines(output, messages));
        let long = Bytes::from(vec![b'x'; 2 * SHORT]);
        let broken = Bytes::from(vec![b'\n'; 2 * SHORT]);
        for body in [Bytes::from_static(b"short"), long.clone(), broken, "short".into()] {
            let room = account.try_reserve(body.len()).map(Arc::new);
            out.send(Outbound { body: body.into(), room }).await.unwrap();
        }
        tokio::task::yield_now().await;
        assert!(budget.held() >= 4 * SHORT, "{}", budget.held());
        drop(out);
        let mut read = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut read).await.unwrap();
        writer.await.unwrap();
        let spaces = vec![b' '; 2 * SHORT];
        assert!(read == [b"short", &long[..], &spaces, b"short", b""].join(&b'\n'));
        assert_eq!(budget.held(), 0);
    }
}
