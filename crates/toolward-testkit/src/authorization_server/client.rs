//! A blocking HTTP client without features, for following redirects.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use crate::http::{Frame, frame};

pub(super) struct Response {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// `NAME=VALUE` of each cookie.
    pub(super) cookies: Vec<String>,
    pub(super) body: String,
}

pub(super) fn get(url: &str, cookies: &str) -> io::Result<Response> {
    send("GET", url, cookies, "")
}

/// Sends a request over plain HTTP and reads the response to the end of the connection.
pub(super) fn send(method: &str, url: &str, cookies: &str, form: &str) -> io::Result<Response> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("not http: {url}"));
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let rest = rest.split('#').next().unwrap_or(rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut stream = TcpStream::connect(authority)?;
    let cookie = if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
    write!(
        stream,
        "{method} {slash}{path} HTTP/1.1\r\nHost: {authority}\r\n{cookie}Connection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    )?;
    let mut bytes = Vec::new();
    BufReader::new(stream).read_to_end(&mut bytes)?;
    let Frame::Whole(layout) = frame(&bytes)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let mut room = Vec::new();
    let response = layout.message(&bytes, &mut room);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let cookies = response.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"set-cookie"));
    let cookies = cookies.map(|(_, value)| text(value).split(';').next().unwrap_or("").to_string());
    Ok(Response {
        status: response.status().unwrap_or(0),
        location: response.field("location").map(text),
        cookies: cookies.collect(),
        body: text(response.body),
    })
}

/// The address of a reference, relative to another address.
pub(super) fn joined(base: &str, to: &str) -> String {
    if to.contains("://") {
        return to.into();
    }
    let origin: String = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    format!("{origin}{to}")
}
