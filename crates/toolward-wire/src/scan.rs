//! The strict JSON scanner: the one reader of bytes that came from outside.
//!
//! One pass, no recursion, no tree. It says whether the bytes are exactly one JSON value that every
//! parser reads alike, and notes where the members of a message's envelope, `params`, `result`,
//! `error` and `_meta` lie. What it accepts may afterwards be walked as [`Raw`](crate::Raw) without
//! checks.

use std::borrow::Cow;
use std::fmt;

use crate::keys::Keys;
use crate::raw::content;
use crate::span::Span;
use crate::string;

/// Containers inside each other, the outermost counted.
pub const MAX_DEPTH: usize = 64;
/// Members of one object.
pub const MAX_MEMBERS: usize = 10_000;
/// The default size cap of a request.
pub const MAX_REQUEST: usize = 4 << 20;
/// The default size cap of an answer.
pub const MAX_ANSWER: usize = 64 << 20;

/// How much of a message must read alike for every reader: no duplicate keys, no half of a
/// surrogate pair, no number beyond a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// All of it.
    Everywhere,
    /// The objects that a gateway reads: envelope, `params`, `result`, `error`, their `_meta`, and
    /// all of `inputRequests`. The rest must be well-formed; what is wrong with it otherwise is
    /// noted in [`Outline::loose`].
    Answer,
}

/// Where the parts of a scanned message lie.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The value without the space around it.
    pub root: Span,
    pub(crate) members: Vec<Member>,
    /// The first that [`Strictness::Answer`] let pass.
    pub loose: Option<ScanError>,
}

/// An object of a message whose members are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Envelope,
    Params,
    ParamsMeta,
    Result,
    ResultMeta,
    Error,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) section: Section,
    /// The key with its quotes.
    pub(crate) key: Span,
    pub(crate) value: Span,
    /// The key holds escapes.
    pub(crate) escaped: bool,
}

impl Member {
    /// The key, unescaped.
    pub(crate) fn name<'b>(&self, body: &'b [u8]) -> Cow<'b, str> {
        let content = content(self.key.of(body));
        match self.escaped {
            true => string::unescape(content),
            false => Cow::Borrowed(std::str::from_utf8(content).unwrap_or_default()),
        }
    }

    pub(crate) fn is(&self, body: &[u8], name: &str) -> bool {
        let content = content(self.key.of(body));
        match self.escaped {
            true => string::unescape(content) == name,
            false => content == name.as_bytes(),
        }
    }
}

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

/// Scans a message: one JSON value of at most `limit` bytes.
pub fn scan(bytes: &[u8], limit: usize, strictness: Strictness) -> Result<Outline, ScanError> {
    Scanner::new(bytes, strictness, true).run(limit)
}

/// Checks any JSON value, as strictly as a request is read.
pub fn check(bytes: &[u8], limit: usize) -> Result<Span, ScanError> {
    Ok(Scanner::new(bytes, Strictness::Everywhere, false).run(limit)?.root)
}

struct Scanner<'b> {
    bytes: &'b [u8],
    at: usize,
    strictness: Strictness,
    /// Whether the root is a message, whose parts are noted.
    message: bool,
    depth: usize,
    frames: [Frame; MAX_DEPTH],
    keys: Keys,
    outline: Outline,
}

/// One open container.
#[derive(Clone, Copy)]
struct Frame {
    is_object: bool,
    /// What readers could read differently is refused here, not just noted.
    guarded: bool,
    section: Option<Section>,
    /// What the member whose value is being read leads to.
    leads: Leads,
    /// The number of keys of the containers around this one.
    keys_from: u32,
    /// The noted member whose value is being read.
    pending: u32,
}

/// What the value of the current member is, where that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leads {
    Elsewhere,
    To(Section),
    ToInputRequests,
}

const NONE: u32 = u32::MAX;

