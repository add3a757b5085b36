//! Memory for long lines of a server, from their first bytes until the call they respond to owns
//! them.
//!
//! A line that is longer than a usual message is charged to the agent whose call it responds to.
//! Many servers send the id last, so that only the complete line shows which call that is: until
//! then it is charged to the only agent with pending calls, or to a separate account. If there is
//! no memory, reading pauses until there is, or until the call reaches its `max_timeout`. While
//! other agents wait for the same process, [`Pauses`] limits that: then the line is discarded, and
//! the call fails with an error which states that it was executed.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;
use toolward_wire::{Id, Message, MessageError, Sender};

use super::pauses::Pauses;
use super::{Process, SMALL_LINE_BYTES, Unreadable, Users, is_answer, seems_to_answer};
use crate::budget::{Account, RESULT_ROOM, Reservation};
use crate::http_client::MAX_READ_BYTES;
use crate::parse;

/// The id of a message is searched for in this many bytes at its start.
const MAX_START_BYTES: usize = 256;

/// The long line that is being read, or waits for memory.
#[derive(Default)]
pub(super) struct LongLine {
    /// Its memory, once it is long.
    charge: Option<Charge>,
    /// The complete line.
    whole: Option<Whole>,
    /// The rest of it is discarded, for lack of memory or because no call waits for it.
    discarding: bool,
    /// The account for lines whose agent is not known.
    unattributed: Option<Arc<Account>>,
    pauses: Pauses,
}

/// The memory of a line.
struct Charge {
    /// The call that the line responds to, if its start shows that.
    owner: Option<u64>,
    /// `None`: the line is not held for a client.
    room: Option<Arc<Reservation>>,
}

/// A complete line on its way to the call that it responds to.
enum Whole {
    Parsing(JoinHandle<Result<Message, MessageError>>, Bytes),
    Parsed(Message),
}

impl LongLine {
    /// Ends the line: the call that it responds to, if known, and whether it was discarded.
    pub(super) fn end(&mut self) -> (Option<u64>, bool) {
        let owner = self.charge.take().and_then(|charge| charge.owner);
        (owner, std::mem::take(&mut self.discarding))
    }

    pub(super) fn is_discarded(&self) -> bool {
        self.discarding
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Parses a complete line on a blocking thread, so that this thread serves other requests
    /// meanwhile.
    pub(super) fn parse(&mut self, line: Bytes, limit: usize) {
        let parsing = parse::on_blocking_thread(line.clone(), limit, Sender::Server);
        self.whole = Some(Whole::Parsing(parsing, line));
    }

    /// Takes over the memory that was reserved while a message was read.
    pub(super) fn is_held_in(&mut self, room: Option<Arc<Reservation>>) {
        self.charge = Some(Charge { owner: None, room });
    }

    fn discard(&mut self) {
        self.discarding = true;
        if let Some(charge) = &mut self.charge {
            charge.room = None;
        }
    }
}

impl Process {
    /// Reserves memory for the line that is being read, if it is long. Waits until there is enough,
    /// or discards the line.
    pub(super) async fn hold_line(&mut self, length: usize) {
        if length <= SMALL_LINE_BYTES || self.long.discarding {
            return;
        }
        if self.long.charge.is_none() {
            self.long.charge = Some(self.new_charge());
        }
        let Some(Charge { owner, room }) = &self.long.charge else { return };
        let is_awaited = match owner {
            Some(owner) => self.pending.contains_key(owner),
            None => room.is_none() || self.pending.values().any(|call| call.room.is_some()),
        };
        let (owner, Some(room)) = (*owner, room.clone()) else { return };
        // The call reserved this much before it was forwarded.
        let wanted = (length + MAX_READ_BYTES).saturating_sub(RESULT_ROOM);
        if !is_awaited || !self.wait_for(owner, room.account(), room.grow_to(wanted)).await {
            self.long.discard();
        }
    }

