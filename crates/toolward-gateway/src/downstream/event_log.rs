//! Resumable event streams: each has a log, and readers follow it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use super::frame::Frame;
use crate::budget::Reservation;
use crate::lock::LockUnpoisoned;
use crate::responses::Body;

/// How long, and how many bytes of, a stream are kept for a replay.
pub(super) const KEPT: Duration = Duration::from_secs(300);
pub(super) const KEPT_BYTES: usize = 1 << 20;
/// Events queued for a client that does not read: one is being written, one is next.
const WAITING: usize = 1;

/// The messages of one stream, numbered.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    inner: Mutex<Inner>,
    changed: Notify,
}

/// A message of a stream.
#[derive(Debug, Clone)]
struct LogEntry {
    number: u64,
    since: Instant,
    body: Body,
    /// Reserved while the message is kept or being written.
    room: Option<Arc<Reservation>>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<LogEntry>,
    next: u64,
    bytes: usize,
    done: bool,
    /// The first event that was not sent to any reader.
    unread: u64,
    /// The number of the newest reader; older ones stop.
    reader: u64,
    /// The number of active readers.
    reading: usize,
    closing: Option<Closing>,
}

/// The readers that end although the stream continues: the client is to poll it.
#[derive(Debug, Clone, Copy)]
struct Closing {
    /// The newest of them.
    reader: u64,
    /// They are sent the events before this one.
    before: u64,
    retry: Duration,
}

/// One item of a reader's stream.
pub(super) enum Entry {
    /// An event without a message, from which the stream can be resumed, after this delay.
    Primer(Option<Duration>),
    Message(Body, Option<Arc<Reservation>>),
}

/// Counts a reader as active until it is dropped.
struct ReaderGuard(Arc<EventLog>);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.0.inner().reading -= 1;
    }
}

