//! Strict, single-pass JSON scanner for untrusted bytes.
//!
//! The scanner uses neither recursion nor a tree. It accepts exactly one JSON value that every
//! parser reads the same way, and indexes the members of a message's envelope, `params`, `result`,
//! `error` and `_meta`. An accepted value can be traversed as [`Raw`](crate::Raw) without further
//! checks.
//!
//! Why not a JSON library: libraries accept duplicate keys, lone surrogates and out-of-range
//! numbers, and each resolves them differently. A policy decision is only worth something if the
//! server sees the same value as the gateway.

pub use crate::scan_error::{Fault, ScanError};

use crate::duplicate_keys::KeyTracker;
use crate::limits::{MAX_DEPTH, MAX_MEMBERS};
use crate::member_index::{MemberIndex, Section};
use crate::span::Span;
use crate::string;
use crate::swar;

/// The parts of a message in which ambiguous JSON is rejected.
///
/// Ambiguous are duplicate keys, unpaired surrogates and numbers beyond the range of a double:
/// parsers disagree about their meaning. Syntax errors are rejected everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// The whole message.
    Everywhere,
    /// Only the objects that the gateway reads: the envelope, `params`, `result`, `error`, their
    /// `_meta`, and everything in `inputRequests`. An ambiguity elsewhere is accepted and reported
    /// in [`Outline::ambiguity`].
    Response,
}

/// The result of a scan: the position of the value and of its indexed members.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The span of the value, without surrounding whitespace.
    pub root: Span,
    pub(crate) members: MemberIndex,
    /// The first ambiguity that [`Strictness::Response`] tolerated.
    pub ambiguity: Option<ScanError>,
    /// Whether any key, at any depth, starts with the prefix of the gateway's own `_meta` keys.
    pub(crate) has_own_keys: bool,
}

/// Scans a message: a single JSON value of at most `limit` bytes.
pub fn scan(bytes: &[u8], limit: usize, strictness: Strictness) -> Result<Outline, ScanError> {
    let mut scanner = Scanner::new(bytes, strictness, true);
    scanner.run(limit)?;
    let has_own_keys = scanner.keys.has_own();
    Ok(Outline { has_own_keys, ..scanner.outline })
}

/// Checks any JSON value with [`Strictness::Everywhere`], without indexing members.
pub fn check(bytes: &[u8], limit: usize) -> Result<Span, ScanError> {
    let mut scanner = Scanner::new(bytes, Strictness::Everywhere, false);
    scanner.run(limit)?;
    Ok(scanner.outline.root)
}

struct Scanner<'b> {
    bytes: &'b [u8],
    at: usize,
    strictness: Strictness,
    /// The innermost open container, or a frame for the whole input if none is open.
    top: Frame,
    /// The number of open containers.
    depth: usize,
    /// The enclosing frames; the first `depth` are in use.
    around: [Frame; MAX_DEPTH],
    keys: KeyTracker,
    outline: Outline,
}

/// One open container.
#[derive(Clone, Copy)]
struct Frame {
    is_object: bool,
    /// The container is part of `inputRequests`.
    in_input_requests: bool,
    section: Option<Section>,
    /// The section that the value of the current member forms, if it is an object.
    value_section: Option<Section>,
    /// The number of tracked keys that belong to enclosing containers.
    keys_from: u32,
    /// The indexed member whose value is being read, as index + 1; 0 if no value is.
    pending: u32,
}

impl Frame {
    const NONE: Frame = Frame {
        is_object: false,
        in_input_requests: false,
        section: None,
        value_section: None,
        keys_from: 0,
        pending: 0,
    };
}

