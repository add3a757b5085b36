//! A request under way at a server on HTTP. It is sent once. A stream that ends before the answer is
//! asked for again from its last event, where the server gave it an id.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use toolward_wire::exchange::{Event, Exchange, ExchangeEnd, Failure, Step};
use toolward_wire::{Era, Kind, Message};

use super::messages::{Messages, Place};
use super::{Field, Greeted, HttpLink, PostError, Reply, unreachable};
use crate::upstream::handshake::is_list_changed;
use crate::upstream::size_limit::{Allowance, TooLarge};
use crate::upstream::transport::Signal;
use crate::upstream::{GiveUp, Unavailable};

/// How long a server that does not say otherwise has until its stream is asked for again, and within
/// what bounds it may say so.
const PAUSE: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(30);
/// So often in a row a stream is asked for again in vain.
const MOST_IN_VAIN: u32 = 5;

/// A request under way. Dropped before its end, it is cancelled.
pub(in crate::upstream) struct Call {
    link: Arc<HttpLink>,
    exchange: Exchange,
    greeted: Option<Arc<Greeted>>,
    stage: Stage,
    /// An end that has not been told yet.
    pending: Option<Event>,
    /// How often the stream was asked for since something came by it.
    in_vain: u32,
    allowance: Allowance,
}

enum Stage {
    Unsent {
        body: Bytes,
        more: Vec<Field>,
    },
    /// About to be sent, once there is a session.
    Waiting,
    /// On its way: whether it arrived is not known.
    Sent,
    Streaming(Box<Messages>),
    /// The stream ended before the answer; the last event, and how long to wait.
    Cut(String, Duration),
    Over,
}

impl Call {
    pub(super) fn new(
        link: Arc<HttpLink>,
        exchange: Exchange,
        body: Bytes,
        more: Vec<Field>,
        allowance: Allowance,
    ) -> Call {
        let stage = Stage::Unsent { body, more };
        Call { link, exchange, greeted: None, stage, pending: None, in_vain: 0, allowance }
    }

    /// A message of the server, unless it is an answer with more bytes than may pass.
    fn received(&mut self, message: Message) -> Step {
        let size = message.body().len();
        match matches!(message.kind(), Kind::Response | Kind::Error)
            && size > self.allowance.longest
        {
            true => self.exchange.too_large(Some(size as u64)),
            false => self.exchange.upstream(message),
        }
    }

    /// An answer that cannot be read, or not in its length.
    fn unread(&mut self, error: &io::Error) -> Step {
        tracing::warn!(target: "upstream", server = self.link.name, "{}", unreachable(error));
        match TooLarge::of(error) {
            Some(large) => self.exchange.too_large(large.size),
            None => self.exchange.unreadable(),
        }
    }

