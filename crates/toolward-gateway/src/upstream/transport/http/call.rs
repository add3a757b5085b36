//! A call in flight over HTTP. It is sent once. A stream that ends before the response is resumed
//! after its last event, if that has an id.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use toolward_wire::exchange::{Event, Exchange, ExchangeEnd, Failure, Step};
use toolward_wire::{Era, Id, Kind, Message};

use super::messages::{Messages, StreamPosition};
use super::{Field, HandshakeResult, HttpSession, PostError, Reply, unreachable};
use crate::upstream::size_limit::{Allowance, TooLarge};
use crate::upstream::transport::Signal;
use crate::upstream::{GiveUp, Unavailable};

/// The delay before a stream is resumed, unless the server requests another one, and the bounds on
/// that.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(1);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The maximum number of consecutive attempts to resume a stream.
const MAX_RESUME_ATTEMPTS: u32 = 5;

/// A request in flight. Dropping it before its end cancels it.
pub(in crate::upstream) struct Call {
    session: Arc<HttpSession>,
    exchange: Exchange,
    greeted: Option<Arc<HandshakeResult>>,
    stage: Stage,
    /// The final event, until it is returned.
    pending: Option<Event>,
    /// The attempts to resume the stream since the last event.
    failed_resumes: u32,
    /// The server responded with a stream.
    streamed: bool,
    allowance: Allowance,
}

enum Stage {
    Unsent {
        body: Bytes,
        more: Vec<Field>,
    },
    /// About to be sent, once there is a session.
    Waiting,
    /// Sent; whether it arrived is not known.
    Sent,
    Streaming(Box<Messages>),
    /// The stream ended before the response; the last event, and the delay.
    Cut(String, Duration),
    Over,
}

/// How a stream ended before the response.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    /// The server closed it in order, so that it is polled.
    ByServer,
    Broken,
}

impl Call {
    pub(super) fn new(
        session: Arc<HttpSession>,
        exchange: Exchange,
        body: Bytes,
        more: Vec<Field>,
        allowance: Allowance,
    ) -> Call {
        let stage = Stage::Unsent { body, more };
        Call {
            session,
            exchange,
            greeted: None,
            stage,
            pending: None,
            failed_resumes: 0,
            streamed: false,
            allowance,
        }
    }

    /// Handles a message of the server; a response that exceeds the size limit is an error.
    fn received(&mut self, message: Message) -> Step {
        let size = message.body().len();
        match matches!(message.kind(), Kind::Response | Kind::Error)
            && size > self.allowance.longest
        {
            true => self.exchange.too_large(Some(size as u64)),
            false => self.exchange.upstream(message),
        }
    }

    /// Handles a response that is unreadable or too large.
    fn unread(&mut self, error: &io::Error) -> Step {
        tracing::warn!(target: "upstream", server = self.session.name, "{}", unreachable(error));
        match TooLarge::of(error) {
            Some(large) => self.exchange.too_large(large.size),
            None => self.exchange.unreadable(),
        }
    }

