//! A single request with a response of bounded size, on its own connection: signing keys of an
//! issuer, a token from its endpoint. Redirects are not followed.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use toolward_wire::http::Headers;

use super::origin::Origin;
use super::{Address, ClientTls, read_body};

/// A complete response.
pub(crate) struct Document {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// A request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// The content type and the body.
    pub(crate) body: Option<(&'a str, &'a str)>,
    /// The maximum size of the response's body.
    pub(crate) limit: usize,
}

impl<'a> Request<'a> {
    pub(crate) fn get(limit: usize) -> Request<'a> {
        Request { method: "GET", fields: &[], body: None, limit }
    }

    pub(crate) fn form(form: &'a str, fields: &'a [(&'a str, &'a str)], limit: usize) -> Self {
        let body = Some(("application/x-www-form-urlencoded", form));
        Request { method: "POST", fields, body, limit }
    }
}

/// Fetches a document of at most `limit` bytes. The caller sets the timeout.
pub(crate) async fn get(address: &Address, limit: usize) -> io::Result<Document> {
    send(address, None, None, Request::get(limit)).await
}

/// Posts a form.
pub(crate) async fn post_form(
    address: &Address,
    fields: &[(&str, &str)],
    form: &str,
    limit: usize,
) -> io::Result<Document> {
    send(address, None, None, Request::form(form, fields, limit)).await
}

/// Whether requests to an address go through a proxy, which resolves its host.
pub(crate) fn is_proxied(address: &Address) -> bool {
    Origin::new(address.clone(), None).is_proxied()
}

/// Sends a request. With `to`, the connection goes to one of these addresses, and the host is not resolved.
pub(crate) async fn send(
    address: &Address,
    to: Option<&[SocketAddr]>,
    tls: Option<&ClientTls>,
    request: Request<'_>,
) -> io::Result<Document> {
    let origin = Origin::new(address.clone(), tls.cloned()).resolved(to);
    let mut all = vec![("Accept", "application/json"), ("Accept-Encoding", "identity")];
    all.extend(request.body.map(|(kind, _)| ("Content-Type", kind)));
    all.extend(request.fields);
    let body = request.body.map(|(_, body)| body);
    let mut bytes = origin.request(request.method, &address.target, &all, body.map(str::len))?;
    bytes.extend_from_slice(body.unwrap_or_default().as_bytes());
    let mut connection = origin.connect().await?;
    connection.write(&bytes).await?;
    let head = connection.response().await?;
    let body = read_body(&mut connection, &head, request.limit).await?;
    Ok(Document { status: head.status, headers: head.headers, body })
}
