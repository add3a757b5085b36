//! Parsing of messages without blocking the thread's other requests.

use bytes::Bytes;
use tokio::task::JoinHandle;
use toolward_wire::{Message, MessageError, Sender};

/// Longer messages are parsed on a blocking thread.
const MAX_INLINE: usize = 128 << 10;

/// Parses a message; a long one on a blocking thread.
pub(crate) async fn parse(
    body: Bytes,
    limit: usize,
    sender: Sender,
) -> Result<Message, MessageError> {
    if body.len() <= MAX_INLINE {
        return Message::parse(body, limit, sender);
    }
    let parsed = on_blocking_thread(body.clone(), limit, sender).await;
    // The runtime has no blocking threads left while the process shuts down.
    parsed.unwrap_or_else(|_| Message::parse(body, limit, sender))
}

/// Parses a long message on a blocking thread.
pub(crate) fn on_blocking_thread(
    body: Bytes,
    limit: usize,
    sender: Sender,
) -> JoinHandle<Result<Message, MessageError>> {
    tokio::task::spawn_blocking(move || Message::parse(body, limit, sender))
}
