//! HTTP/1.1 client for everything the gateway sends requests to: servers, hooks, signing keys and
//! token endpoints.
//!
//! A [`Client`] belongs to one origin. It finds the proxy in the environment, verifies the origin
//! with the system's certificates or a private CA, and keeps idle connections per thread, so that a
//! response wakes the task that waits for it without a hop between threads. Redirects are never
//! followed: a server must not choose where credentials are sent.
//!
//! Responses are read by the strict parser of `toolward_wire::http`, not by a general client
//! library, so that the gateway and the server cannot disagree about where a response ends.

mod address;
mod connection;
mod download;
pub(crate) mod fetch;
pub(crate) mod gzip;
mod origin;
mod pool;
mod proxy;
mod tls;

use std::io;

use bytes::Bytes;
use toolward_wire::http::{BodyReader, ResponseHead, write_request};

pub use self::address::Address;
pub(crate) use self::connection::{Connection, MAX_READ_BYTES};
pub use self::download::{Download, download};
use self::gzip::Coding;
use self::origin::Origin;
use self::pool::Pool;
pub use self::tls::ClientTls;
pub(crate) use self::tls::connector;

/// A client for one origin, with its idle connections.
pub(crate) struct Client {
    origin: Origin,
    pool: Pool,
}

/// Why a request was not written.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) error: io::Error,
    /// Part of the request may have reached the other side.
    pub(crate) sent: bool,
}

impl SendError {
    pub(crate) fn unsent(error: io::Error) -> SendError {
        SendError { error, sent: false }
    }
}

impl From<SendError> for io::Error {
    fn from(failed: SendError) -> io::Error {
        failed.error
    }
}

impl Client {
    /// `tls` replaces the system's certificates.
    pub(crate) fn new(address: Address, tls: Option<ClientTls>) -> Client {
        Client { origin: Origin::new(address, tls), pool: Pool::default() }
    }

    /// The head of a request to the origin. `length` is that of the body.
    pub(crate) fn request(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        length: Option<usize>,
    ) -> io::Result<Vec<u8>> {
        self.origin.request(method, target, fields, length)
    }

    /// Writes a request on an idle connection, or a new one.
    ///
    /// The other side can close an idle connection at the moment it is used. If that happens before
    /// a byte was written, the request is written on a new connection, once; otherwise it could be
    /// carried out twice.
    pub(crate) async fn send(&self, request: &[u8]) -> Result<Connection, SendError> {
        if let Some(mut idle) = self.pool.take() {
            match idle.write(request).await {
                Ok(()) => return Ok(idle),
                Err(failed) if failed.sent => return Err(failed),
                Err(_) => {}
            }
        }
        let mut connection = self.origin.connect().await.map_err(SendError::unsent)?;
        connection.write(request).await?;
        Ok(connection)
    }

    /// Reads a body of at most `limit` bytes, and keeps the connection for the next request.
    pub(crate) async fn body(
        &self,
        mut connection: Connection,
        head: &ResponseHead,
        limit: usize,
    ) -> io::Result<Bytes> {
        let body = read_body(&mut connection, head, limit).await?;
        self.put(connection);
        Ok(body)
    }

    /// Keeps a connection whose response has been read to its end.
    pub(crate) fn put(&self, connection: Connection) {
        self.pool.put(connection);
    }
}

/// Reads a body of at most `limit` bytes, before and after decompression.
async fn read_body(
    connection: &mut Connection,
    head: &ResponseHead,
    limit: usize,
) -> io::Result<Bytes> {
    let coding = Coding::of(&head.headers)?;
    let problem = |problem| io::Error::other(format!("{problem}"));
    let mut reader = BodyReader::new(head.body, limit).map_err(problem)?;
    let body = loop {
        if let Some(body) = reader.read(&mut connection.buffer).map_err(problem)? {
            break body;
        }
        if !connection.read_more().await? {
            break reader.at_eof(&mut connection.buffer).map_err(problem)?;
        }
    };
    match coding {
        Coding::Identity => Ok(body),
        Coding::Gzip => gzip::decompress(&body, limit),
    }
}

/// Writes the head of a request.
fn write_head(
    (method, target, authority): (&str, &str, &str),
    fields: &[(&str, &str)],
    length: Option<usize>,
) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(512 + length.unwrap_or(0));
    write_request(&mut out, method, target, authority, fields, length)
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(out)
}
