//! Streams of events that can be taken up again: each has a log, and readers follow it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

/// How long, and how much of, a stream is kept to be read again.
pub(super) const KEPT: Duration = Duration::from_secs(300);
pub(super) const KEPT_BYTES: usize = 1 << 20;
/// Events on their way to a client that does not read.
const WAITING: usize = 16;

/// The messages of one stream, numbered.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<(u64, Instant, Bytes)>,
    next: u64,
    bytes: usize,
    done: bool,
    /// The first event that nobody has been sent.
    unread: u64,
    /// Counts the readers; the newest reads, the others stop.
    reader: u64,
    /// Readers that have not stopped.
    reading: usize,
}

/// A reader, for as long as it reads.
struct Reading(Arc<EventLog>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.inner().reading -= 1;
    }
}

impl EventLog {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, message: Bytes) {
        let mut inner = self.inner();
        let number = inner.next;
        inner.next += 1;
        inner.bytes += message.len();
        inner.events.push_back((number, Instant::now(), message));
        while inner.events.len() > 1 && inner.bytes > KEPT_BYTES {
            inner.drop_oldest();
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Nothing comes after this.
    pub(super) fn finish(&self) {
        self.inner().done = true;
        self.changed.notify_waiters();
    }

    pub(super) fn is_done(&self) -> bool {
        self.inner().done
    }

    /// Whether somebody reads it.
    pub(super) fn is_read(&self) -> bool {
        self.inner().reading > 0
    }

    /// The number of the first event that nobody has been sent.
    pub(super) fn unread(&self) -> u64 {
        self.inner().unread
    }

    /// Forgets what is too old; gives how much is kept, and whether anything can still be read.
    pub(super) fn prune(&self) -> (usize, bool) {
        let mut inner = self.inner();
        while inner.events.front().is_some_and(|(_, since, _)| since.elapsed() > KEPT) {
            inner.drop_oldest();
        }
        (inner.bytes, !inner.done || !inner.events.is_empty())
    }

    /// Reads from a number on, in place of whoever read before. `encode` writes an event with its
    /// number; the first, numbered `from - 1`, is the primer.
    pub(super) fn read(
        self: &Arc<Self>,
        from: u64,
        primer: bool,
        encode: impl Fn(u64, Option<&[u8]>) -> Option<Vec<u8>> + Send + 'static,
    ) -> mpsc::Receiver<Bytes> {
        let (out, events) = mpsc::channel(WAITING);
        let log = self.clone();
        let reader = {
            let mut inner = self.inner();
            inner.reader += 1;
            inner.reading += 1;
            inner.reader
        };
        let reading = Reading(self.clone());
        self.changed.notify_waiters();
        tokio::spawn(async move {
            let _reading = reading;
            if primer && let Some(bytes) = encode(from, None) {
                let _ = out.send(bytes.into()).await;
            }
            let mut next = from;
            loop {
                let changed = log.changed.notified();
                tokio::pin!(changed);
                // Registered before looking, so that nothing is missed.
                changed.as_mut().enable();
                let (event, over) = {
                    let inner = log.inner();
                    if inner.reader != reader {
                        return;
                    }
                    (inner.at(next), inner.done && next >= inner.next)
                };
                match event {
                    Some((number, message)) => {
                        next = number + 1;
                        let Some(bytes) = encode(number + 1, Some(&message)) else { return };
                        if out.send(bytes.into()).await.is_err() {
                            return;
                        }
                        let mut inner = log.inner();
                        inner.unread = inner.unread.max(next);
                    }
                    None if over => return,
                    None => tokio::select! {
                        () = changed => {}
                        () = out.closed() => return,
                    },
                }
            }
        });
        events
    }
}

impl Inner {
    /// The first event that is not before a number.
    fn at(&self, number: u64) -> Option<(u64, Bytes)> {
        let first = self.events.front()?.0;
        let at = usize::try_from(number.saturating_sub(first)).ok()?;
        self.events.get(at).map(|(number, _, message)| (*number, message.clone()))
    }

    fn drop_oldest(&mut self) {
        if let Some((_, _, message)) = self.events.pop_front() {
            self.bytes -= message.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(log: &Arc<EventLog>, from: u64) -> Vec<String> {
        let mut events = log.read(from, false, |number, message| {
            Some(format!("{number}:{}", String::from_utf8_lossy(message?)).into_bytes())
        });
        let mut seen = Vec::new();
        while let Some(event) = events.recv().await {
            seen.push(String::from_utf8_lossy(&event).into_owned());
        }
        seen
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stream_is_read_from_any_point_to_its_end() {
        let log = Arc::new(EventLog::default());
        log.add("a".into());
        let follower = tokio::spawn({
            let log = log.clone();
            async move { read(&log, 0).await }
        });
        tokio::task::yield_now().await;
        log.add("b".into());
        log.finish();
        assert_eq!(follower.await.unwrap(), ["1:a", "2:b"]);
        assert_eq!(read(&log, 1).await, ["2:b"]);
        assert_eq!(read(&log, 9).await, Vec::<String>::new());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_newest_reader_takes_over() {
        let log = Arc::new(EventLog::default());
        let mut old = log.read(0, false, |_, message| message.map(<[u8]>::to_vec));
        tokio::task::yield_now().await;
        let mut new = log.read(0, false, |_, message| message.map(<[u8]>::to_vec));
        assert_eq!(old.recv().await, None);
        log.add("x".into());
        assert_eq!(new.recv().await.unwrap(), "x");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let log = EventLog::default();
        for _ in 0..100 {
            log.add(vec![0; KEPT_BYTES / 10].into());
        }
        assert!(log.prune().0 <= KEPT_BYTES);
        log.finish();
        assert!(log.prune().1);
    }
}
