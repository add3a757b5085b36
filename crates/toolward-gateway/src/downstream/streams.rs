//! The event streams of one session: its feed, and one for each response that is sent as a stream.
//!
//! A client resumes a stream with the id of the last event that it received. Event ids are sealed for the
//! caller and contain the session, so that another caller's id, or one of another session, opens nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use toolward_wire::{Revision, sse};

use super::ended_sessions::LONGEST;
use super::event_log::{Entry, EventLog, KEPT_BYTES};
use super::frame::Frame;
use crate::client::Caller;
use crate::lock::LockUnpoisoned;
use crate::opaque_id::{Kind, Sealer};
use crate::random;

/// The number of the feed in event ids.
const FEED: u32 = 0;
/// How long a client waits before it resumes a stream, unless the server requests another delay.
const RETRY: Duration = Duration::from_secs(1);
/// Responses of one session that are kept for a replay: the newest ones.
const MAX_FINISHED: usize = 64;

/// The streams of a session.
pub(super) struct Streams {
    session: u128,
    caller: Caller,
    revision: Revision,
    sealer: Arc<Sealer>,
    /// The messages that belong to no request, which clients read with GET.
    pub(super) feed: Arc<EventLog>,
    responses: Mutex<Responses>,
    /// When the client last sent or received something.
    used: Mutex<Instant>,
}

/// The streams of responses, by number.
struct Responses {
    logs: BTreeMap<u32, Arc<EventLog>>,
    next: u32,
}

impl Streams {
    pub(super) fn new(
        session: u128,
        (caller, revision): (&Caller, Revision),
        sealer: Arc<Sealer>,
    ) -> io::Result<Streams> {
        // A restored session must not take an event id of the previous process for one of its own.
        let next = (random::random()? as u32 >> 1) + 1;
        Ok(Streams {
            session,
            caller: caller.clone(),
            revision,
            sealer,
            feed: Arc::default(),
            responses: Mutex::new(Responses { logs: BTreeMap::new(), next }),
            used: Mutex::new(Instant::now()),
        })
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.responses.locked()
    }

    pub(super) fn touch(&self) {
        *self.used.locked() = Instant::now();
    }

    pub(super) fn idle(&self) -> Duration {
        self.used.locked().elapsed()
    }

    /// Whether a stream begins with an event that has an id, from which it can be resumed. Older clients
    /// parse an event without data as a broken message; for them, the stream of a call begins with a
    /// comment, which shows that it is open.
    pub(super) fn are_resumable(&self) -> bool {
        self.revision >= Revision::R2025_11_25
    }

    /// Whether a client is reading one of them.
    pub(super) fn are_read(&self) -> bool {
        self.feed.is_read() || self.responses().logs.values().any(|log| log.is_read())
    }

    /// Ends all of them.
    pub(super) fn finish(&self) {
        self.feed.finish();
        self.responses().logs.values().for_each(|log| log.finish());
    }

    /// Creates a stream for the response to a request, and reads it from its beginning.
    pub(super) fn begin(self: &Arc<Self>) -> (Arc<EventLog>, mpsc::Receiver<Frame>) {
        let log = Arc::new(EventLog::default());
        let number = {
            let mut responses = self.responses();
            let number = responses.next;
            responses.next = number.checked_add(1).unwrap_or(FEED + 1);
            responses.logs.insert(number, log.clone());
            number
        };
        self.prune();
        let events = self.read(number, &log, 0);
        (log, events)
    }

    /// Resumes the stream of a `Last-Event-ID` of this session, or reads the feed without one.
    pub(super) fn resume(self: &Arc<Self>, last: Option<&str>) -> Option<mpsc::Receiver<Frame>> {
        let (stream, from) = match last {
            None => (FEED, None),
            Some(id) => self.open_id(id).map(|(stream, number)| (stream, Some(number)))?,
        };
        let log = match stream {
            FEED => self.feed.clone(),
            stream => self.responses().logs.get(&stream)?.clone(),
        };
        let from = from.unwrap_or_else(|| log.unread());
        Some(self.read(stream, &log, from))
    }

