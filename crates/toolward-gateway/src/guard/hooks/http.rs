//! A hook that is a service: one POST a call, on connections that are kept.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use toolward_wire::http::{BodyReader, write_request};

use super::answer::{Failed, LONGEST, Said, of_service};
use super::share::{Quota, Shares};
use crate::upstream::Address;
use crate::upstream::pool::{Connection, Pool};

/// OPA's data API has the question under `input`.
const OPA: &str = "/v1/data/";

pub(super) struct Http {
    address: Address,
    pool: Pool,
    shares: Arc<Shares>,
}

impl Http {
    pub(super) fn new(address: Address) -> Http {
        Http { pool: Pool::new(address.clone()), address, shares: Shares::new(Quota::CONCURRENT) }
    }

    pub(super) async fn ask(&self, request: &[u8], caller: Option<&str>) -> Result<Said, Failed> {
        let _slot = self.shares.slot(caller.unwrap_or_default()).await;
        let body = match self.address.target.starts_with(OPA) {
            true => with_input(request),
            false => request.to_vec(),
        };
        let answer = match self.post(&body).await {
            // A kept connection can be closed at the moment it is used; asking changes nothing.
            Err(error) if is_closed(&error) => self.post(&body).await,
            answer => answer,
        };
        match answer {
            Ok((200, body)) => of_service(&body),
            Ok((status, _)) => Err(Failed(format!("it answers with status {status}"))),
            Err(error) => Err(Failed(format!("it cannot be asked: {error}"))),
        }
    }

    async fn post(&self, body: &[u8]) -> io::Result<(u16, Bytes)> {
        let fields = [
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
        ];
        let mut request = Vec::with_capacity(256 + body.len());
        let Address { target, authority, .. } = &self.address;
        write_request(&mut request, "POST", target, authority, &fields, Some(body.len()))
            .map_err(|error| io::Error::other(error.to_string()))?;
        request.extend_from_slice(body);
        let mut connection = self.pool.take().await?;
        connection.write(&request).await?;
        let head = connection.response().await?;
        if head.headers.get("content-encoding").is_some_and(|coding| coding != "identity") {
            return Err(io::Error::other("its answer is encoded, which was not asked for"));
        }
        let answer = read(&mut connection, &head).await?;
        if head.keep_alive {
            self.pool.put(connection);
        }
        Ok((head.status, answer))
    }
}

async fn read(
    connection: &mut Connection,
    head: &toolward_wire::http::ResponseHead,
) -> io::Result<Bytes> {
    let problem = |problem| io::Error::other(format!("{problem}"));
    let mut reader = BodyReader::new(head.body, LONGEST).map_err(problem)?;
    loop {
        if let Some(body) = reader.read(&mut connection.buffer).map_err(problem)? {
            return Ok(body);
        }
        if !connection.read_more().await? {
            return reader.at_eof(&mut connection.buffer).map_err(problem);
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The same request, and once more under `input`.
fn with_input(request: &[u8]) -> Vec<u8> {
    let mut body = request.strip_suffix(b"}").unwrap_or(request).to_vec();
    body.extend_from_slice(b",\"input\":");
    body.extend_from_slice(request);
    body.push(b'}');
    body
}
