//! A file at a URL, downloaded only if it has changed.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::Address;
use super::fetch::{Request, send};

/// A file that has changed.
#[derive(Debug)]
pub struct Download {
    pub content: Bytes,
    /// Identifies this version of the file.
    pub etag: Option<String>,
}

/// Downloads a file of at most `limit` bytes; `None` if it still has the version `etag`.
pub async fn download(
    address: &Address,
    etag: Option<&str>,
    limit: usize,
    timeout: Duration,
) -> io::Result<Option<Download>> {
    let fields: Vec<(&str, &str)> = etag.map(|etag| ("If-None-Match", etag)).into_iter().collect();
    let request = Request { fields: &fields, ..Request::get(limit) };
    let timed = tokio::time::timeout(timeout, send(address, None, None, request)).await;
    let response = timed.map_err(|_| io::Error::other("it does not respond in time"))??;
    match response.status {
        200 => {
            let etag = response.headers.get("etag").map(String::from);
            Ok(Some(Download { content: response.body, etag }))
        }
        304 => Ok(None),
        status => Err(io::Error::other(format!("the response has status {status}"))),
    }
}
