//! One event of a stream, encoded, with its reserved memory.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use toolward_wire::sse;

use crate::budget::Reservation;
use crate::notifications::Note;
use crate::responses::{Answer, Body};

/// A longer message is not copied into its event.
const SHORT: usize = 16 << 10;

/// An event in up to five pieces, so that a long message is sent without copying it.
pub struct Frame {
    pieces: [Bytes; 5],
    /// Reserved until the event is written.
    _room: Option<Arc<Reservation>>,
    written: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Frame {
    /// Encodes a message as an event.
    pub(super) fn message(id: Option<&str>, body: Body, room: Option<Arc<Reservation>>) -> Frame {
        let has_newline = |piece: &Bytes| memchr::memchr2(b'\n', b'\r', piece).is_some();
        let pieces = if body.len() <= SHORT || body.pieces.iter().any(has_newline) {
            let body = body.whole();
            let mut out = Vec::with_capacity(body.len() + 128);
            sse::encode(None, id, &body, &mut out);
            [out.into(), Bytes::new(), Bytes::new(), Bytes::new(), Bytes::new()]
        } else {
            // An event with empty data yields the bytes before and after the message.
            let mut head = Vec::with_capacity(128);
            sse::encode(None, id, b"", &mut head);
            let tail = head.split_off(head.len().saturating_sub(2));
            let [first, middle, last] = body.pieces;
            [head.into(), first, middle, last, tail.into()]
        };
        Frame { pieces, _room: room, written: None }
    }

    /// A comment, which clients ignore.
    pub(super) fn keep_alive() -> Frame {
        let mut comment = Vec::new();
        sse::encode_keep_alive(&mut comment);
        Bytes::from(comment).into()
    }

    pub(super) fn note(note: Note) -> Frame {
        Frame::message(None, note.bytes.into(), Some(Arc::new(note.room)))
    }

    pub(super) fn answer(answer: Answer) -> Frame {
        Frame::message(None, answer.body, answer.room)
    }

    /// Sets a callback for when the event is written.
    pub(super) fn when_written(self, written: impl FnOnce() + Send + Sync + 'static) -> Frame {
        Frame { written: Some(Box::new(written)), ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    pub(super) fn pieces(&self) -> &[Bytes; 5] {
        &self.pieces
    }

    /// Called when the event has been written.
    pub(super) fn finish(self) {
        if let Some(written) = self.written {
            written();
        }
    }
}

impl From<Bytes> for Frame {
    fn from(bytes: Bytes) -> Frame {
        let pieces = [bytes, Bytes::new(), Bytes::new(), Bytes::new(), Bytes::new()];
        Frame { pieces, _room: None, written: None }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_makes_the_same_event_without_a_copy() {
        let long = Bytes::from(vec![b'x'; 2 * SHORT]);
        let body = Body { pieces: [Bytes::from_static(b"{"), long.clone(), "}".into()] };
        let mut expected = Vec::new();
        sse::encode(None, Some("7"), &body.clone().whole(), &mut expected);
        let frame = Frame::message(Some("7"), body, None);
        assert_eq!(frame.pieces.concat(), expected);
        assert_eq!(frame.len(), expected.len());
        assert_eq!(frame.pieces[2].as_ptr(), long.as_ptr());
        // A newline would end the event's line.
        let broken = Body::from(Bytes::from(vec![b'\n'; 2 * SHORT]));
        assert!(Frame::message(None, broken, None).pieces[0].len() > 2 * SHORT);
    }
}
