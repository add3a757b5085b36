//! Oversized legacy requests, of which only the id is read.
//!
//! Older SDKs end the whole session on status 413. A request whose id is known is answered with a
//! JSON-RPC error instead, which fails only that request.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Duration, Instant, timeout_at};
use toolward_wire::http::{BodyLength, BodyStream, Method, Piece, RequestHead};
use toolward_wire::skim::Skim;
use toolward_wire::{Era, Id, Revision, headers};

use super::body::{BODY, MIN_BODY_RATE};
use super::sessions::SESSION_ID;

/// A larger body is not read at all.
const MAX_SKIMMED_BYTES: u64 = 64 << 20;

/// The id of a request in a session whose body exceeds the limit. `None` if it is not such a request or
/// has no unambiguous id; the connection cannot be reused then.
pub(super) async fn request_id<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    head: &RequestHead,
) -> Option<Id>
where
    S: AsyncRead + Unpin,
{
    let stated = head.headers.get(headers::PROTOCOL_VERSION).and_then(Revision::parse);
    let modern = stated.is_some_and(|revision| revision.era() == Era::Modern);
    let in_session = head.headers.get(SESSION_ID).is_some() && !modern;
    let BodyLength::Known(length @ ..=MAX_SKIMMED_BYTES) = head.body else { return None };
    // A client that expects `100 Continue` gets the rejection before it sends the body.
    if head.method != Method::Post || !in_session || head.expects_continue {
        return None;
    }
    let (mut body, mut skim) = (BodyStream::new(BodyLength::Known(length)), Skim::default());
    let (begun, mut arrived) = (Instant::now(), 0);
    loop {
        match body.next(buffer).ok()? {
            Piece::Data(data) => {
                arrived += data.len() as u64;
                skim.push(&data);
            }
            Piece::End => return skim.request_id(),
            Piece::NeedMore => {
                buffer.reserve(64 << 10);
                let deadline = begun + BODY + Duration::from_secs(arrived / MIN_BODY_RATE);
                let read = timeout_at(deadline, stream.read_buf(buffer)).await;
                read.ok()?.ok().filter(|read| *read > 0)?;
            }
        }
    }
}
