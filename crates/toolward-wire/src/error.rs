//! Errors of message parsing, with the JSON-RPC code and HTTP status of each.

use std::fmt;

use crate::id::Id;
use crate::jsonrpc_error::{StatusCase, code};
use crate::scan_error::{Fault, ScanError};

/// A message that was rejected.
#[derive(Debug, Clone)]
pub struct MessageError {
    pub problem: MessageProblem,
    /// The id for the error response, if the message has a valid one.
    pub id: Option<Id>,
}

/// The reason a message was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageProblem {
    Json(ScanError),
    /// An array of messages.
    Batch,
    NotAnObject,
    /// A member that differs from a protocol member only in case.
    CaseVariant {
        part: &'static str,
        key: String,
    },
    /// `jsonrpc` is not "2.0".
    Version,
    /// The members do not form a request, notification or response.
    Envelope,
    BadId,
    BadMethod,
    /// An `error` without an integer `code` and a string `message`.
    BadError,
    /// A member that must be an object is not one.
    NotObject {
        member: &'static str,
    },
    /// A member of `params` that is missing or of the wrong type.
    BadParam {
        member: &'static str,
        expected: &'static str,
    },
    /// A required `_meta` member of a modern request that is missing or of the wrong type.
    MissingMeta {
        key: &'static str,
    },
    /// A method that is not in the table for this sender and protocol version.
    UnknownMethod {
        method: String,
    },
    /// A request without an id, or a notification with one.
    WrongKind {
        method: &'static str,
    },
}

impl MessageError {
    /// The JSON-RPC error code.
    pub fn code(&self) -> i32 {
        match self.problem.case() {
            StatusCase::MalformedJson => code::PARSE_ERROR,
            StatusCase::BadParams | StatusCase::MissingMeta => code::INVALID_PARAMS,
            StatusCase::UnknownMethod => code::METHOD_NOT_FOUND,
            _ => code::INVALID_REQUEST,
        }
    }
}

impl MessageProblem {
    /// The case that determines the HTTP status.
    pub fn case(&self) -> StatusCase {
        match self {
            Self::Json(ScanError { fault: Fault::TooLarge { .. }, .. }) => StatusCase::TooLarge,
            Self::Json(_) => StatusCase::MalformedJson,
            Self::CaseVariant { part: "params" | "_meta", .. }
            | Self::NotObject { member: "_meta" | "arguments" }
            | Self::BadParam { .. } => StatusCase::BadParams,
            Self::MissingMeta { .. } => StatusCase::MissingMeta,
            Self::UnknownMethod { .. } => StatusCase::UnknownMethod,
            _ => StatusCase::MalformedEnvelope,
        }
    }

    /// A summary that contains no text from the sender.
    ///
    /// The audit log aggregates rejected messages by it, and an attacker must not be able to choose
    /// the text.
    pub fn summary(&self) -> &'static str {
        match self {
            Self::Json(error) => match error.fault {
                Fault::TooLarge { .. } => "the message is too large",
                Fault::DuplicateKey => "duplicate key in an object",
                Fault::TooDeep => "the message is nested too deeply",
                _ => "the message is not valid JSON",
            },
            Self::Batch => "batches are not accepted",
            Self::CaseVariant { .. } => "a member differs from a protocol member only in case",
            Self::NotAnObject
            | Self::Version
            | Self::Envelope
            | Self::BadId
            | Self::BadMethod
            | Self::BadError => "not a valid JSON-RPC message",
            Self::NotObject { .. } | Self::BadParam { .. } => "missing or invalid parameters",
            Self::MissingMeta { .. } => "a required `_meta` member is missing",
            Self::UnknownMethod { .. } => "unknown method",
            Self::WrongKind { .. } => "a request without an id, or a notification with one",
        }
    }
}

impl fmt::Display for MessageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "{error}"),
            Self::Batch => write!(f, "batches are not accepted: send one message at a time"),
            Self::NotAnObject => write!(f, "a message must be a JSON object"),
            Self::CaseVariant { part, key } => {
                let key = EscapedText(key);
                write!(f, "`{key}` in {part} differs from a protocol member only in case")
            }
            Self::Version => write!(f, "`jsonrpc` must be \"2.0\""),
            Self::Envelope => {
                write!(f, "a message must have either `method`, or one of `result` and `error`")
            }
            Self::BadId => write!(f, "`id` must be a string or an integer"),
            Self::BadMethod => write!(f, "`method` must be a non-empty string"),
            Self::BadError => {
                write!(f, "`error` must have an integer `code` and a string `message`")
            }
            Self::NotObject { member } => write!(f, "`{member}` must be an object"),
            Self::BadParam { member, expected } => {
                write!(f, "`params.{member}` must be {expected}")
            }
            Self::MissingMeta { key } => write!(f, "`params._meta` must have `{key}`"),
            Self::UnknownMethod { method } => write!(f, "unknown method `{}`", EscapedText(method)),
            Self::WrongKind { method } => {
                write!(f, "`{method}` must have an `id` if it is a request, and none otherwise")
            }
        }
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for MessageError {}

/// Untrusted text for an error message: truncated, and with everything but printable ASCII escaped.
struct EscapedText<'a>(&'a str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars().take(64) {
            match character {
                '!'..='~' | ' ' => write!(f, "{character}")?,
                other => write!(f, "{}", other.escape_unicode())?,
            }
        }
        Ok(())
    }
}
