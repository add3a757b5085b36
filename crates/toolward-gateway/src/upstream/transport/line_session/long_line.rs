//! Memory for long lines of a server, from their first bytes until the call they answer owns them.
//!
//! A line that is longer than a usual message is charged to the agent whose call it answers. Many servers send
//! the id last, so that only the whole line shows which call that is: until then it is charged to the only agent
//! that waits, or to an account of its own. If there is no room, reading pauses until there is, or until the call
//! reaches its `max_timeout`. While other agents wait for the same process, [`Pauses`] limits that: then the line
//! is discarded, and the call fails with an error that says that it was carried out.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;
use toolward_wire::{Id, Message, MessageError, Sender};

use super::pauses::Pauses;
use super::{Process, SMALL, Unreadable, Users, is_answer, seems_to_answer};
use crate::budget::{Account, RESULT_ROOM, Reservation};
use crate::http_client::MAX_READ_BYTES;
use crate::parse;

/// The id of a message is looked for in this many bytes at its start.
const START: usize = 256;

/// The long line that is being read, or waits for room.
#[derive(Default)]
pub(super) struct LongLine {
    /// Its memory, once it is long.
    charge: Option<Charge>,
    /// The whole line.
    whole: Option<Whole>,
    /// The rest of it is discarded for lack of room, or because nobody waits for it.
    discarding: bool,
    /// The account of lines of which it is not known which agent they are for.
    unattributed: Option<Arc<Account>>,
    pauses: Pauses,
}

/// The memory of a line.
struct Charge {
    /// The call that the line answers, if its start shows that.
    owner: Option<u64>,
    /// `None`: the line is not held for a client.
    room: Option<Arc<Reservation>>,
}

/// A whole line on its way to the call that it answers.
enum Whole {
    Parsing(JoinHandle<Result<Message, MessageError>>, Bytes),
    Parsed(Message),
}

impl LongLine {
    /// The line has ended: the call that it answers, if that was known, and whether it was discarded.
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

    /// Parses a whole line on a blocking thread, so that other requests of this one are served meanwhile.
    pub(super) fn parse(&mut self, line: Bytes, limit: usize) {
        let parsing = parse::on_blocking_thread(line.clone(), limit, Sender::Server);
        self.whole = Some(Whole::Parsing(parsing, line));
    }

    /// The memory that was reserved for a message by whoever read it.
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
    /// Makes room for the line that is being read, if it is long. Waits until there is some, or discards the
    /// line.
    pub(super) async fn hold_line(&mut self, length: usize) {
        if length <= SMALL || self.long.discarding {
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
        // The call has reserved this much before it was forwarded.
        let wanted = (length + MAX_READ_BYTES).saturating_sub(RESULT_ROOM);
        if !is_awaited || !self.wait_for(owner, room.account(), room.grow_to(wanted)).await {
            self.long.discard();
        }
    }

    /// Whose memory an unfinished line takes.
    fn new_charge(&mut self) -> Charge {
        let line = self.lines.unfinished();
        let start = line.get(..START).unwrap_or(line);
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

    /// The whole line as a message, once its memory belongs to the call that it answers. Can be called again if
    /// it was interrupted.
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

    /// Moves the memory of the parsed message to the call that it answers; false if there is no room.
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

    /// Waits for room in an agent's account; false if that would hold up other agents for too long.
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
        // A call whose result is discarded stays short until it is told.
        call.iter().filter(|_| waited).for_each(|call| call.set_short(false));
        waited
    }

    /// Whether calls of other agents wait for this process.
    fn holds_up_others(&self, account: &Arc<Account>) -> bool {
        // It is not known for whom the gateway asks on its own behalf.
        let is_other = |room: Option<&Arc<Reservation>>| {
            room.is_none_or(|room| !Arc::ptr_eq(room.account(), account))
        };
        self.users == Users::Everyone
            && !account.is_sole()
            && self.pending.values().any(|call| is_other(call.room.as_ref()))
    }
}

/// Whether a future is done at once.
async fn is_ready(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    use std::task::Poll;
    std::future::poll_fn(|context| {
        Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready())
    })
    .await
}