    /// Reads a stream starting at an event.
    fn read(
        self: &Arc<Self>,
        stream: u32,
        log: &Arc<EventLog>,
        from: u64,
    ) -> mpsc::Receiver<Frame> {
        let resumable = self.are_resumable();
        let (streams, over) = (self.clone(), Arc::downgrade(self));
        let encode = move |number, entry| {
            let id = streams.event_id(stream, number)?;
            streams.touch();
            Some(match entry {
                Entry::Message(message, room) => Frame::message(Some(&id), message, room),
                Entry::Primer(retry) => {
                    let retry = retry.unwrap_or(RETRY).as_millis().try_into().ok();
                    let mut out = Vec::new();
                    match resumable {
                        true => sse::encode_primer(&id, retry, &mut out),
                        false => sse::encode_keep_alive(&mut out),
                    }
                    Bytes::from(out).into()
                }
            })
        };
        // Once a stream has been read to its end, its replay buffer is pruned immediately.
        let over = move || {
            if let Some(streams) = over.upgrade() {
                streams.prune();
            }
        };
        log.read(from, resumable || stream != FEED, encode, over)
    }

    fn event_id(&self, stream: u32, number: u64) -> Option<String> {
        let mut payload = self.session.to_le_bytes().to_vec();
        payload.extend_from_slice(&stream.to_le_bytes());
        payload.extend_from_slice(&number.to_le_bytes());
        self.sealer.seal(Kind::Event, &self.caller, LONGEST, &payload).ok()
    }

    /// The stream and number of an event of this session.
    fn open_id(&self, id: &str) -> Option<(u32, u64)> {
        let payload = self.sealer.open(Kind::Event, &self.caller, id)?;
        let (session, rest) = payload.split_first_chunk::<16>()?;
        let (stream, number) = rest.split_first_chunk::<4>()?;
        let number = number.first_chunk::<8>()?;
        let event = (u32::from_le_bytes(*stream), u64::from_le_bytes(*number));
        (u128::from_le_bytes(*session) == self.session).then_some(event)
    }

    /// Drops finished responses that are too old, and the oldest ones beyond the limits on size and number.
    pub(super) fn prune(&self) {
        self.feed.prune();
        let (mut bytes, mut finished, mut dropped) = (0, 0, Vec::new());
        let mut responses = self.responses();
        for (number, log) in responses.logs.iter().rev() {
            let (size, readable) = log.prune();
            if log.is_done() {
                let is_over = finished >= MAX_FINISHED || bytes + size > KEPT_BYTES;
                if !readable || is_over {
                    dropped.push(*number);
                    continue;
                }
                finished += 1;
            }
            bytes += size;
        }
        for number in dropped {
            responses.logs.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(session: u128, agent: Option<&str>, sealer: &Arc<Sealer>) -> Arc<Streams> {
        let caller = Caller::new(agent.map(Arc::from), "test");
        let client = (&caller, Revision::R2025_11_25);
        Arc::new(Streams::new(session, client, sealer.clone()).unwrap())
    }

    fn sealer() -> Arc<Sealer> {
        Arc::new(Sealer::random().unwrap())
    }

    /// The id of a stream's first event.
    fn begin(streams: &Arc<Streams>) -> String {
        let number = streams.responses().next;
        let (log, _events) = streams.begin();
        log.add(Bytes::from_static(b"{}").into(), None);
        log.finish();
        streams.event_id(number, 0).unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn finished_responses_are_bounded_in_number() {
        let streams = streams(1, None, &sealer());
        let ids: Vec<String> = (0..MAX_FINISHED + 10).map(|_| begin(&streams)).collect();
        streams.prune();
        assert_eq!(streams.responses().logs.len(), MAX_FINISHED);
        assert!(streams.resume(Some(&ids[9])).is_none());
        assert!(ids[10..].iter().all(|id| streams.resume(Some(id)).is_some()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_event_id_of_another_session_or_agent_opens_nothing() {
        let sealer = sealer();
        let own = streams(1, Some("a"), &sealer);
        let id = begin(&own);
        assert!(own.resume(Some(&id)).is_some());
        for (session, agent) in [(2, "a"), (1, "b")] {
            let other = streams(session, Some(agent), &sealer);
            // Even with the same number.
            other.responses().next = own.responses().next - 1;
            begin(&other);
            assert!(other.resume(Some(&id)).is_none());
        }
        assert!(own.resume(Some("1")).is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_restored_session_does_not_know_event_ids_of_the_previous_process() {
        let sealer = sealer();
        let id = begin(&streams(1, None, &sealer));
        let restored = streams(1, None, &sealer);
        begin(&restored);
        assert!(restored.resume(Some(&id)).is_none());
    }
}
