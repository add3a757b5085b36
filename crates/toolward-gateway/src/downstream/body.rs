//! Reads request bodies within time and memory limits.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use toolward_wire::http::{BodyError, BodyReader, RequestHead};

use crate::budget::Reservation;

/// A body must arrive within this time, or at least at [`MIN_BODY_RATE`].
pub(super) const BODY: Duration = Duration::from_secs(10);
/// How long a client may take to read `100 Continue`.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum rate of a body after the first ten seconds, in bytes per second.
pub(super) const MIN_BODY_RATE: u64 = 16 << 10;
/// Maximum bytes of a single read.
const MAX_READ: usize = 64 << 10;
/// The buffer of a larger body is not reused for the next request.
const LARGE_BODY: usize = 32 << 10;

/// Reads the body of a request, or returns the HTTP status of its rejection. `None`: the client has
/// disconnected.
///
/// Memory is reserved as the body arrives, not as it is announced: a client that announces a large body
/// and sends nothing holds no memory. A body that arrives more slowly than [`MIN_BODY_RATE`] is rejected.
pub async fn read_body<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    head: &RequestHead,
    mut reader: BodyReader,
    room: Option<&Reservation>,
) -> Result<Option<Bytes>, u16>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if head.expects_continue && buffer.is_empty() {
        let continued = async {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            stream.flush().await
        };
        // A client that does not read must not hold the connection.
        if !matches!(timeout(CONTINUE_TIMEOUT, continued).await, Ok(Ok(()))) {
            return Ok(None);
        }
    }
    let mut begun = None;
    let base = room.map_or(0, Reservation::bytes);
    loop {
        let held = reader.held() + buffer.len();
        if room.is_some_and(|room| !room.try_grow_to(base + held)) {
            return Err(503);
        }
        match reader.read(buffer) {
            Ok(Some(body)) => {
                if body.len() > LARGE_BODY {
                    // The memory of a large body is freed with the body.
                    *buffer = BytesMut::from(&buffer[..]);
                }
                return Ok(Some(body));
            }
            Ok(None) => {}
            Err(problem) => return Err(status(&problem)),
        }
        buffer.reserve(8 << 10);
        let arrived = Duration::from_secs(held as u64 / MIN_BODY_RATE);
        let mut into = (&mut *buffer).limit(MAX_READ);
        // A body that arrived with its head needs no deadline.
        let begun = *begun.get_or_insert_with(Instant::now);
        match timeout_at(begun + BODY + arrived, stream.read_buf(&mut into)).await {
            Ok(Ok(1..)) => {}
            Ok(_) => return Ok(None),
            Err(_) => return Err(408),
        }
    }
}

pub fn status(problem: &BodyError) -> u16 {
    match problem {
        BodyError::TooLarge => 413,
        BodyError::Malformed | BodyError::CutShort => 400,
    }
}

#[cfg(test)]
mod tests {
    use toolward_wire::http::{BodyLength, HeadLimits, read_request};

    use super::*;

    fn head(fields: &str) -> RequestHead {
        let mut bytes = BytesMut::from(
            format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n{fields}\r\n")
                .as_str(),
        );
        read_request(&mut bytes, &HeadLimits::default()).unwrap().unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_does_not_read_whether_to_continue_is_given_up() {
        let (mut stream, _client) = tokio::io::duplex(8);
        let reader = BodyReader::new(BodyLength::Known(5), 5).unwrap();
        let mut buffer = BytesMut::new();
        let head = head("Expect: 100-continue\r\n");
        let read = read_body(&mut stream, &mut buffer, &head, reader, None);
        let read = timeout(CONTINUE_TIMEOUT + Duration::from_secs(20), read).await;
        assert_eq!(read.expect("it ends by itself"), Ok(None));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_is_reserved_as_it_arrives() {
        let budget = crate::budget::Budget::new(400);
        let room = budget.account(None).reserve_nothing();
        let (mut stream, mut client) = tokio::io::duplex(1024);
        let reader = BodyReader::new(BodyLength::Known(1000), 1000).unwrap();
        let mut buffer = BytesMut::new();
        client.write_all(&[b'x'; 60]).await.unwrap();
        let head = head("");
        let read = read_body(&mut stream, &mut buffer, &head, reader, Some(&room));
        tokio::pin!(read);
        assert!(timeout(Duration::from_millis(50), &mut read).await.is_err());
        assert_eq!(budget.held(), 60, "not the announced length");
        client.write_all(&[b'x'; 60]).await.unwrap();
        assert_eq!(read.await, Err(503), "the share is used up");
    }
}
