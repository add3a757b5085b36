//! Strict parsing and in-place editing of MCP messages, as pure functions on bytes.
//!
//! A body is scanned once. The result is a [`Message`]: the original bytes plus the offsets of
//! their parts. Messages are never deserialized into SDK types and serialized again, so the bytes
//! that are forwarded are the bytes the policy decided on, unknown fields included. Only the
//! members that the gateway owns are replaced, in place. The crate does no I/O, reads no clock and
//! knows no policy.
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
//! // Two parsers could see two different tools here, so the message is rejected.
//! let twice = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call",
//!     "params":{"name":"read","\u006eame":"rm"}}"#;
//! assert!(Message::parse(twice[..].into(), MAX_REQUEST_BYTES, Sender::Client).is_err());
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`scan`] | the strict JSON scanner; [`Raw`] traverses values that it accepted |
//! | [`Message`], [`Edit`], [`Id`] | the JSON-RPC envelope: members by name, edits in place |
//! | [`method`] | the table of methods and protocol versions |
//! | [`Arguments`] | the arguments of a call, for policy conditions |
//! | [`list`] | tool, prompt and resource lists, entry by entry |
//! | [`mod@line`], [`sse`] | framing on stdio and on HTTP |
//! | [`http`] | a strict HTTP/1.1 parser and writer |
//! | [`headers`] | the HTTP headers that mirror the body, since 2026-07-28 |
//! | [`names`] | member, `_meta` and header names of the protocol |
//! | [`jsonrpc`], [`jsonrpc_error`] | messages the gateway builds itself, error codes, HTTP statuses |
//! | [`exchange`] | the state machine of one request |
//! | [`input_requests`], [`ClientCapabilities`] | requests of servers to the client |
//!
//! A module imports only modules below it; there are no cycles.

mod arguments;
mod client_capabilities;
mod decimal;
mod duplicate_keys;
mod edit;
mod error;
pub mod exchange;
pub mod headers;
pub mod http;
mod id;
pub mod input_requests;
pub mod jsonrpc;
pub mod jsonrpc_error;
mod limits;
pub mod line;
pub mod list;
mod log_level;
mod member_index;
mod message;
pub mod method;
pub mod names;
mod own_meta;
mod raw;
pub mod scan;
mod scan_error;
pub mod skim;
mod span;
pub mod sse;
pub mod string;
mod swar;

pub use arguments::Arguments;
pub use client_capabilities::ClientCapabilities;
pub use edit::{Edit, Splice, without_own_meta};
pub use error::{MessageError, MessageProblem};
pub use id::Id;
pub use jsonrpc_error::code;
pub use limits::{MAX_DEPTH, MAX_MEMBERS, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
pub use log_level::LogLevel;
pub use message::{Kind, Message, RequestMeta};
pub use method::{Era, MethodRow, Revision, Sender};
pub use names::{TASKS_EXTENSION, meta};
pub use raw::{Elements, Members, Raw, RawMember, Shape};
pub use span::Span;