impl EventLog {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.locked()
    }

    pub(super) fn add(&self, body: Body, room: Option<Arc<Reservation>>) {
        let mut inner = self.inner();
        let number = inner.next;
        inner.next += 1;
        inner.bytes += body.len();
        inner.events.push_back(LogEntry { number, since: Instant::now(), body, room });
        while inner.events.len() > 1 && inner.bytes > KEPT_BYTES {
            inner.drop_oldest();
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Ends the stream: no further events are added.
    pub(super) fn finish(&self) {
        self.inner().done = true;
        self.changed.notify_waiters();
    }

    /// Ends the reader of the moment after the events so far. The stream continues, and the client has to
    /// resume it after a delay.
    pub(super) fn close_reader(&self, retry: Duration) {
        let mut inner = self.inner();
        inner.closing = Some(Closing { reader: inner.reader, before: inner.next, retry });
        drop(inner);
        self.changed.notify_waiters();
    }

    pub(super) fn is_done(&self) -> bool {
        self.inner().done
    }

    /// Whether a client is reading it.
    pub(super) fn is_read(&self) -> bool {
        self.inner().reading > 0
    }

    /// The number of the first event that was not sent to any reader.
    pub(super) fn unread(&self) -> u64 {
        self.inner().unread
    }

    /// Drops events that are too old. Returns how many bytes are kept, and whether anything can still be
    /// read.
    pub(super) fn prune(&self) -> (usize, bool) {
        let mut inner = self.inner();
        while inner.events.front().is_some_and(|event| event.since.elapsed() > KEPT) {
            inner.drop_oldest();
        }
        (inner.bytes, !inner.done || !inner.events.is_empty())
    }

    /// Called when an event was written to the client. Events too large for a replay are dropped at once,
    /// and so are all events while the agent's memory limit is nearly reached.
    fn written(&self, number: u64) {
        let mut inner = self.inner();
        let Some(at) = inner.events.iter().position(|event| event.number == number) else { return };
        let event = &inner.events[at];
        let tight = event.room.as_ref().is_some_and(|room| room.account().is_tight());
        if event.body.len() > KEPT_BYTES || tight {
            // All earlier events have been written too.
            (0..=at).for_each(|_| inner.drop_oldest());
        }
    }

    /// Reads from an event number on, replacing the previous reader. `encode` turns a number and an entry into
    /// an event; the first one, numbered `from`, is a primer. `over` is called when the last event of a
    /// finished stream is written.
    pub(super) fn read(
        self: &Arc<Self>,
        from: u64,
        primer: bool,
        encode: impl Fn(u64, Entry) -> Option<Frame> + Send + 'static,
        over: impl Fn() + Send + Sync + Clone + 'static,
    ) -> mpsc::Receiver<Frame> {
        let (out, events) = mpsc::channel(WAITING);
        let log = self.clone();
        let reader = {
            let mut inner = self.inner();
            inner.reader += 1;
            inner.reading += 1;
            inner.reader
        };
        let reading = ReaderGuard(self.clone());
        self.changed.notify_waiters();
        tokio::spawn(async move {
            let _reading = reading;
            if primer && let Some(frame) = encode(from, Entry::Primer(None)) {
                let _ = out.send(frame).await;
            }
            let mut next = from;
            loop {
                let changed = log.changed.notified();
                tokio::pin!(changed);
                // Registered before the check, so that no change is missed.
                changed.as_mut().enable();
                let (event, ended, closing) = {
                    let inner = log.inner();
                    if inner.reader != reader {
                        return;
                    }
                    let ended = inner.done && next >= inner.next;
                    (inner.at(next), ended, inner.closing(reader, next).filter(|_| !ended))
                };
                if let Some(retry) = closing {
                    if let Some(frame) = encode(next, Entry::Primer(Some(retry))) {
                        let _ = out.send(frame).await;
                    }
                    return;
                }
                match event {
                    Some(LogEntry { number, body, room, .. }) => {
                        next = number + 1;
                        let message = Entry::Message(body, room);
                        let Some(frame) = encode(number + 1, message) else { return };
                        let (written, over) = (log.clone(), over.clone());
                        let frame = frame.when_written(move || {
                            written.written(number);
                            if written.is_done() {
                                over();
                            }
                        });
                        if out.send(frame).await.is_err() {
                            return;
                        }
                        let mut inner = log.inner();
                        inner.unread = inner.unread.max(next);
                    }
                    None if ended => return,
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
    /// The first event with at least this number.
    fn at(&self, number: u64) -> Option<LogEntry> {
        let first = self.events.front()?.number;
        let at = usize::try_from(number.saturating_sub(first)).ok()?;
        self.events.get(at).cloned()
    }

    /// The delay after which a reader at this position is to reconnect, if its stream is to end here.
    fn closing(&self, reader: u64, next: u64) -> Option<Duration> {
        let closing = self.closing.filter(|it| reader <= it.reader && next >= it.before);
        closing.map(|it| it.retry)
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::budget::Budget;

    fn plain(number: u64, entry: Entry) -> Option<Frame> {
        let text = match entry {
            Entry::Message(body, _) => String::from_utf8_lossy(&body.whole()).into_owned(),
            Entry::Primer(retry) => format!("{retry:?}"),
        };
        Some(Bytes::from(format!("{number}:{text}")).into())
    }

    fn add(log: &EventLog, text: &'static str) {
        log.add(Bytes::from_static(text.as_bytes()).into(), None);
    }

    fn shown(frame: &Frame) -> String {
        String::from_utf8(frame.pieces().concat()).unwrap()
    }

    async fn read(log: &Arc<EventLog>, from: u64) -> Vec<String> {
        all(log.read(from, false, plain, || {})).await
    }

    async fn all(mut events: mpsc::Receiver<Frame>) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(event) = events.recv().await {
            seen.push(shown(&event));
            event.finish();
        }
        seen
    }

    #[tokio::test(flavor = "current_thread")]
    async fn written_events_are_kept_only_within_the_budget() {
        let budget = Budget::new(64 << 20);
        let account = budget.account(None);
        let logged = |bytes: usize| {
            let room = account.try_reserve(bytes).map(Arc::new);
            assert!(room.is_some());
            (Body::from(Bytes::from(vec![b'x'; bytes])), room)
        };
        let log = Arc::new(EventLog::default());
        let (body, room) = logged(2 * KEPT_BYTES);
        log.add(body, room);
        let mut events = log.read(0, false, plain, || {});
        events.recv().await.unwrap().finish();
        assert_eq!(log.prune().0, 0);
        let (body, room) = logged(100);
        log.add(body, room);
        log.finish();
        events.recv().await.unwrap().finish();
        assert!(events.recv().await.is_none());
        // The large one is dropped, the small one can be replayed.
        assert_eq!((budget.held(), log.prune().0), (100, 100));
        assert_eq!(read(&log, 1).await.len(), 1);
        let _most = account.try_reserve(15 << 20).unwrap();
        assert_eq!(read(&log, 1).await.len(), 1);
        assert_eq!(log.prune().0, 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stream_is_read_from_any_point_to_its_end() {
        let log = Arc::new(EventLog::default());
        add(&log, "a");
        let follower = tokio::spawn({
            let log = log.clone();
            async move { read(&log, 0).await }
        });
        tokio::task::yield_now().await;
        add(&log, "b");
        log.finish();
        assert_eq!(follower.await.unwrap(), ["1:a", "2:b"]);
        assert_eq!(read(&log, 1).await, ["2:b"]);
        assert_eq!(read(&log, 9).await, Vec::<String>::new());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_newest_reader_takes_over() {
        let log = Arc::new(EventLog::default());
        let mut old = log.read(0, false, plain, || {});
        tokio::task::yield_now().await;
        let mut new = log.read(0, false, plain, || {});
        assert!(old.recv().await.is_none());
        add(&log, "x");
        assert_eq!(shown(&new.recv().await.unwrap()), "1:x");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_closed_reader_gets_what_came_before_and_the_next_one_the_rest() {
        let log = Arc::new(EventLog::default());
        add(&log, "a");
        let first = log.read(0, false, plain, || {});
        log.close_reader(Duration::from_millis(100));
        add(&log, "b");
        assert_eq!(all(first).await, ["1:a", "1:Some(100ms)"]);
        log.finish();
        assert_eq!(read(&log, 1).await, ["2:b"]);
        // Nothing is left to poll for.
        log.close_reader(Duration::from_millis(100));
        assert_eq!(read(&log, 2).await, Vec::<String>::new());
    }

    #[test]
    fn kept_events_are_bounded() {
        let log = EventLog::default();
        for _ in 0..100 {
            log.add(Bytes::from(vec![0; KEPT_BYTES / 10]).into(), None);
        }
        assert!(log.prune().0 <= KEPT_BYTES);
        log.finish();
        assert!(log.prune().1);
    }
}
