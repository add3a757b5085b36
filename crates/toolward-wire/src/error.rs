//! Why a message is refused, and as what it is answered.

use std::fmt;

use crate::id::Id;
use crate::jsonrpc_error::{StatusCase, code};
use crate::scan_error::{Fault, ScanError};

/// Why a message is refused.
#[derive(Debug, Clone)]
pub struct MessageError {
    pub problem: MessageProblem,
    /// The id to answer to, where one could be read.
    pub id: Option<Id>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageProblem {
    Json(ScanError),
    /// Several messages in an array.
    Batch,
    NotAnObject,
    /// A member that equals a protocol member only after case folding.
    CaseVariant {
        part: &'static str,
        key: String,
    },
    /// `jsonrpc` is not "2.0".
    Version,
    /// The members do not make up a request, notification or answer.
    Envelope,
    BadId,
    BadMethod,
    /// An `error` without an integer `code` and a string `message`.
    BadError,
    /// A member that has to be an object is not one.
    NotObject {
        member: &'static str,
    },
    /// A member of `params` that is missing or of the wrong type.
    BadParam {
        member: &'static str,
        expected: &'static str,
    },
    /// A modern request without a `_meta` member that it must have, or with one of another type.
    MissingMeta {
        key: &'static str,
    },
    /// A method that the table does not have for this sender and era.
    UnknownMethod {
        method: String,
    },
    /// A request without an id, or a notification with one.
    WrongKind {
        method: &'static str,
    },
}

impl MessageError {
    /// The code of the JSON-RPC error.
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
    /// The row of the status table.
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
}

impl MessageProblem {
    /// The kind of problem, without anything that a sender wrote.
    pub fn summary(&self) -> &'static str {
        match self {
            Self::Json(error) => match error.fault {
                Fault::TooLarge { .. } => "the message is too large",
                Fault::DuplicateKey => "an object has the same key twice",
                Fault::TooDeep => "the message is nested too deep",
                _ => "the message is not valid JSON",
            },
            Self::Batch => "several messages came at once",
            Self::CaseVariant { .. } => "a member differs from the protocol's only in case",
            Self::NotAnObject
            | Self::Version
            | Self::Envelope
            | Self::BadId
            | Self::BadMethod
            | Self::BadError => "the message is none of the protocol",
            Self::NotObject { .. } | Self::BadParam { .. } => "parameters are missing or wrong",
            Self::MissingMeta { .. } => "the request does not say what it must",
            Self::UnknownMethod { .. } => "the method is not known",
            Self::WrongKind { .. } => "a request has no id, or a notification has one",
        }
    }
}

impl fmt::Display for MessageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "{error}"),
            Self::Batch => write!(f, "batches are not accepted: send one message at a time"),
            Self::NotAnObject => write!(f, "a message is a JSON object"),
            Self::CaseVariant { part, key } => {
                write!(f, "`{}` in {part} differs from a protocol member only in case", Plain(key))
            }
            Self::Version => write!(f, "`jsonrpc` must be \"2.0\""),
            Self::Envelope => {
                write!(f, "a message has either `method`, or one of `result` and `error`")
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
            Self::UnknownMethod { method } => write!(f, "unknown method `{}`", Plain(method)),
            Self::WrongKind { method } => {
                write!(f, "`{method}` was sent with or without an `id` where it must be otherwise")
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

/// Foreign text in a message for people: short, and without control or formatting characters.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
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
