//! What processes print: answers, and everything else.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;

use super::answer::LONGEST;

/// Reads everything that is there, at most about `most`, and waits only for the first of it. False:
/// nothing more will come.
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

/// How much a process has printed beside its answers since the last of them.
#[derive(Default)]
pub(super) struct Printed {
    bytes: AtomicUsize,
    over: Notify,
}

impl Printed {
    /// The same stream, counted.
    pub(super) fn count<R>(self: Arc<Self>, stream: R) -> Counted<R> {
        Counted { stream, printed: self }
    }

    pub(super) fn forget(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Waits until it is more than an answer may be.
    pub(super) async fn too_much(&self) {
        while self.bytes.load(Ordering::Relaxed) <= LONGEST {
            self.over.notified().await;
        }
    }
}

pub(super) struct Counted<R> {
    stream: R,
    printed: Arc<Printed>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let read = into.filled().len() - before;
        let printed = self.printed.bytes.fetch_add(read, Ordering::Relaxed) + read;
        if printed > LONGEST {
            self.printed.over.notify_one();
        }
        Poll::Ready(Ok(()))
    }
}