impl<'b> Scanner<'b> {
    fn new(bytes: &'b [u8], strictness: Strictness, message: bool) -> Scanner<'b> {
        let frame = Frame {
            is_object: false,
            guarded: true,
            section: None,
            leads: Leads::Elsewhere,
            keys_from: 0,
            pending: NONE,
        };
        Scanner {
            bytes,
            at: 0,
            strictness,
            message,
            depth: 0,
            frames: [frame; MAX_DEPTH],
            keys: Keys::new(),
            outline: Outline {
                root: Span::default(),
                members: Vec::with_capacity(if message { 16 } else { 0 }),
                loose: None,
            },
        }
    }

    fn run(mut self, limit: usize) -> Result<Outline, ScanError> {
        let limit = limit.min(NONE as usize - 1);
        if self.bytes.len() > limit {
            return Err(ScanError { fault: Fault::TooLarge { limit }, at: limit });
        }
        if let Err(error) = std::str::from_utf8(self.bytes) {
            return Err(ScanError { fault: Fault::NotUtf8, at: error.valid_up_to() });
        }
        if self.bytes.starts_with("\u{feff}".as_bytes()) {
            return Err(self.fault(Fault::ByteOrderMark));
        }
        self.skip_space();
        if self.at == self.bytes.len() {
            return Err(self.fault(Fault::Empty));
        }
        let start = self.at;
        self.values()?;
        self.outline.root = Span::new(start, self.at);
        self.skip_space();
        if self.at < self.bytes.len() {
            return Err(self.fault(Fault::TrailingBytes));
        }
        Ok(self.outline)
    }

    /// Reads one value with all that is in it; each turn of the loop begins at a value.
    fn values(&mut self) -> Result<(), ScanError> {
        loop {
            match self.peek() {
                Some(b'"') => {
                    let string = string::check(self.bytes, self.at)?;
                    self.at = string.end;
                    if let Some(at) = string.lone {
                        self.differs(Fault::LoneSurrogate, self.guarded(), at)?;
                    }
                }
                Some(b'{') => {
                    self.open(true)?;
                    self.skip_space();
                    if self.peek() == Some(b'}') {
                        self.close()?;
                    } else {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.open(false)?;
                    self.skip_space();
                    if self.peek() == Some(b']') {
                        self.close()?;
                    } else {
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word(b"true")?,
                Some(b'f') => self.word(b"false")?,
                Some(b'n') => self.word(b"null")?,
                Some(_) => return Err(self.fault(Fault::ExpectedValue)),
                None => return Err(self.fault(Fault::UnexpectedEnd)),
            }
            if self.after_value()? {
                return Ok(());
            }
        }
    }

    /// After a value: true at the end of the root, false where the next value begins.
    fn after_value(&mut self) -> Result<bool, ScanError> {
        loop {
            let Some(frame) = self.depth.checked_sub(1).and_then(|top| self.frames.get_mut(top))
            else {
                return Ok(true);
            };
            if frame.pending != NONE {
                if let Some(member) = self.outline.members.get_mut(frame.pending as usize) {
                    member.value.end = self.at as u32;
                }
                frame.pending = NONE;
            }
            let is_object = frame.is_object;
            self.skip_space();
            match (self.peek(), is_object) {
                (Some(b','), true) => {
                    self.at += 1;
                    self.skip_space();
                    self.key()?;
                    return Ok(false);
                }
                (Some(b','), false) => {
                    self.at += 1;
                    self.skip_space();
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.close()?,
                (Some(_), _) => return Err(self.fault(Fault::ExpectedCommaOrEnd)),
                (None, _) => return Err(self.fault(Fault::UnexpectedEnd)),
            }
        }
    }

    fn open(&mut self, is_object: bool) -> Result<(), ScanError> {
        let (section, inside_requests) = match self.depth.checked_sub(1) {
            None => (self.message.then_some(Section::Envelope), false),
            Some(top) => match self.frames[top].leads {
                Leads::To(section) => (Some(section), false),
                Leads::ToInputRequests => (None, true),
                Leads::Elsewhere => (None, false),
            },
        };
        let section = section.filter(|_| is_object);
        let guarded =
            self.strictness == Strictness::Everywhere || section.is_some() || inside_requests;
        let frame = Frame {
            is_object,
            guarded,
            section,
            leads: if inside_requests { Leads::ToInputRequests } else { Leads::Elsewhere },
            keys_from: self.keys.len(),
            pending: NONE,
        };
        let Some(place) = self.frames.get_mut(self.depth) else {
            return Err(self.fault(Fault::TooDeep));
        };
        *place = frame;
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<(), ScanError> {
        self.depth -= 1;
        let frame = self.frames[self.depth];
        if frame.is_object && self.keys.close(self.bytes, frame.keys_from) {
            self.differs(Fault::DuplicateKey, frame.guarded, self.at)?;
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a key and its colon, up to the value.
    fn key(&mut self) -> Result<(), ScanError> {
        if self.peek() != Some(b'"') {
            let fault =
                if self.at < self.bytes.len() { Fault::ExpectedKey } else { Fault::UnexpectedEnd };
            return Err(self.fault(fault));
        }
        let start = self.at;
        let string::Checked { end, escaped, lone } = string::check(self.bytes, start)?;
        self.at = end;
        let top = self.depth - 1;
        let frame = self.frames[top];
        if let Some(at) = lone {
            self.differs(Fault::LoneSurrogate, frame.guarded, at)?;
        }
        let content = Span::new(start + 1, end - 1);
        let (count, repeated) = self.keys.push(self.bytes, content, escaped, frame.keys_from);
        if repeated {
            self.differs(Fault::DuplicateKey, frame.guarded, start)?;
        }
        if count > MAX_MEMBERS {
            return Err(ScanError { fault: Fault::TooManyMembers, at: start });
        }
        self.skip_space();
        if self.peek() != Some(b':') {
            let fault = if self.at < self.bytes.len() {
                Fault::ExpectedColon
            } else {
                Fault::UnexpectedEnd
            };
            return Err(self.fault(fault));
        }
        self.at += 1;
        self.skip_space();
        if let Some(section) = frame.section {
            let leads = leads(section, self.keys.last(self.bytes));
            self.frames[top].leads = leads;
            self.frames[top].pending = self.outline.members.len() as u32;
            self.outline.members.push(Member {
                section,
                key: Span::new(start, end),
                value: Span::new(self.at, self.at),
                escaped,
            });
        }
        Ok(())
    }

    /// Readers could differ here.
    fn differs(&mut self, fault: Fault, guarded: bool, at: usize) -> Result<(), ScanError> {
        let error = ScanError { fault, at };
        if guarded {
            return Err(error);
        }
        self.outline.loose.get_or_insert(error);
        Ok(())
    }

    /// Whether the value that was just read stands where the gateway reads.
    fn guarded(&self) -> bool {
        self.depth.checked_sub(1).is_none_or(|top| self.frames[top].guarded)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), ScanError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        let cut = word.starts_with(rest);
        Err(self.fault(if cut { Fault::UnexpectedEnd } else { Fault::ExpectedValue }))
    }

    fn number(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            None => return Err(self.fault(Fault::UnexpectedEnd)),
            Some(_) => return Err(self.fault(Fault::BadNumber)),
        }
        if matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.fault(Fault::BadNumber));
        }
        let mut risky = self.at - start > 300;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
            risky = true;
        }
        // Beyond the range of a double, readers differ: infinity, null, or an error.
        if risky {
            let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
            if !text.parse::<f64>().is_ok_and(f64::is_finite) {
                self.differs(Fault::NumberOutOfRange, self.guarded(), start)?;
            }
        }
        Ok(())
    }

    fn some_digits(&mut self) -> Result<(), ScanError> {
        match self.peek() {
            Some(b'0'..=b'9') => {
                self.digits();
                Ok(())
            }
            None => Err(self.fault(Fault::UnexpectedEnd)),
            Some(_) => Err(self.fault(Fault::BadNumber)),
        }
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    #[inline(always)]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fault(&self, fault: Fault) -> ScanError {
        ScanError { fault, at: self.at }
    }
}

fn leads(section: Section, key: &[u8]) -> Leads {
    match (section, key) {
        (Section::Envelope, b"params") => Leads::To(Section::Params),
        (Section::Envelope, b"result") => Leads::To(Section::Result),
        (Section::Envelope, b"error") => Leads::To(Section::Error),
        (Section::Params, b"_meta") => Leads::To(Section::ParamsMeta),
        (Section::Result, b"_meta") => Leads::To(Section::ResultMeta),
        (Section::Result, b"inputRequests") => Leads::ToInputRequests,
        _ => Leads::Elsewhere,
    }
}