impl<'b> Scanner<'b> {
    /// Creates a scanner. If `message` is true, it indexes the members of a message.
    fn new(bytes: &'b [u8], strictness: Strictness, message: bool) -> Scanner<'b> {
        let value_section = message.then_some(Section::Envelope);
        Scanner {
            bytes,
            at: 0,
            strictness,
            top: Frame { value_section, ..Frame::NONE },
            depth: 0,
            around: const { [Frame::NONE; MAX_DEPTH] },
            keys: KeyTracker::new(),
            outline: Outline {
                root: Span::default(),
                members: MemberIndex::with_capacity(if message { 16 } else { 0 }),
                ambiguity: None,
                has_own_keys: false,
            },
        }
    }

    fn run(&mut self, limit: usize) -> Result<(), ScanError> {
        // Offsets are stored in 32 bits.
        let limit = limit.min(u32::MAX as usize - 1);
        if self.bytes.len() > limit {
            return Err(ScanError { fault: Fault::TooLarge { limit }, at: limit });
        }
        // Nearly all messages are ASCII, which is cheaper to check than UTF-8.
        if !swar::is_ascii(self.bytes)
            && let Err(error) = std::str::from_utf8(self.bytes)
        {
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
        Ok(())
    }

    /// Reads one value and everything nested in it. Each iteration starts at a member or at a
    /// value.
    fn values(&mut self) -> Result<(), ScanError> {
        loop {
            if self.top.is_object {
                self.key()?;
            }
            match self.peek() {
                Some(b'"') => {
                    let string = string::check(self.bytes, self.at)?;
                    self.at = string.end;
                    if let Some(at) = string.lone_surrogate {
                        self.ambiguous(Fault::LoneSurrogate, at)?;
                    }
                }
                Some(b'{') => {
                    self.open(true)?;
                    if self.peek() != Some(b'}') {
                        continue;
                    }
                    self.close()?;
                }
                Some(b'[') => {
                    self.open(false)?;
                    if self.peek() != Some(b']') {
                        continue;
                    }
                    self.close()?;
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(self.expected(Fault::ExpectedValue)),
            }
            if self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Reads what follows a value. Returns true at the end of the root value, and false if another
    /// member or element follows.
    #[inline(always)]
    fn after_value(&mut self) -> Result<bool, ScanError> {
        while self.depth > 0 {
            if let Some(index) = self.top.pending.checked_sub(1) {
                self.outline.members.end(index, self.at);
                self.top.pending = 0;
            }
            self.skip_space();
            match (self.peek(), self.top.is_object) {
                (Some(b','), _) => {
                    self.at += 1;
                    self.skip_space();
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.close()?,
                _ => return Err(self.expected(Fault::ExpectedCommaOrEnd)),
            }
        }
        Ok(true)
    }

    /// Enters a container and skips to its first member or element.
    #[inline(always)]
    fn open(&mut self, is_object: bool) -> Result<(), ScanError> {
        let Some(place) = self.around.get_mut(self.depth) else {
            return Err(self.fault(Fault::TooDeep));
        };
        *place = self.top;
        self.depth += 1;
        self.top = Frame {
            is_object,
            in_input_requests: self.top.in_input_requests,
            section: self.top.value_section.filter(|_| is_object),
            value_section: None,
            keys_from: self.keys.count(),
            pending: 0,
        };
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    #[inline(always)]
    fn close(&mut self) -> Result<(), ScanError> {
        if self.top.is_object && self.keys.close(self.bytes, self.top.keys_from) {
            self.ambiguous(Fault::DuplicateKey, self.at)?;
        }
        self.depth -= 1;
        self.top = self.around[self.depth];
        self.at += 1;
        Ok(())
    }

    /// Reads a key and its colon, and skips to the value.
    #[inline(always)]
    fn key(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.expected(Fault::ExpectedKey));
        }
        let string::CheckedString { end, escaped, lone_surrogate } =
            string::check(self.bytes, start)?;
        self.at = end;
        if let Some(at) = lone_surrogate {
            self.ambiguous(Fault::LoneSurrogate, at)?;
        }
        let (content, from) = (start + 1..end - 1, self.top.keys_from);
        let repeated = match escaped {
            false => self.keys.push(self.bytes, content.clone(), from),
            true => self.keys.push_escaped(self.bytes, content.clone(), from),
        };
        if repeated {
            self.ambiguous(Fault::DuplicateKey, start)?;
        }
        if self.keys.count() - from > MAX_MEMBERS as u32 {
            return Err(ScanError { fault: Fault::TooManyMembers, at: start });
        }
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.expected(Fault::ExpectedColon));
        }
        self.at += 1;
        self.skip_space();
        if let Some(section) = self.top.section {
            let key = match escaped {
                false => self.bytes.get(content).unwrap_or_default(),
                true => self.keys.last(self.bytes),
            };
            self.top.value_section = section_of_value(section, key);
            self.top.in_input_requests = section == Section::Result && key == b"inputRequests";
            let key = Span::new(start, end);
            self.top.pending = self.outline.members.begin(section, key, escaped, self.at);
        }
        Ok(())
    }

    /// Rejects an ambiguity, or records it if the current position tolerates one.
    #[cold]
    fn ambiguous(&mut self, fault: Fault, at: usize) -> Result<(), ScanError> {
        let error = ScanError { fault, at };
        if self.is_strict_here() {
            return Err(error);
        }
        self.outline.ambiguity.get_or_insert(error);
        Ok(())
    }

    /// Whether an ambiguity at the current position is rejected instead of recorded.
    fn is_strict_here(&self) -> bool {
        self.strictness == Strictness::Everywhere
            || self.depth == 0
            || self.top.section.is_some()
            || self.top.in_input_requests
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), ScanError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(literal) {
            self.at += literal.len();
            return Ok(());
        }
        let cut = literal.starts_with(rest);
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
            self.required_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.required_digits()?;
            risky = true;
        }
        // Parsers read a number beyond the range of a double as infinity, null or an error.
        if risky {
            let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
            if !text.parse::<f64>().is_ok_and(f64::is_finite) {
                self.ambiguous(Fault::NumberOutOfRange, start)?;
            }
        }
        Ok(())
    }

    /// Reads one digit or more.
    fn required_digits(&mut self) -> Result<(), ScanError> {
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

    #[cold]
    fn fault(&self, fault: Fault) -> ScanError {
        ScanError { fault, at: self.at }
    }

    /// An error at the current position: `fault`, or the end of the input.
    #[cold]
    fn expected(&self, fault: Fault) -> ScanError {
        self.fault(if self.at < self.bytes.len() { fault } else { Fault::UnexpectedEnd })
    }
}

/// The section that the value of the member `key` forms.
fn section_of_value(section: Section, key: &[u8]) -> Option<Section> {
    match (section, key) {
        (Section::Envelope, b"params") => Some(Section::Params),
        (Section::Envelope, b"result") => Some(Section::Result),
        (Section::Envelope, b"error") => Some(Section::Error),
        (Section::Params, b"_meta") => Some(Section::ParamsMeta),
        (Section::Result, b"_meta") => Some(Section::ResultMeta),
        _ => None,
    }
}