    pub(in crate::upstream) fn is_streamed(&self) -> bool {
        self.streamed
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
                    Ok(None) => self.cut(Cut::ByServer),
                    Err(_) => self.cut(Cut::Broken),
                },
                Stage::Cut(event, delay) => {
                    let (event, delay) = (event.clone(), *delay);
                    Box::pin(self.resume(event, delay)).await
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

    /// Sends the request. An expired session is replaced once: the server did not process the
    /// request.
    async fn begin(&mut self) -> Step {
        let (body, more) = match std::mem::replace(&mut self.stage, Stage::Waiting) {
            Stage::Unsent { body, more } => (body, more),
            stage => {
                self.stage = stage;
                return Step::default();
            }
        };
        for _ in 0..2 {
            let greeted = match self.session.greeted().await {
                Ok(greeted) => greeted,
                Err(_) => return self.exchange.unsent(),
            };
            self.greeted = Some(greeted.clone());
            self.stage = Stage::Sent;
            match self.session.post(&body, &more, Some(&greeted), self.allowance.clone()).await {
                Ok((Reply::Json(message), _)) => {
                    // Some servers send errors as JSON and results as streams.
                    if message.kind() == Kind::Response {
                        self.session.responds_with_stream(false);
                    }
                    return self.received(message);
                }
                Ok((Reply::Events(events), _)) => {
                    self.streamed = true;
                    self.session.responds_with_stream(true);
                    self.stage = Stage::Streaming(events);
                    return Step::default();
                }
                Ok((Reply::NoSession, _)) => self.session.forget(&greeted).await,
                Ok((Reply::Accepted, _)) => return self.exchange.unreadable(),
                Ok((Reply::Refused(status), _)) => {
                    let why = match status {
                        401 | 403 => Unavailable::Refuses(status).to_string(),
                        _ => format!("it returned status {status}"),
                    };
                    tracing::warn!(target: "upstream", server = self.session.name, "{why}");
                    // A 4xx status means that the request was rejected without being processed.
                    return match status {
                        400..500 => self.exchange.unsent(),
                        _ => self.exchange.gone(),
                    };
                }
                Err(PostError { error, sent: true }) if error.kind() == io::ErrorKind::Other => {
                    return self.unread(&error);
                }
                Err(failed) => {
                    tracing::warn!(target: "upstream", server = self.session.name, "{failed}");
                    return match failed.sent {
                        true => self.exchange.gone(),
                        false => self.exchange.unsent(),
                    };
                }
            }
        }
        // The server rejects the new session as well as the old one.
        self.exchange.unsent()
    }

    /// Handles a stream that ended before the response.
    fn cut(&mut self, cut: Cut) -> Step {
        let Stage::Streaming(events) = std::mem::replace(&mut self.stage, Stage::Sent) else {
            return self.exchange.gone();
        };
        let StreamPosition { event, retry, moved } = events.into_position();
        if moved {
            self.failed_resumes = 0;
        }
        match event {
            Some(event) if self.session.era() == Era::Legacy => {
                let delay =
                    retry.unwrap_or(DEFAULT_RETRY_DELAY).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
                self.stage = Stage::Cut(event, delay);
                let closed = (cut == Cut::ByServer).then_some(Event::StreamClosed(delay));
                Step { event: closed, ..Step::default() }
            }
            _ => self.exchange.gone(),
        }
    }

    /// Resumes the stream after an event. The call itself is not sent again.
    async fn resume(&mut self, event: String, delay: Duration) -> Step {
        let Some(greeted) =
            self.greeted.clone().filter(|_| self.failed_resumes < MAX_RESUME_ATTEMPTS)
        else {
            return self.exchange.gone();
        };
        self.failed_resumes += 1;
        tokio::time::sleep(delay).await;
        let field = (Cow::Borrowed("Last-Event-ID"), Cow::Owned(event.clone()));
        let again = match self.session.get(&[field], &greeted, self.allowance.clone()).await {
            Ok(Reply::Events(mut events)) => {
                events.begin_after(event, delay);
                Stage::Streaming(events)
            }
            // The server may recover in a moment.
            Ok(Reply::Refused(429 | 500..)) => Stage::Cut(event, delay),
            Err(error) if error.kind() != io::ErrorKind::Other => Stage::Cut(event, delay),
            Ok(_) | Err(_) => return self.exchange.gone(),
        };
        self.stage = again;
        Step::default()
    }

    fn carry_out(&mut self, step: Step) -> Option<Event> {
        if let Some(message) = &step.elsewhere {
            match (Signal::of(message), self.session.opening.outlet()) {
                (Some(signal), _) => self.session.signal.send(&signal),
                (None, Some(outlet)) => outlet.notified(&self.session.name, message),
                (None, None) => {}
            }
        }
        if let (Some(body), Some(greeted), Era::Legacy) =
            (step.upstream, &self.greeted, self.session.era())
        {
            self.session.tell(body, greeted.clone());
        }
        if self.exchange.is_done()
            && let Stage::Streaming(events) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            events.finish(&self.session.client);
        }
        step.event
    }

    /// Passes on the client's response to a request of the server.
    pub(in crate::upstream) fn respond(&mut self, id: &Id, response: &Message) {
        let step = self.exchange.answered(id, response);
        if let (Some(body), Some(greeted)) = (step.upstream, &self.greeted) {
            self.session.tell(body, greeted.clone());
        }
    }

    /// Closing the stream cancels a modern request; a legacy one needs a notification.
    pub(in crate::upstream) fn give_up(&mut self, why: GiveUp) {
        let unsent = matches!(self.stage, Stage::Unsent { .. } | Stage::Waiting);
        // The server has responded, and the response could not be read for lack of memory.
        let short = self.allowance.room.as_ref().is_some_and(|room| room.is_short());
        let step = match (why, unsent) {
            (GiveUp::TimedOut, false) if short => self.exchange.undeliverable(),
            (GiveUp::TimedOut, true) => self.exchange.unsent(),
            (GiveUp::TimedOut, false) => self.exchange.timed_out(),
            (GiveUp::Cancelled(reason), _) => self.exchange.cancelled_because(reason.as_deref()),
        };
        self.stage = Stage::Over;
        if let (Some(body), Some(greeted), Era::Legacy, false) =
            (step.upstream, &self.greeted, self.session.era(), unsent)
        {
            self.session.tell(body, greeted.clone());
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
