//! Errors in the head of a request or response.

use std::fmt;

/// An invalid head. The connection cannot be used any further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadError {
    /// A line feed without a preceding carriage return, or a carriage return without a line feed.
    BadLineEnd,
    ControlByte,
    BadRequestLine,
    BadVersion,
    BadTarget,
    TargetTooLong {
        limit: usize,
    },
    /// `CONNECT`, which requests a tunnel.
    Tunnel,
    FoldedField,
    BadFieldName,
    DuplicateField {
        name: String,
    },
    NoHost,
    BadHost,
    /// The authority in the request target differs from `Host`.
    HostDiffers,
    BadContentLength,
    BadTransferEncoding,
    UnknownTransferCoding,
    /// Both `Content-Length` and `Transfer-Encoding`.
    TwoLengths,
    /// `Transfer-Encoding` in HTTP/1.0, which does not define it.
    CodingInOldVersion,
    UnknownExpectation,
    HeadTooLarge {
        limit: usize,
    },
    TooManyFields {
        limit: usize,
    },
    /// Responses only.
    BadStatusLine,
    /// Responses only: an unsolicited 101.
    SwitchedProtocols,
}

impl HeadError {
    /// The status of the response to an invalid request.
    ///
    /// For an invalid response from a server, the gateway responds with 502 regardless of the
    /// error.
    pub fn status(&self) -> u16 {
        match self {
            Self::TargetTooLong { .. } => 414,
            Self::UnknownExpectation => 417,
            Self::HeadTooLarge { .. } | Self::TooManyFields { .. } => 431,
            Self::UnknownTransferCoding => 501,
            Self::BadStatusLine | Self::SwitchedProtocols => 502,
            Self::BadVersion => 505,
            _ => 400,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::TargetTooLong { limit } => {
                return write!(f, "the request target is longer than {limit} bytes");
            }
            Self::DuplicateField { name } => {
                return write!(f, "duplicate header `{name}`");
            }
            Self::HeadTooLarge { limit } => {
                return write!(f, "the head is larger than {limit} bytes");
            }
            Self::TooManyFields { limit } => {
                return write!(f, "the head has more than {limit} headers");
            }
            Self::BadLineEnd => "a line of the head does not end in CR LF",
            Self::ControlByte => "the head contains a control character",
            Self::BadRequestLine => "the request line is not `METHOD target HTTP/1.1`",
            Self::BadVersion => "only HTTP/1.1 and HTTP/1.0 are supported",
            Self::BadTarget => "the request target is not a path",
            Self::Tunnel => "CONNECT is not supported",
            Self::FoldedField => "a header continues on a second line",
            Self::BadFieldName => "a line of the head is not `Name: value`",
            Self::NoHost => "the header `host` is missing",
            Self::BadHost => "the header `host` is not a valid host and port",
            Self::HostDiffers => "the header `host` differs from the host in the request target",
            Self::BadContentLength => "the header `content-length` is not a single number",
            Self::BadTransferEncoding => "the header `transfer-encoding` is not `chunked`",
            Self::UnknownTransferCoding => "`chunked` is the only supported transfer coding",
            Self::TwoLengths => "the head has both `content-length` and `transfer-encoding`",
            Self::CodingInOldVersion => "`transfer-encoding` is not allowed in HTTP/1.0",
            Self::UnknownExpectation => "`100-continue` is the only supported expectation",
            Self::BadStatusLine => "the status line is not `HTTP/1.1 status reason`",
            Self::SwitchedProtocols => "the server switched protocols without being asked to",
        };
        f.write_str(text)
    }
}

impl std::error::Error for HeadError {}
