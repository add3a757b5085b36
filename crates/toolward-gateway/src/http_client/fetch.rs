//! A single request with a response of bounded size, on its own connection: signing keys of an
//! issuer, a token from its endpoint. Redirects are not followed.

use std::io;

use bytes::Bytes;
use toolward_wire::http::Headers;

use super::origin::Origin;
use super::{Address, read_body};

/// A complete response.
pub(crate) struct Document {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// Fetches a document of at most `limit` bytes. The caller sets the timeout.
pub(crate) async fn get(address: &Address, limit: usize) -> io::Result<Document> {
    ask(address, "GET", &[], None, limit).await
}

/// Posts a form.
pub(crate) async fn post_form(
    address: &Address,
    fields: &[(&str, &str)],
    form: &str,
    limit: usize,
) -> io::Result<Document> {
    let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
    all.extend(fields);
    ask(address, "POST", &all, Some(form), limit).await
}

async fn ask(
    address: &Address,
    method: &str,
    fields: &[(&str, &str)],
    form: Option<&str>,
    limit: usize,
) -> io::Result<Document> {
    let origin = Origin::new(address.clone(), None);
    let mut all = vec![("Accept", "application/json"), ("Accept-Encoding", "identity")];
    all.extend(fields);
    let mut request = origin.request(method, &address.target, &all, form.map(str::len))?;
    request.extend_from_slice(form.unwrap_or_default().as_bytes());
    let mut connection = origin.connect().await?;
    connection.write(&request).await?;
    let head = connection.response().await?;
    let body = read_body(&mut connection, &head, limit).await?;
    Ok(Document { status: head.status, headers: head.headers, body })
}
