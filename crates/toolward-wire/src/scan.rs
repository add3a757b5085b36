//! The strict JSON scanner: the one reader of bytes that came from outside.
//!
//! One pass, no recursion, no tree. It says whether the bytes are exactly one JSON value that every
//! parser reads alike, and notes where the members of a message's envelope, `params`, `result`,
//! `error` and `_meta` lie. What it accepts may afterwards be walked as [`Raw`](crate::Raw) without
//! checks.

pub use crate::scan_error::{Fault, ScanError};

use crate::duplicate_keys::KeyTracker;
use crate::limits::{MAX_DEPTH, MAX_MEMBERS};
use crate::member_index::{MemberIndex, Section};
use crate::span::Span;
use crate::string;
use crate::swar;

/// How much of a message must read alike for every reader: no duplicate keys, no half of a
/// surrogate pair, no number beyond a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// All of it.
    Everywhere,
    /// The objects that a gateway reads: envelope, `params`, `result`, `error`, their `_meta`, and
    /// all of `inputRequests`. The rest must be well-formed; what is wrong with it otherwise is
    /// noted in [`Outline::ambiguity`].
    Response,
}

/// Where the parts of a scanned message lie.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The value without the space around it.
    pub root: Span,
    pub(crate) members: MemberIndex,
    /// The first that [`Strictness::Response`] let pass.
    pub ambiguity: Option<ScanError>,
}

/// Scans a message: one JSON value of at most `limit` bytes.
pub fn scan(bytes: &[u8], limit: usize, strictness: Strictness) -> Result<Outline, ScanError> {
    let mut scanner = Scanner::new(bytes, strictness, true);
    scanner.run(limit)?;
    Ok(scanner.outline)
}

/// Checks any JSON value, as strictly as a request is read.
pub fn check(bytes: &[u8], limit: usize) -> Result<Span, ScanError> {
    let mut scanner = Scanner::new(bytes, Strictness::Everywhere, false);
    scanner.run(limit)?;
    Ok(scanner.outline.root)
}

struct Scanner<'b> {
    bytes: &'b [u8],
    at: usize,
    strictness: Strictness,
    /// The innermost open container; where none is open, what stands for the whole.
    top: Frame,
    /// How many containers are open, and what was the top before each of them.
    depth: usize,
    around: [Frame; MAX_DEPTH],
    keys: KeyTracker,
    outline: Outline,
}

/// One open container.
#[derive(Clone, Copy)]
struct Frame {
    is_object: bool,
    /// All below belongs to `inputRequests`.
    requests: bool,
    section: Option<Section>,
    /// The section that the value of the current member is.
    leads: Option<Section>,
    /// The number of keys of the containers around this one.
    keys_from: u32,
    /// The noted member whose value is being read, counted from one.
    pending: u32,
}

impl Frame {
    const NONE: Frame = Frame {
        is_object: false,
        requests: false,
        section: None,
        leads: None,
        keys_from: 0,
        pending: 0,
    };
}

impl<'b> Scanner<'b> {
    /// Of a message the parts are noted.
    fn new(bytes: &'b [u8], strictness: Strictness, message: bool) -> Scanner<'b> {
        let leads = message.then_some(Section::Envelope);
        Scanner {
            bytes,
            at: 0,
            strictness,
            top: Frame { leads, ..Frame::NONE },
            depth: 0,
            around: const { [Frame::NONE; MAX_DEPTH] },
            keys: KeyTracker::new(),
            outline: Outline {
                root: Span::default(),
                members: MemberIndex::with_capacity(if message { 16 } else { 0 }),
                ambiguity: None,
            },
        }
    }

    fn run(&mut self, limit: usize) -> Result<(), ScanError> {
        // Places are kept in 32 bits.
        let limit = limit.min(u32::MAX as usize - 1);
        if self.bytes.len() > limit {
            return Err(ScanError { fault: Fault::TooLarge { limit }, at: limit });
        }
        // Nearly all messages are ASCII, which is found out faster.
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

    /// Reads one value with all that is in it; each turn of the loop begins at a member or at a
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
                    if let Some(at) = string.lone {
                        self.differs(Fault::LoneSurrogate, at)?;
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
                Some(b't') => self.word(b"true")?,
                Some(b'f') => self.word(b"false")?,
                Some(b'n') => self.word(b"null")?,
                _ => return Err(self.expected(Fault::ExpectedValue)),
            }
            if self.after_value()? {
                return Ok(());
            }
        }
    }

    /// After a value: true at the end of the root, false where the next member or value begins.
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

    /// Opens a container, up to what is in it.
    #[inline(always)]
    fn open(&mut self, is_object: bool) -> Result<(), ScanError> {
        let Some(place) = self.around.get_mut(self.depth) else {
            return Err(self.fault(Fault::TooDeep));
        };
        *place = self.top;
        self.depth += 1;
        self.top = Frame {
            is_object,
            requests: self.top.requests,
            section: self.top.leads.filter(|_| is_object),
            leads: None,
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
            self.differs(Fault::DuplicateKey, self.at)?;
        }
        self.depth -= 1;
        self.top = self.around[self.depth];
        self.at += 1;
        Ok(())
    }

    /// Reads a key and its colon, up to the value.
    #[inline(always)]
    fn key(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.expected(Fault::ExpectedKey));
        }
        let string::CheckedString { end, escaped, lone } = string::check(self.bytes, start)?;
        self.at = end;
        if let Some(at) = lone {
            self.differs(Fault::LoneSurrogate, at)?;
        }
        let (content, from) = (start + 1..end - 1, self.top.keys_from);
        let repeated = match escaped {
            false => self.keys.push(self.bytes, content.clone(), from),
            true => self.keys.push_escaped(self.bytes, content.clone(), from),
        };
        if repeated {
            self.differs(Fault::DuplicateKey, start)?;
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
            self.top.leads = leads(section, key);
            self.top.requests = section == Section::Result && key == b"inputRequests";
            let key = Span::new(start, end);
            self.top.pending = self.outline.members.begin(section, key, escaped, self.at);
        }
        Ok(())
    }

    /// Readers could differ here.
    #[cold]
    fn differs(&mut self, fault: Fault, at: usize) -> Result<(), ScanError> {
        let error = ScanError { fault, at };
        if self.is_guarded() {
            return Err(error);
        }
        self.outline.ambiguity.get_or_insert(error);
        Ok(())
    }

    /// Whether what readers could read differently is refused here, not just noted.
    fn is_guarded(&self) -> bool {
        self.strictness == Strictness::Everywhere
            || self.depth == 0
            || self.top.section.is_some()
            || self.top.requests
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
                self.differs(Fault::NumberOutOfRange, start)?;
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

    #[cold]
    fn fault(&self, fault: Fault) -> ScanError {
        ScanError { fault, at: self.at }
    }

    /// Something else stands here, or nothing.
    #[cold]
    fn expected(&self, fault: Fault) -> ScanError {
        self.fault(if self.at < self.bytes.len() { fault } else { Fault::UnexpectedEnd })
    }
}

/// The section that a member's value is.
fn leads(section: Section, key: &[u8]) -> Option<Section> {
    match (section, key) {
        (Section::Envelope, b"params") => Some(Section::Params),
        (Section::Envelope, b"result") => Some(Section::Result),
        (Section::Envelope, b"error") => Some(Section::Error),
        (Section::Params, b"_meta") => Some(Section::ParamsMeta),
        (Section::Result, b"_meta") => Some(Section::ResultMeta),
        _ => None,
    }
}
