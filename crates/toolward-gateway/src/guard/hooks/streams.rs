//! The output streams of hook processes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;

use super::answer::MAX_ANSWER_BYTES;

/// Reads all available output, up to about `most` bytes, and waits only for the first bytes. False at the
/// end of the stream.
pub(super) async fn read_all(
    from: &mut (impl AsyncRead + Unpin),
    into: &mut BytesMut,
    most: usize,
) -> bool {
    let mut read_some = false;
    poll_fn(|context| {
        loop {
            if into.len() >= most {
                return Poll::Ready(true);
            }
            let mut part = [0; 8 << 10];
            let mut part = ReadBuf::new(&mut part);
            match Pin::new(&mut *from).poll_read(context, &mut part) {
                Poll::Ready(Ok(())) if !part.filled().is_empty() => {
                    into.extend_from_slice(part.filled());
                    read_some = true;
                }
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending if read_some => return Poll::Ready(true),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// Counts the bytes that a process has printed besides its answers, since the last answer.
#[derive(Default)]
pub(super) struct PrintedBytes {
    bytes: AtomicUsize,
    over: Notify,
}

impl PrintedBytes {
    /// Wraps a stream so that its bytes are counted.
    pub(super) fn count<R>(self: Arc<Self>, stream: R) -> CountedStream<R> {
        CountedStream { stream, printed: self }
    }

    pub(super) fn forget(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Resolves when the count exceeds the maximum size of an answer.
    pub(super) async fn too_much(&self) {
        while self.bytes.load(Ordering::Relaxed) <= MAX_ANSWER_BYTES {
            self.over.notified().await;
        }
    }
}

pub(super) struct CountedStream<R> {
    stream: R,
    printed: Arc<PrintedBytes>,
}

impl<R: AsyncRead + Unpin> AsyncRead for CountedStream<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let read = into.filled().len() - before;
        let printed = self.printed.bytes.fetch_add(read, Ordering::Relaxed) + read;
        if printed > MAX_ANSWER_BYTES {
            self.printed.over.notify_one();
        }
        Poll::Ready(Ok(()))
    }
}
