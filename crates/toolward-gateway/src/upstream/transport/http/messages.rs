//! A stream of messages, and the position from which it can be resumed.

use std::io;
use std::time::Duration;

use toolward_wire::{Message, Sender};

use crate::http_client::Client;
use crate::parse::parse;
use crate::upstream::transport::event_stream::Events;

/// A longer event id is not kept: it would have to fit into a header.
const MAX_EVENT_ID_BYTES: usize = 1024;

pub(super) struct Messages {
    events: Events,
    longest: usize,
    position: StreamPosition,
}

/// The position at which a stream was interrupted.
#[derive(Debug, Default)]
pub(super) struct StreamPosition {
    /// The last event that had an id.
    pub(super) event: Option<String>,
    /// The reconnection delay that the server requested.
    pub(super) retry: Option<Duration>,
    /// An event has arrived.
    pub(super) moved: bool,
}

impl Messages {
    /// `longest` is the maximum size of a message.
    pub(super) fn new(events: Events, longest: usize) -> Messages {
        Messages { events, longest, position: StreamPosition::default() }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Message>> {
        while let Some(event) = self.events.next().await? {
            let is_message = event.is_message();
            self.position.moved = true;
            if let Some(id) = event.id {
                self.position.event =
                    Some(id).filter(|id| (1..=MAX_EVENT_ID_BYTES).contains(&id.len()));
            }
            self.position.retry = event.retry.map(Duration::from_millis).or(self.position.retry);
            if is_message {
                let message = parse(event.data, self.longest, Sender::Server).await;
                return message.map(Some).map_err(|error| io::Error::other(error.to_string()));
            }
        }
        Ok(None)
    }

    /// Resumes a stream after an event, with the requested delay.
    pub(super) fn begin_after(&mut self, event: String, retry: Duration) {
        self.position = StreamPosition { event: Some(event), retry: Some(retry), moved: false };
    }

    pub(super) fn into_position(self) -> StreamPosition {
        self.position
    }

    /// Returns the connection to the pool if the stream has ended.
    pub(super) fn finish(self, client: &Client) {
        self.events.finish(client);
    }
}
