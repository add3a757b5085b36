//! Stage 5, forward: the server, or a meta tool, answers; notifications pass on until then.

use std::time::Duration;

use tokio::time::Instant;
use toolward_wire::Era;
use toolward_wire::exchange::{Event, ExchangeEnd};

use super::record::Forwarded;
use crate::audit::NotRecorded;
use crate::budget::Reservation;
use crate::context::Context;
use crate::in_flight::Cancel;
use crate::methods::meta_tools;
use crate::methods::request::Envelope;
use crate::notifications::Notes;
use crate::permit::Permit;
use crate::responses::Answer;
use crate::upstream::{GiveUp, Opened, Server, Unavailable};
use crate::view::View;

/// A call that has come to its end at its server.
pub(super) struct Done<'s> {
    pub(super) forwarded: Forwarded<'s>,
    /// The name that the client used.
    pub(super) exposed: Box<str>,
    /// The size limit of the result.
    pub(super) max_bytes: usize,
    pub(super) end: DoneBy,
}

/// Who ended a call, and how.
pub(super) enum DoneBy {
    /// A meta tool, with the outcome for the audit log.
    MetaTool(Result<(Answer, &'static str), NotRecorded>),
    /// A server that was spoken to in this era.
    Server(ExchangeEnd, Era),
    /// Nothing was sent: the server could not be reached.
    Unreachable(Unavailable),
    /// The client, while a meta tool was at work.
    Cancelled,
}

pub(super) async fn forward<'s>(
    context: &Context,
    envelope: &Envelope,
    (permit, view): (Permit, &View),
    forwarded: Forwarded<'s>,
    timeout: Option<Duration>,
    notes: &Notes,
) -> Done<'s> {
    let Envelope { client, row, cancel, .. } = envelope;
    let (server, room) = (forwarded.server, &forwarded.room);
    let exposed = permit.exposed().into();
    let tool = &*permit.decision().original;
    let (max_bytes, limits) = (server.result_bytes(tool), TimeLimits::new(server, tool, timeout));
    let end = if server.is_own() {
        tokio::select! {
            answer = Box::pin(meta_tools::answer(context, envelope, view, &permit)) => {
                DoneBy::MetaTool(answer)
            }
            () = cancel.cancelled() => DoneBy::Cancelled,
        }
    } else {
        match context.servers.open(server, permit, client, row, room).await {
            Ok(mut opened) => {
                let end = follow(&mut opened, notes, cancel, limits, room).await;
                DoneBy::Server(end, opened.era)
            }
            Err(why) => DoneBy::Unreachable(why),
        }
    };
    Done { forwarded, exposed, max_bytes, end }
}

/// Timeouts of a call.
struct TimeLimits {
    /// Without an answer or progress.
    idle: Duration,
    /// In total.
    total: Duration,
}

impl TimeLimits {
    fn new(server: &Server, tool: &str, client: Option<Duration>) -> TimeLimits {
        let (timeouts, most) = (&server.definition.timeouts, client.unwrap_or(Duration::MAX));
        TimeLimits { idle: timeouts.idle(tool).min(most), total: timeouts.most(tool).min(most) }
    }
}

/// Passes on what a server sends for a call until it ends, times out, or the client cancels it.
/// Each notification restarts the idle time; nothing extends the total.
///
/// While the result waits for room, or for another result on the same pipe that does, the server has done its
/// part: only the total ends that.
async fn follow(
    opened: &mut Opened,
    notes: &Notes,
    cancel: &Cancel,
    limits: TimeLimits,
    room: &Reservation,
) -> ExchangeEnd {
    let last = Instant::now() + limits.total;
    let next_deadline = || last.min(Instant::now() + limits.idle);
    let deadline = tokio::time::sleep_until(next_deadline());
    tokio::pin!(deadline);
    let (mut late, mut given_up) = (false, false);
    let stalls = opened.stalls();
    let mut stalls_seen = stalls.count();
    loop {
        let event = {
            // Kept over several deadlines: a half-read result would be lost with it.
            let next = opened.next();
            tokio::pin!(next);
            loop {
                tokio::select! {
                    event = &mut next => break Some(event),
                    () = &mut deadline, if !late => {
                        let is_held_up = room.is_short() || stalls.any_since(stalls_seen);
                        stalls_seen = stalls.count();
                        if !is_held_up || Instant::now() >= last {
                            late = true;
                            break None;
                        }
                        deadline.as_mut().reset(next_deadline());
                    }
                    () = cancel.cancelled(), if !given_up => {
                        given_up = true;
                        break None;
                    }
                }
            }
        };
        match event {
            Some(Event::Notify(body)) => {
                notes.send(body).await;
                deadline.as_mut().reset(next_deadline());
            }
            Some(Event::Done(done)) => return done,
            // Questions are refused, so that none comes.
            Some(Event::ServerRequest(_)) => {}
            None if late && !given_up => opened.give_up(GiveUp::TimedOut),
            None => opened.give_up(GiveUp::Cancelled(cancel.reason())),
        }
    }
}
