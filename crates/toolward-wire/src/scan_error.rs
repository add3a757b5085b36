//! Errors of the JSON scanner.

use std::fmt;

use crate::limits::{MAX_DEPTH, MAX_MEMBERS};

/// Why bytes are not accepted, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanError {
    pub fault: Fault,
    /// The offset of the byte at which it was noticed.
    pub at: usize,
}

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
            Self::NotUtf8 => write!(f, "the bytes are not UTF-8"),
            Self::Empty => write!(f, "there is no JSON value"),
            Self::ByteOrderMark => write!(f, "a byte order mark stands before the JSON value"),
            Self::TrailingBytes => write!(f, "more text follows the JSON value"),
            Self::UnexpectedEnd => write!(f, "the JSON value is not complete"),
            Self::ExpectedValue => write!(f, "expected a JSON value"),
            Self::ExpectedKey => write!(f, "expected a key in double quotes"),
            Self::ExpectedColon => write!(f, "expected `:` after a key"),
            Self::ExpectedCommaOrEnd => write!(f, "expected `,` or the end of the container"),
            Self::BadNumber => write!(f, "not a JSON number"),
            Self::NumberOutOfRange => write!(f, "the number is out of range"),
            Self::BadEscape => write!(f, "not a JSON escape"),
            Self::LoneSurrogate => write!(f, "half of a surrogate pair stands alone"),
            Self::ControlCharacter => write!(f, "a raw control character stands in a string"),
            Self::DuplicateKey => write!(f, "an object has the same key twice"),
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
