//! Writes lines to a server in a separate task: a server that does not read its input must not keep
//! us from reading its responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use toolward_wire::line;

/// The maximum number of bytes waiting for a server that does not read its input.
const MAX_UNREAD_BYTES: usize = 32 << 20;

pub(in crate::upstream) struct Writer {
    lines: mpsc::UnboundedSender<Bytes>,
    /// Bytes waiting to be written.
    unread: Arc<AtomicUsize>,
    /// The task that writes; it ends when the server closes its input.
    task: Option<JoinHandle<()>>,
}

impl Writer {
    pub(in crate::upstream) fn new(mut stdin: impl AsyncWrite + Unpin + Send + 'static) -> Writer {
        let (lines, mut bodies) = mpsc::unbounded_channel::<Bytes>();
        let unread = Arc::new(AtomicUsize::new(0));
        let waiting = unread.clone();
        let task = tokio::spawn(async move {
            let mut buffer = Vec::new();
            while let Some(body) = bodies.recv().await {
                buffer.clear();
                let mut taken = body.len();
                line::encode(&body, &mut buffer);
                while let Ok(body) = bodies.try_recv() {
                    taken += body.len();
                    line::encode(&body, &mut buffer);
                }
                let written = stdin.write_all(&buffer).await;
                waiting.fetch_sub(taken, Ordering::Relaxed);
                if written.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        });
        Writer { lines, unread, task: Some(task) }
    }

    /// False if too many bytes are waiting already.
    pub(in crate::upstream) fn send(&self, body: Bytes) -> bool {
        let size = body.len();
        if self.unread.fetch_add(size, Ordering::Relaxed) > MAX_UNREAD_BYTES {
            self.unread.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        self.lines.send(body).is_ok()
    }

    /// Sends a line later, unless the server's input is closed by then.
    pub(in crate::upstream) fn reply(&self) -> impl FnOnce(Bytes) + Send + use<> {
        let (lines, unread) = (self.lines.downgrade(), self.unread.clone());
        move |body| {
            if let Some(lines) = lines.upgrade() {
                unread.fetch_add(body.len(), Ordering::Relaxed);
                let _ = lines.send(body);
            }
        }
    }

    /// Resolves when the server has closed its input. Only the first caller's future does.
    pub(in crate::upstream) fn closed(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let task = self.task.take();
        async move {
            match task {
                Some(task) => drop(task.await),
                None => std::future::pending().await,
            }
        }
    }
}