    pub(in crate::upstream) async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.pending.take() {
                return event;
            }
            let step = match &mut self.stage {
                Stage::Unsent { .. } => self.begin().await,
                Stage::Streaming(events) => match events.next().await {
                    Ok(Some(message)) => self.received(message),
                    Err(error) if error.kind() == io::ErrorKind::Other => self.unread(&error),
                    Ok(None) | Err(_) => self.cut(),
                },
                Stage::Cut(event, pause) => {
                    let (event, pause) = (event.clone(), *pause);
                    Box::pin(self.take_up(event, pause)).await
                }
                Stage::Waiting => self.exchange.unsent(),
                Stage::Sent | Stage::Over => self.exchange.gone(),
            };
            if let Some(event) = self.carry_out(step) {
                return event;
            }
            if matches!(self.stage, Stage::Over) && self.pending.is_none() {
                return Event::Done(ExchangeEnd::Failed(Failure::Gone));
            }
        }
    }

    /// Sends the request. A session that is gone is begun anew once: nothing was done under the old.
    async fn begin(&mut self) -> Step {
        let (body, more) = match std::mem::replace(&mut self.stage, Stage::Waiting) {
            Stage::Unsent { body, more } => (body, more),
            stage => {
                self.stage = stage;
                return Step::default();
            }
        };
        for _ in 0..2 {
            let greeted = match self.link.greeted().await {
                Ok(greeted) => greeted,
                Err(_) => return self.exchange.unsent(),
            };
            self.greeted = Some(greeted.clone());
            self.stage = Stage::Sent;
            match self.link.post(&body, &more, Some(&greeted), self.allowance.clone()).await {
                Ok((Reply::Json(message), _)) => return self.received(message),
                Ok((Reply::Events(events), _)) => {
                    self.stage = Stage::Streaming(events);
                    return Step::default();
                }
                Ok((Reply::NoSession, _)) => self.link.forget(&greeted).await,
                Ok((Reply::Accepted, _)) => return self.exchange.unreadable(),
                Ok((Reply::Refused(status), _)) => {
                    let why = match status {
                        401 | 403 => Unavailable::Refuses(status).to_string(),
                        _ => format!("it answers with status {status}"),
                    };
                    tracing::warn!(target: "upstream", server = self.link.name, "{why}");
                    // A status of 4xx rejects the request before anything is done.
                    return match status {
                        400..500 => self.exchange.unsent(),
                        _ => self.exchange.gone(),
                    };
                }
                Err(PostError { error, sent: true }) if error.kind() == io::ErrorKind::Other => {
                    return self.unread(&error);
                }
                Err(failed) => {
                    tracing::warn!(target: "upstream", server = self.link.name, "{failed}");
                    return match failed.sent {
                        true => self.exchange.gone(),
                        false => self.exchange.unsent(),
                    };
                }
            }
        }
        // The server knows neither the old session nor the new one.
        self.exchange.unsent()
    }

    /// The stream has ended, and the answer has not come by it.
    fn cut(&mut self) -> Step {
        let Stage::Streaming(events) = std::mem::replace(&mut self.stage, Stage::Sent) else {
            return self.exchange.gone();
        };
        let Place { event, retry, moved } = events.into_place();
        if moved {
            self.in_vain = 0;
        }
        match event {
            Some(event) if self.link.era() == Era::Legacy => {
                self.stage = Stage::Cut(event, retry.unwrap_or(PAUSE).clamp(SHORTEST, LONGEST));
                Step::default()
            }
            _ => self.exchange.gone(),
        }
    }

    /// Asks for what comes after an event. The call itself is not sent again.
    async fn take_up(&mut self, event: String, pause: Duration) -> Step {
        let Some(greeted) = self.greeted.clone().filter(|_| self.in_vain < MOST_IN_VAIN) else {
            return self.exchange.gone();
        };
        self.in_vain += 1;
        tokio::time::sleep(pause).await;
        let field = (Cow::Borrowed("Last-Event-ID"), Cow::Owned(event.clone()));
        let again = match self.link.get(&[field], &greeted, self.allowance.clone()).await {
            Ok(Reply::Events(mut events)) => {
                events.begin_after(event, pause);
                Stage::Streaming(events)
            }
            // It may be there again in a moment.
            Ok(Reply::Refused(429 | 500..)) => Stage::Cut(event, pause),
            Err(error) if error.kind() != io::ErrorKind::Other => Stage::Cut(event, pause),
            Ok(_) | Err(_) => return self.exchange.gone(),
        };
        self.stage = again;
        Step::default()
    }

    fn carry_out(&mut self, step: Step) -> Option<Event> {
        if let Some(message) = &step.elsewhere
            && is_list_changed(message)
        {
            let _ = self.link.signal.send(Signal::ListChanged);
        }
        if let (Some(body), Some(greeted), Era::Legacy) =
            (step.upstream, &self.greeted, self.link.era())
        {
            self.link.tell(body, greeted.clone());
        }
        if self.exchange.is_done()
            && let Stage::Streaming(events) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            events.finish(&self.link.client);
        }
        step.event
    }

    /// Closing the stream is what cancels a modern request; a legacy one is told.
    pub(in crate::upstream) fn give_up(&mut self, why: GiveUp) {
        let unsent = matches!(self.stage, Stage::Unsent { .. } | Stage::Waiting);
        // The server has answered, and the answer could not be read for lack of room.
        let short = self.allowance.room.as_ref().is_some_and(|room| room.is_short());
        let step = match (why, unsent) {
            (GiveUp::TimedOut, false) if short => self.exchange.undeliverable(),
            (GiveUp::TimedOut, true) => self.exchange.unsent(),
            (GiveUp::TimedOut, false) => self.exchange.timed_out(),
            (GiveUp::Cancelled(reason), _) => self.exchange.cancelled_because(reason.as_deref()),
        };
        self.stage = Stage::Over;
        if let (Some(body), Some(greeted), Era::Legacy, false) =
            (step.upstream, &self.greeted, self.link.era(), unsent)
        {
            self.link.tell(body, greeted.clone());
        }
        self.pending = step.event;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.exchange.is_done() {
            self.give_up(GiveUp::LEFT);
        }
    }
}
