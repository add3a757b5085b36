//! What goes to a server line by line, written in a task of its own: a server that does not read must
//! not keep its answers from being read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use toolward_wire::line;

/// What may wait for a server that does not read its input.
const MOST_UNREAD: usize = 32 << 20;

pub(in crate::upstream) struct Writer {
    lines: mpsc::UnboundedSender<Bytes>,
    /// Bytes that wait to be written.
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

    /// False where too much waits already.
    pub(in crate::upstream) fn send(&self, body: Bytes) -> bool {
        let size = body.len();
        if self.unread.fetch_add(size, Ordering::Relaxed) > MOST_UNREAD {
            self.unread.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        self.lines.send(body).is_ok()
    }

    /// Resolves when the server has closed its input; for whoever asks first.
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
