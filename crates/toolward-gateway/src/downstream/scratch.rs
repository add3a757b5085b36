//! Reads without a buffer of one's own: an idle connection or stream holds no memory for input.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

/// The most that is read at once. Most requests are shorter.
const SCRATCH_BYTES: usize = 16 << 10;

thread_local! {
    /// All connections of a thread read into it, one after the other, and copy what arrived.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into());
}

/// Waits for input, and appends at most `most` bytes of it to a buffer. Returns their number, 0 at the end.
pub(super) async fn read<S>(stream: &mut S, buffer: &mut BytesMut, most: usize) -> io::Result<usize>
where
    S: AsyncRead + Unpin,
{
    poll_fn(|context| {
        SCRATCH.with_borrow_mut(|scratch| {
            let end = most.min(scratch.len());
            let mut into = ReadBuf::new(&mut scratch[..end]);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut into))?;
            buffer.extend_from_slice(into.filled());
            Poll::Ready(Ok(into.filled().len()))
        })
    })
    .await
}
