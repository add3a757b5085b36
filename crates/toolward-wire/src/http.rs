//! Strict HTTP/1.1 parser and writer.
//!
//! Ambiguous messages are rejected. HTTP libraries accept both `Content-Length` and
//! `Transfer-Encoding`, two `Host` headers, or a bare line feed, and drop the evidence before the
//! application can look at it. Two parsers that disagree about the end of a request also disagree
//! about its content, which is the basis of request smuggling.
//!
//! ```
//! use bytes::BytesMut;
//! use toolward_wire::http::{self, BodyReader, HeadLimits, Method, ResponseBody};
//!
//! let mut buffer = BytesMut::from(
//!     &b"POST /mcp HTTP/1.1\r\nHost: Localhost:8080\r\nContent-Length: 2\r\n\r\n{}GET"[..],
//! );
//! let head = http::read_request(&mut buffer, &HeadLimits::default()).unwrap().unwrap();
//! assert_eq!((head.method, &head.path[..], &head.host[..]), (Method::Post, "/mcp", "localhost:8080"));
//! let mut body = BodyReader::new(head.body, 1024).unwrap();
//! assert_eq!(body.read(&mut buffer).unwrap().unwrap(), &b"{}"[..]);
//! assert_eq!(&buffer[..], b"GET");
//!
//! let mut out = Vec::new();
//! http::write_response(&mut out, 202, &[], ResponseBody::Empty, true).unwrap();
//! assert_eq!(out, b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
//!
//! // Rejected: two headers specify the length of the body.
//! let mut twice = BytesMut::from(&b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\
//!     Transfer-Encoding: chunked\r\n\r\n"[..]);
//! assert_eq!(http::read_request(&mut twice, &HeadLimits::default()).unwrap_err().status(), 400);
//! ```

mod body;
mod chars;
mod error;
mod head;
mod request;
mod response;
mod write;

pub use body::{BodyError, BodyLength, BodyReader, BodyStream, Piece};
pub(crate) use chars::is_value;
pub use error::HeadError;
pub use head::{HeadLimits, Headers};
pub use request::{MAX_TARGET, Method, RequestHead, read_request};
pub use response::{ResponseHead, read_response};
pub use write::{
    BadField, ResponseBody, write_chunk, write_last_chunk, write_request, write_response,
};
