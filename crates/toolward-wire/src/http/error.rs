//! Why a head is refused.

use std::fmt;

/// What is wrong with a head. After one, nothing that follows on the connection can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadError {
    /// A line feed without a carriage return before it, or the other way round.
    BadLineEnd,
    ControlByte,
    BadRequestLine,
    BadVersion,
    BadTarget,
    TargetTooLong {
        limit: usize,
    },
    /// `CONNECT`, which asks for a tunnel.
    Tunnel,
    FoldedField,
    BadFieldName,
    DuplicateField {
        name: String,
    },
    NoHost,
    BadHost,
    /// The target has an authority, and it is not the one in `Host`.
    HostDiffers,
    BadContentLength,
    BadTransferEncoding,
    UnknownTransferCoding,
    /// Both `Content-Length` and `Transfer-Encoding`.
    TwoLengths,
    /// `Transfer-Encoding` in HTTP/1.0, which does not have it.
    CodingInOldVersion,
    UnknownExpectation,
    HeadTooLarge {
        limit: usize,
    },
    TooManyFields {
        limit: usize,
    },
    /// Of a response.
    BadStatusLine,
    /// Of a response: 101, which nobody asked for.
    SwitchedProtocols,
}

impl HeadError {
    /// The status that tells a client. A server's answer with a problem is a 502 to whoever waits
    /// for it, whatever the problem.
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
                return write!(f, "the header `{name}` is there twice");
            }
            Self::HeadTooLarge { limit } => {
                return write!(f, "the head is larger than {limit} bytes");
            }
            Self::TooManyFields { limit } => {
                return write!(f, "the head has more than {limit} headers");
            }
            Self::BadLineEnd => "a line of the head does not end in CR LF",
            Self::ControlByte => "the head has a control character",
            Self::BadRequestLine => "the request line is not `METHOD target HTTP/1.1`",
            Self::BadVersion => "only HTTP/1.1 and HTTP/1.0 are spoken here",
            Self::BadTarget => "the request target is not a path",
            Self::Tunnel => "there are no tunnels here",
            Self::FoldedField => "a header goes on over a second line",
            Self::BadFieldName => "a line of the head is not `Name: value`",
            Self::NoHost => "the header `host` is missing",
            Self::BadHost => "the header `host` is not a host and a port",
            Self::HostDiffers => "the header `host` is not the host in the request target",
            Self::BadContentLength => "the header `content-length` is not one number",
            Self::BadTransferEncoding => "the header `transfer-encoding` is not `chunked`",
            Self::UnknownTransferCoding => "no transfer coding but `chunked` is spoken here",
            Self::TwoLengths => {
                "the head has both `content-length` and `transfer-encoding`, which contradict"
            }
            Self::CodingInOldVersion => "HTTP/1.0 has no `transfer-encoding`",
            Self::UnknownExpectation => "no expectation but `100-continue` is met here",
            Self::BadStatusLine => "the status line is not `HTTP/1.1 status reason`",
            Self::SwitchedProtocols => "the server switched protocols, which nobody asked for",
        };
        f.write_str(text)
    }
}

impl std::error::Error for HeadError {}
