//! Room for long lines of a server, while they arrive.
//!
//! A line that is longer than a usual message is charged to the call that it seems to answer. If there is
//! no room for that call's agent, nothing more is read until there is. A process that several agents use
//! must not be held up by one of them: it pauses briefly and rarely for each agent, and then passes over
//! the line. The call then fails with an error that says that it was carried out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolward_wire::{Kind, Message};

use super::{Process, SMALL, Users, seems_to_answer};
use crate::budget::{Account, RESULT_ROOM};
use crate::upstream::pool::MAX_READ;

/// How long a shared process waits for one agent's room, and how often. Together less than one
/// percent of the time.
const SHARED_PAUSE: Duration = Duration::from_millis(500);
const BETWEEN_PAUSES: Duration = Duration::from_secs(60);
/// The id of a message is looked for in so many bytes at its start.
const START: usize = 256;

/// The long line that is being read.
#[derive(Default)]
pub(super) struct LongLine {
    /// The call that it is charged to, once it is long.
    owner: Option<Option<u64>>,
    /// The rest of it is passed over.
    discarding: bool,
    pause_until: Option<Instant>,
    /// Agents for which a shared process has paused, and when.
    paused: Vec<(Arc<Account>, Instant)>,
}

impl LongLine {
    /// The line has ended: the call that it was charged to, and whether it was passed over for lack of
    /// room.
    pub(super) fn end(&mut self) -> (Option<u64>, bool) {
        self.pause_until = None;
        (self.owner.take().flatten(), std::mem::take(&mut self.discarding))
    }

    pub(super) fn is_discarded(&self) -> bool {
        self.discarding
    }

    /// Whether a shared process may pause for an agent now.
    fn may_pause(&mut self, account: &Arc<Account>) -> bool {
        self.paused.retain(|(_, when)| when.elapsed() < BETWEEN_PAUSES);
        !self.paused.iter().any(|(paused, _)| Arc::ptr_eq(paused, account))
    }
}

impl Process {
    /// Makes room for the line that is being read, if it is long; waits until there is some, or gives
    /// the line up.
    pub(super) async fn hold_line(&mut self) {
        let length = self.lines.unfinished().len();
        if length <= SMALL || self.long.discarding {
            return;
        }
        let owner = match self.long.owner {
            Some(owner) => owner,
            None => *self.long.owner.insert(self.charged()),
        };
        let Some(owner) = owner else { return };
        let Some(waiting) = self.pending.get(&owner) else {
            // Nobody waits for it any more.
            self.long.discarding = true;
            return;
        };
        let Some(room) = waiting.room.clone() else { return };
        let wanted = length + MAX_READ;
        if room.try_grow_to(wanted) {
            return;
        }
        if self.users != Users::Everyone {
            return room.grow_to(wanted).await;
        }
        if self.long.pause_until.is_none() && self.long.may_pause(room.account()) {
            self.long.pause_until = Some(Instant::now() + SHARED_PAUSE);
        }
        let until = self.long.pause_until.unwrap_or_else(Instant::now);
        if tokio::time::timeout_at(until, room.grow_to(wanted)).await.is_err() {
            if self.long.pause_until.take().is_some() {
                self.long.paused.push((room.account().clone(), Instant::now()));
            }
            self.long.discarding = true;
        }
    }

    /// The call that an unfinished line is charged to: the one that its start names, or else any.
    fn charged(&self) -> Option<u64> {
        let line = self.lines.unfinished();
        let named = seems_to_answer(line.get(..START).unwrap_or(line));
        let named = named.filter(|minted| self.pending.contains_key(minted));
        named.or_else(|| self.pending.keys().next().copied())
    }

    /// Charges a whole message to the call that it answers; false if there is no room.
    pub(super) fn settle(&mut self, charged: Option<u64>, message: &Message) -> bool {
        let answers = match message.kind() {
            Kind::Response | Kind::Error => message.id().and_then(toolward_wire::Id::as_number),
            Kind::Notification | Kind::Request => None,
        };
        let room = |minted: u64| self.pending.get(&minted).and_then(|call| call.room.as_ref());
        if let Some(other) = charged.filter(|minted| Some(*minted) != answers).and_then(room) {
            other.shrink_to(RESULT_ROOM);
        }
        let size = message.body().len();
        answers.and_then(room).is_none_or(|room| room.try_grow_to(size))
    }
}
