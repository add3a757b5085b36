//! Held calls: a legacy server asks a modern client, which cannot be asked while its call is in flight.
//!
//! The call stays open at the server. The client gets `input_required` with a sealed, single-use state, and its next
//! request with that state continues the call. The held call is the future of the first request: it is stored, and polled
//! on by the request that brings the responses.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use toolward_wire::jsonrpc::result_body;
use toolward_wire::{Id, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Message, Sender, string};

use crate::client::outlet::ClientResponse;
use crate::in_flight::Cancel;
use crate::lock::LockUnpoisoned;
use crate::notifications::Queue;
use crate::random;
use crate::responses::{Answer, Body, Hold};

/// How long a call is held.
pub(crate) const HOLD: Duration = Duration::from_secs(600);
/// Held calls of one agent.
const MAX_HELD: usize = 16;
/// Questions that arrive this soon after each other are asked together.
pub(crate) const GATHER: Duration = Duration::from_millis(50);
/// How long the result of a held call is kept, for a client that lost it.
const REPLAY: Duration = Duration::from_secs(60);

/// A call in flight.
pub(crate) type Work = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;

/// A question of a server, on its way to the client of a call.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) method: Box<str>,
    pub(crate) params: Option<Bytes>,
    pub(crate) respond: oneshot::Sender<ClientResponse>,
}

/// The way from a call to the request that waits for it. Cheap: every call of a modern client has one, and hardly any
/// needs it.
#[derive(Debug, Clone, Default)]
pub struct Parking(Arc<Questions>);

#[derive(Debug, Default)]
struct Questions {
    waiting: Mutex<VecDeque<Question>>,
    arrived: Notify,
}

impl Parking {
    /// Asks the client.
    pub(crate) fn ask(
        &self,
        method: &str,
        params: Option<Bytes>,
    ) -> oneshot::Receiver<ClientResponse> {
        let (respond, response) = oneshot::channel();
        self.0.waiting.locked().push_back(Question { method: method.into(), params, respond });
        self.0.arrived.notify_one();
        response
    }

    /// The next question; one request waits for it.
    pub(crate) async fn next(&self) -> Question {
        loop {
            if let Some(question) = self.0.waiting.locked().pop_front() {
                return question;
            }
            self.0.arrived.notified().await;
        }
    }
}

/// A call that waits for its client.
pub(crate) struct HeldCall {
    pub(crate) work: Work,
    pub(crate) parking: Parking,
    /// The questions that the client was asked, by key.
    pub(crate) asked: Vec<(String, oneshot::Sender<ClientResponse>)>,
    pub(crate) cancel: Arc<Cancel>,
    /// Notifications of the call, if they go to the stream of a request.
    pub(crate) notes: Option<Arc<Queue>>,
}

enum Slot {
    Waiting {
        call: HeldCall,
        /// Dropped when the call is no longer held.
        _holding: oneshot::Sender<()>,
    },
    /// The request that continues it is in flight.
    Continued,
    /// The result, in case the client asks again.
    Finished(Body, Instant),
}

/// Held calls by the number in their sealed state. Each belongs to an agent.
type Slots = HashMap<u128, (Option<Arc<str>>, Slot)>;

/// All held calls.
#[derive(Clone, Default)]
pub struct HeldCalls(Arc<Mutex<Slots>>);

/// The result of looking up a state.
pub(crate) enum Found {
    Call(Box<HeldCall>),
    Result(Body),
    /// Another request continues the call at the moment.
    InUse,
    /// Unknown, expired, or used.
    Nothing,
}