    /// The account of an unfinished line.
    fn new_charge(&mut self) -> Charge {
        let line = self.lines.unfinished();
        let start = line.get(..MAX_START_BYTES).unwrap_or(line);
        let named = seems_to_answer(start).filter(|minted| self.pending.contains_key(minted));
        if let Some(call) = named.and_then(|minted| self.pending.get(&minted)) {
            let room = call.room.as_ref().map(|room| Arc::new(room.account().reserve_nothing()));
            return Charge { owner: named, room };
        }
        let mut accounts =
            self.pending.values().filter_map(|call| Some(call.room.as_ref()?.account()));
        let account =
            accounts.next().map(|first| match accounts.all(|other| Arc::ptr_eq(first, other)) {
                true => first,
                false => self.long.unattributed.get_or_insert_with(|| first.sibling()),
            });
        let room = account.map(|account| Arc::new(account.reserve_nothing()));
        Charge { owner: self.only_candidate(start), room }
    }

    /// The complete line as a message, once its memory belongs to the call that it responds to.
    /// Cancel-safe.
    pub(super) async fn whole_message(&mut self) -> Result<Message, Unreadable> {
        if let Some(Whole::Parsing(parsing, line)) = &mut self.long.whole {
            // The runtime has no blocking threads left while the process shuts down.
            let parsed = parsing
                .await
                .unwrap_or_else(|_| Message::parse(line.clone(), self.longest, Sender::Server));
            match parsed {
                Ok(message) => self.long.whole = Some(Whole::Parsed(message)),
                Err(malformed) => {
                    let unreadable = Unreadable::malformed(&malformed, line);
                    self.long.whole = None;
                    self.long.end();
                    return Err(unreadable);
                }
            }
        }
        let answered = self.answered_by_whole();
        let fits = match answered {
            Some(minted) => self.settle(minted).await,
            None => true,
        };
        self.long.end();
        match self.long.whole.take() {
            Some(Whole::Parsed(message)) if fits => Ok(message),
            _ => Err(Unreadable::without_room(answered)),
        }
    }

    /// The call that waits for the parsed message.
    fn answered_by_whole(&self) -> Option<u64> {
        let Some(Whole::Parsed(message)) = &self.long.whole else { return None };
        let answered = message.id().filter(|_| is_answer(message)).and_then(Id::as_number);
        answered.filter(|minted| self.pending.contains_key(minted))
    }

    /// Moves the memory of the parsed message to the call that it responds to; false if there is
    /// not enough.
    async fn settle(&mut self, minted: u64) -> bool {
        let Some(Whole::Parsed(message)) = &self.long.whole else { return true };
        let size = message.body().len();
        let Some(room) = self.pending.get(&minted).and_then(|call| call.room.clone()) else {
            return true;
        };
        let held = self.long.charge.as_ref().and_then(|charge| charge.room.clone());
        let moved = async {
            if let Some(held) = held {
                held.shrink_to(size.saturating_sub(room.bytes()));
                room.absorb(&held).await;
            }
            room.grow_to(size).await;
        };
        self.wait_for(Some(minted), room.account(), moved).await
    }

    /// Waits for memory of an agent; false if that would block other agents for too long.
    async fn wait_for(
        &mut self,
        owner: Option<u64>,
        account: &Arc<Account>,
        room: impl Future<Output = ()>,
    ) -> bool {
        let call = owner.and_then(|minted| self.pending.get(&minted)?.room.clone());
        tokio::pin!(room);
        let mut waited = is_ready(&mut room).await;
        if !waited {
            self.stalls.begin();
            call.iter().for_each(|call| call.set_short(true));
            waited = match self.holds_up_others(account) {
                true => self.long.pauses.wait(account, room).await,
                false => {
                    room.await;
                    true
                }
            };
        }
        self.stalls.end();
        // A call whose result is discarded stays marked as short until it has failed.
        call.iter().filter(|_| waited).for_each(|call| call.set_short(false));
        waited
    }

    /// Whether calls of other agents wait for this process.
    fn holds_up_others(&self, account: &Arc<Account>) -> bool {
        // Requests of the gateway itself may serve any agent.
        let is_other = |room: Option<&Arc<Reservation>>| {
            room.is_none_or(|room| !Arc::ptr_eq(room.account(), account))
        };
        self.users == Users::Everyone
            && !account.is_sole()
            && self.pending.values().any(|call| is_other(call.room.as_ref()))
    }
}

/// Whether a future is ready at once.
async fn is_ready(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    use std::task::Poll;
    std::future::poll_fn(|context| {
        Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready())
    })
    .await
}
