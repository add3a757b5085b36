//! One document from elsewhere: keys of an issuer, a token from its endpoint. One request, one answer of
//! bounded size on a connection of its own; a redirect is an answer like any other and is not followed.

use std::io;

use bytes::Bytes;
use toolward_wire::http::{BodyReader, Headers, write_request};

use super::address::Address;
use super::pool::Connection;

/// What was answered.
pub(crate) struct Document {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// Asks for a document. How long that may take is the caller's business.
pub(crate) async fn get(address: &Address, largest: usize) -> io::Result<Document> {
    ask(address, "GET", &[], None, largest).await
}

/// Sends a form.
pub(crate) async fn post_form(
    address: &Address,
    fields: &[(&str, &str)],
    form: &str,
    largest: usize,
) -> io::Result<Document> {
    let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
    all.extend(fields);
    ask(address, "POST", &all, Some(form), largest).await
}

async fn ask(
    address: &Address,
    method: &str,
    fields: &[(&str, &str)],
    form: Option<&str>,
    largest: usize,
) -> io::Result<Document> {
    let mut all = vec![("Accept", "application/json"), ("Accept-Encoding", "identity")];
    all.extend(fields);
    let mut request = Vec::new();
    let length = form.map(str::len);
    write_request(&mut request, method, &address.target, &address.authority, &all, length)
        .map_err(|error| io::Error::other(error.to_string()))?;
    request.extend_from_slice(form.unwrap_or_default().as_bytes());
    let mut connection = Connection::open(address).await?;
    connection.write(&request).await?;
    let head = connection.response().await?;
    if head.headers.get("content-encoding").is_some_and(|coding| coding != "identity") {
        return Err(io::Error::other("the answer is encoded, which was not asked for"));
    }
    let problem = |problem| io::Error::other(format!("{problem}"));
    let mut reader = BodyReader::new(head.body, largest).map_err(problem)?;
    let body = loop {
        if let Some(body) = reader.read(&mut connection.buffer).map_err(problem)? {
            break body;
        }
        if !connection.read_more().await? {
            break reader.at_eof(&mut connection.buffer).map_err(problem)?;
        }
    };
    Ok(Document { status: head.status, headers: head.headers, body })
}