impl HeldCalls {
    fn all(&self) -> MutexGuard<'_, Slots> {
        self.0.locked()
    }

    /// Stores a call until its client responds; it is canceled when that takes too long. `None` if the agent has too
    /// many.
    pub(crate) fn hold(&self, agent: Option<&Arc<str>>, call: HeldCall) -> Option<Hold> {
        let slot = random::random().ok()?;
        let mut all = self.all();
        let waits = |(owner, slot): &&(Option<Arc<str>>, Slot)| {
            owner.as_ref() == agent && !matches!(slot, Slot::Finished(..))
        };
        if all.values().filter(waits).count() >= MAX_HELD {
            return None;
        }
        let (holding, released) = oneshot::channel();
        all.insert(slot, (agent.cloned(), Slot::Waiting { call, _holding: holding }));
        drop(all);
        let held = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(HOLD).await;
            held.cancel(slot);
        });
        Some(Hold { slot, released })
    }

    /// Cancels a call at its server, if it still waits for its client.
    pub(crate) fn cancel(&self, slot: u128) {
        let mut all = self.all();
        let canceled = match all.get(&slot) {
            Some((_, Slot::Waiting { .. })) => all.remove(&slot),
            _ => None,
        };
        // Dropped after the lock is released.
        drop(all);
        drop(canceled);
    }

    /// Cancels the calls of agents that are gone. Dropped after the lock is released, like an expired call.
    pub(crate) fn retain(&self, stays: impl Fn(Option<&str>) -> bool) {
        let mut gone = Vec::new();
        let mut all = self.all();
        let slots: Vec<u128> = all
            .iter()
            .filter(|(_, (agent, _))| !stays(agent.as_deref()))
            .map(|(slot, _)| *slot)
            .collect();
        gone.extend(slots.iter().filter_map(|slot| all.remove(slot)));
        drop(all);
        drop(gone);
    }

    /// Cancels all calls, when the gateway ends.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Takes a call out, for the request that continues it.
    pub(crate) fn take(&self, slot: u128) -> Found {
        let mut all = self.all();
        let Some((_, held)) = all.get_mut(&slot) else { return Found::Nothing };
        match std::mem::replace(held, Slot::Continued) {
            Slot::Waiting { call, .. } => Found::Call(Box::new(call)),
            Slot::Finished(body, until) if Instant::now() < until => {
                *held = Slot::Finished(body.clone(), until);
                Found::Result(body)
            }
            Slot::Finished(..) => {
                all.remove(&slot);
                Found::Nothing
            }
            Slot::Continued => Found::InUse,
        }
    }

    /// Keeps the result of a call that has ended, for a while.
    pub(crate) fn finish(&self, slot: u128, body: Option<&Body>) {
        let until = Instant::now() + REPLAY;
        let mut all = self.all();
        match body {
            Some(body) => {
                if let Some((_, held)) = all.get_mut(&slot) {
                    *held = Slot::Finished(body.clone(), until);
                }
                let held = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until(until).await;
                    held.all().remove(&slot);
                });
            }
            None => drop(all.remove(&slot)),
        }
    }
}

/// A held call that a request continues. If the request ends early, so does the call.
pub(crate) struct Continuation<'h> {
    held: &'h HeldCalls,
    slot: u128,
    finished: bool,
}

impl<'h> Continuation<'h> {
    pub(crate) fn new(held: &'h HeldCalls, slot: u128) -> Continuation<'h> {
        Continuation { held, slot, finished: false }
    }

    /// Keeps the result for a while.
    pub(crate) fn finish(mut self, body: &Body) {
        self.finished = true;
        self.held.finish(self.slot, Some(body));
    }
}

impl Drop for Continuation<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.held.finish(self.slot, None);
        }
    }
}

/// A client's response to a question, as a JSON-RPC response.
pub(crate) fn response(key: &str, result: &[u8]) -> Option<ClientResponse> {
    let body = result_body(&Id::text(key), result);
    let message = Message::parse(body, MAX_REQUEST_BYTES + 1024, Sender::Client).ok()?;
    Some(ClientResponse { message, _room: None })
}

/// The result that asks a modern client for input.
pub(crate) fn input_required(
    id: &Id,
    asked: &[(String, Box<str>, Option<Bytes>)],
    state: &str,
) -> Answer {
    let mut out = b"{\"resultType\":\"input_required\",\"inputRequests\":{".to_vec();
    for (at, (key, method, params)) in asked.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        string::write(key, &mut out);
        out.extend_from_slice(b":{\"method\":");
        string::write(method, &mut out);
        if let Some(params) = params {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(params);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"},\"requestState\":");
    string::write(state, &mut out);
    out.push(b'}');
    result_body(id, &out).into()
}

/// The response of a held call under the id of the request that continued it.
pub(crate) fn readdressed(id: &Id, body: &Body) -> Body {
    match Message::parse(body.clone().whole(), MAX_RESPONSE_BYTES.max(body.len()), Sender::Server) {
        Ok(message) => message.edit().id(id).finish_shared().into(),
        Err(_) => body.clone(),
    }
}
