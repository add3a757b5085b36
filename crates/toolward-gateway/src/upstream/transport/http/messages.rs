//! A stream of messages, and the place from which it can be taken up again.

use std::io;
use std::time::Duration;

use toolward_wire::{Message, Sender};

use crate::http_client::Client;
use crate::parse::parse;
use crate::upstream::transport::event_stream::Events;

/// A longer event id is not kept: it would have to fit into a header.
const LONGEST_ID: usize = 1024;

pub(super) struct Messages {
    events: Events,
    longest: usize,
    place: Place,
}

/// Where a stream was left.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The last event that had an id.
    pub(super) event: Option<String>,
    /// How long the server wants us to wait.
    pub(super) retry: Option<Duration>,
    /// Something came.
    pub(super) moved: bool,
}

impl Messages {
    /// `longest` is the largest message.
    pub(super) fn new(events: Events, longest: usize) -> Messages {
        Messages { events, longest, place: Place::default() }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Message>> {
        while let Some(event) = self.events.next().await? {
            let is_message = event.is_message();
            self.place.moved = true;
            if let Some(id) = event.id {
                self.place.event = Some(id).filter(|id| (1..=LONGEST_ID).contains(&id.len()));
            }
            self.place.retry = event.retry.map(Duration::from_millis).or(self.place.retry);
            if is_message {
                let message = parse(event.data, self.longest, Sender::Server).await;
                return message.map(Some).map_err(|error| io::Error::other(error.to_string()));
            }
        }
        Ok(None)
    }

    /// A stream that goes on after an event, with what was said about waiting.
    pub(super) fn begin_after(&mut self, event: String, retry: Duration) {
        self.place = Place { event: Some(event), retry: Some(retry), moved: false };
    }

    pub(super) fn into_place(self) -> Place {
        self.place
    }

    /// A stream that has just ended leaves its connection for the next request.
    pub(super) fn finish(self, client: &Client) {
        self.events.finish(client);
    }
}
