//! Errors of the JSON scanner.
//!
//! They are separate from the scanner because string checks report them too.

use std::fmt;

use crate::limits::{MAX_DEPTH, MAX_MEMBERS};

/// A syntax error or an ambiguity in JSON, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanError {
    pub fault: Fault,
    /// The byte offset at which the error was detected.
    pub at: usize,
}

/// The kind of a [`ScanError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    TooLarge { limit: usize },
    NotUtf8,
    Empty,
    ByteOrderMark,
    TrailingBytes,
    UnexpectedEnd,
    ExpectedValue,
    ExpectedKey,
    ExpectedColon,
    ExpectedCommaOrEnd,
    BadNumber,
    NumberOutOfRange,
    BadEscape,
    LoneSurrogate,
    ControlCharacter,
    DuplicateKey,
    TooDeep,
    TooManyMembers,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the message is larger than {limit} bytes"),
            Self::NotUtf8 => write!(f, "the message is not valid UTF-8"),
            Self::Empty => write!(f, "expected a JSON value, found nothing"),
            Self::ByteOrderMark => write!(f, "a byte order mark precedes the JSON value"),
            Self::TrailingBytes => write!(f, "trailing characters after the JSON value"),
            Self::UnexpectedEnd => write!(f, "unexpected end of the JSON value"),
            Self::ExpectedValue => write!(f, "expected a JSON value"),
            Self::ExpectedKey => write!(f, "expected a key in double quotes"),
            Self::ExpectedColon => write!(f, "expected `:` after a key"),
            Self::ExpectedCommaOrEnd => {
                write!(f, "expected `,` or the end of the array or object")
            }
            Self::BadNumber => write!(f, "invalid number"),
            Self::NumberOutOfRange => write!(f, "number out of range"),
            Self::BadEscape => write!(f, "invalid escape sequence"),
            Self::LoneSurrogate => write!(f, "unpaired surrogate in an escape sequence"),
            Self::ControlCharacter => write!(f, "unescaped control character in a string"),
            Self::DuplicateKey => write!(f, "duplicate key in an object"),
            Self::TooDeep => write!(f, "nested more than {MAX_DEPTH} levels deep"),
            Self::TooManyMembers => write!(f, "an object has more than {MAX_MEMBERS} members"),
        }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {})", self.fault, self.at)
    }
}

impl std::error::Error for ScanError {}
