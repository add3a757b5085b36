//! Why a message is refused, and as what it is answered.

use std::fmt;

use crate::error::{Case, code};
use crate::id::Id;
use crate::scan::{Fault, ScanError};

/// Why a message is refused.
#[derive(Debug, Clone)]
pub struct Malformed {
    pub problem: Problem,
    /// The id to answer to, where one could be read.
    pub id: Option<Id>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
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

impl Malformed {
    /// The code of the JSON-RPC error.
    pub fn code(&self) -> i32 {
        match self.problem.case() {
            Case::MalformedJson => code::PARSE_ERROR,
            Case::BadParams | Case::MissingMeta => code::INVALID_PARAMS,
            Case::UnknownMethod => code::METHOD_NOT_FOUND,
            _ => code::INVALID_REQUEST,
        }
    }
}

impl Problem {
    /// The row of the status table.
    pub fn case(&self) -> Case {
        match self {
            Self::Json(ScanError { fault: Fault::TooLarge { .. }, .. }) => Case::TooLarge,
            Self::Json(_) => Case::MalformedJson,
            Self::CaseVariant { part: "params" | "_meta", .. }
            | Self::NotObject { member: "_meta" | "arguments" }
            | Self::BadParam { .. } => Case::BadParams,
            Self::MissingMeta { .. } => Case::MissingMeta,
            Self::UnknownMethod { .. } => Case::UnknownMethod,
            _ => Case::MalformedEnvelope,
        }
    }
}

impl Problem {
    /// The kind of problem, without anything that a sender wrote.
    pub fn words(&self) -> &'static str {
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

impl fmt::Display for Problem {
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

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for Malformed {}

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
