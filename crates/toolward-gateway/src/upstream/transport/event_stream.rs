//! An event stream of a server over HTTP.

use std::io;
use std::sync::{Arc, OnceLock};

use toolward_wire::http::{BodyStream, Piece, ResponseHead};
use toolward_wire::sse::{SseDecoder, SseEvent};

use crate::budget::{Account, Reservation};
use crate::http_client::gzip::{Coding, Gunzip};
use crate::http_client::{Client, Connection};
use crate::upstream::size_limit::{Allowance, TooLarge};

pub(in crate::upstream) struct Events {
    connection: Connection,
    body: BodyStream,
    gunzip: Option<Gunzip>,
    decoder: SseDecoder,
    allowance: Allowance,
    /// The account for events that belong to no call yet; empty until a client's call is forwarded.
    account: Option<Arc<OnceLock<Arc<Account>>>>,
}

impl Events {
    /// The body of a response on this connection. `allowance` applies to one event.
    pub(in crate::upstream) fn new(
        connection: Connection,
        head: &ResponseHead,
        allowance: Allowance,
    ) -> io::Result<Events> {
        let (body, decoder) = (BodyStream::new(head.body), SseDecoder::new(allowance.longest));
        let gunzip = (Coding::of(&head.headers)? == Coding::Gzip).then(Gunzip::new);
        Ok(Events { connection, body, gunzip, decoder, allowance, account: None })
    }

    /// Charges each event to an account until [`take_room`](Self::take_room) takes over its memory.
    pub(in crate::upstream) fn charged_to(self, account: Arc<OnceLock<Arc<Account>>>) -> Events {
        Events { account: Some(account), ..self }
    }

    /// The memory of the last event.
    pub(in crate::upstream) fn take_room(&mut self) -> Option<Arc<Reservation>> {
        self.allowance.room.take()
    }

    /// The next event; `None` at the end.
    pub(in crate::upstream) async fn next(&mut self) -> io::Result<Option<SseEvent>> {
        // The previous event has been passed on.
        self.allowance.release(self.decoder.held());
        loop {
            if let Some(event) = self.decoder.next_event() {
                return event.map(Some).map_err(|_| TooLarge::error(None));
            }
            match self.body.next(&mut self.connection.buffer) {
                Ok(Piece::Data(data)) => self.push(&data).await?,
                Ok(Piece::End) => return Ok(None),
                Ok(Piece::NeedMore) => {
                    if self.allowance.room.is_none() {
                        let account = self.account.as_ref().and_then(|account| account.get());
                        self.allowance.room =
                            account.map(|account| Arc::new(account.reserve_nothing()));
                    }
                    self.allowance.hold(self.decoder.held()).await;
                    if !self.connection.read_more().await? {
                        return Ok(None);
                    }
                }
                Err(problem) => return Err(io::Error::other(problem.to_string())),
            }
        }
    }

    async fn push(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(gunzip) = &mut self.gunzip else {
            self.decoder.push(data);
            return Ok(());
        };
        for step in Gunzip::steps(data) {
            self.decoder.push(&gunzip.push(step)?);
            self.allowance.hold(self.decoder.held()).await;
        }
        Ok(())
    }

    /// Returns the connection to the pool if the stream has ended.
    pub(in crate::upstream) fn finish(mut self, client: &Client) {
        if let Ok(Piece::End) = self.body.next(&mut self.connection.buffer) {
            client.put(self.connection);
        }
    }
}
