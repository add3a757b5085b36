//! MCP on the wire, read strictly: what crosses Toolward, as pure functions on bytes.
//!
//! A body is scanned once. What comes out is a [`Message`]: the same bytes, and where their parts
//! lie. Nothing is turned into SDK types and written again, so that what is forwarded is byte for
//! byte what was decided on, unknown fields included; only what the gateway owns is replaced in
//! place. No I/O enters here, no clock, and no policy.
//!
//! ```
//! use toolward_wire::{Era, Id, MAX_REQUEST_BYTES, Message, Sender, method::NameAt};
//!
//! let body = br#"{"jsonrpc": "2.0", "id": "c-7", "method": "tools/call",
//!     "params": {"name": "files__read", "arguments": {"path": "/srv"}, "x-new": [1.50]}}"#;
//! let message = Message::parse(body[..].into(), MAX_REQUEST_BYTES, Sender::Client).unwrap();
//!
//! let row = message.row(Sender::Client, Era::Legacy).unwrap();
//! assert_eq!(row.name_at, NameAt::Param("name"));
//! assert_eq!(message.name(row.name_at).unwrap().unwrap(), "files__read");
//!
//! let forwarded = message.edit().id(&Id::number(1)).set_param_str("name", "read").finish();
//! assert_eq!(
//!     &forwarded[..],
//!     br#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
//!     "params": {"name": "read", "arguments": {"path": "/srv"}, "x-new": [1.50]}}"#
//! );
//!
//! // Two readers could see two tools here, so nobody gets to read it.
//! let twice = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call",
//!     "params":{"name":"read","\u006eame":"rm"}}"#;
//! assert!(Message::parse(twice[..].into(), MAX_REQUEST_BYTES, Sender::Client).is_err());
//! ```
//!
//! # The rooms
//!
//! | module | is |
//! |---|---|
//! | [`scan`] | the strict JSON scanner; [`Raw`] walks what it accepted |
//! | [`Message`], [`Edit`], [`Id`] | the envelope: parts by name, and changes in place |
//! | [`method`] | the table of methods, revisions and eras |
//! | [`Arguments`] | a call's arguments, for policy |
//! | [`list`] | lists, entry by entry |
//! | [`line`], [`sse`] | framing on stdio and on HTTP |
//! | [`http`] | HTTP/1.1 heads and bodies, read strictly |
//! | [`headers`] | headers that repeat the body, in 2026-07-28 |
//! | [`jsonrpc`], [`jsonrpc_error`] | messages that the gateway builds, error codes and the status table |
//! | [`exchange`] | one request's life |

mod arguments;
mod decimal;
mod duplicate_keys;
mod edit;
mod error;
pub mod exchange;
pub mod headers;
pub mod http;
mod id;
pub mod jsonrpc;
pub mod jsonrpc_error;
mod limits;
pub mod line;
pub mod list;
mod member_index;
mod message;
pub mod method;
pub mod names;
mod raw;
pub mod scan;
mod scan_error;
mod span;
pub mod sse;
pub mod string;
mod swar;

pub use arguments::Arguments;
pub use edit::{Edit, Splice};
pub use error::{MessageError, MessageProblem};
pub use id::Id;
pub use jsonrpc_error::code;
pub use limits::{MAX_DEPTH, MAX_MEMBERS, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
pub use message::{Kind, Message, RequestMeta};
pub use method::{Era, MethodRow, Revision, Sender};
pub use names::meta;
pub use raw::{Elements, Members, Raw, RawMember, Shape};
pub use span::Span;
