//! Server-sent events, the framing of streamed HTTP responses.

use bytes::{Buf, Bytes, BytesMut};

use crate::line::one_line;

/// A server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event type. `None` means `message`.
    pub event: Option<String>,
    pub data: Bytes,
    pub id: Option<String>,
    /// The reconnection delay in milliseconds.
    pub retry: Option<u64>,
}

impl SseEvent {
    /// Whether this event has no data, and so only sets the last event id or the reconnection
    /// delay.
    pub fn is_primer(&self) -> bool {
        self.data.is_empty()
    }

    /// Whether this event carries a message.
    pub fn is_message(&self) -> bool {
        !self.is_primer() && self.event.as_deref().is_none_or(|event| event == "message")
    }
}

/// An event exceeded the limit. Decoding cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTooLarge {
    pub limit: usize,
}

impl std::fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an event is larger than {} bytes", self.limit)
    }
}

impl std::error::Error for EventTooLarge {}

/// An incremental decoder for a stream of events.
///
/// ```
/// use toolward_wire::sse::SseDecoder;
///
/// let mut events = SseDecoder::new(1024);
/// events.push(b": hello\nid: 7\r\ndata:\r\n\r\ndata: {\"a\"");
/// assert!(events.next_event().unwrap().unwrap().is_primer());
/// assert!(events.next_event().is_none());
/// events.push(b":1}\n\n");
/// assert_eq!(&events.next_event().unwrap().unwrap().data[..], b"{\"a\":1}");
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    input: BytesMut,
    /// The input before this offset has been consumed.
    at: usize,
    /// There is no line end between `at` and this offset.
    searched: usize,
    /// The previous line ended with a carriage return, so a newline at `at` belongs to it.
    after_return: bool,
    started: bool,
    limit: usize,
    /// The size of the fields of the current event, in bytes.
    size: usize,
    failed: bool,
    event: Option<String>,
    data: Vec<u8>,
    /// The data of the current event, if it is one long line that was not copied.
    long: Option<Bytes>,
    has_data: bool,
    id: Option<String>,
    retry: Option<u64>,
}

/// Maximum length of a data line that is copied. A longer one shares the memory of the input.
const MAX_COPIED_LINE_BYTES: usize = 16 << 10;

impl SseDecoder {
    /// Creates a decoder. Neither an event nor a line may exceed `limit` bytes.
    pub fn new(limit: usize) -> SseDecoder {
        SseDecoder {
            input: BytesMut::new(),
            at: 0,
            searched: 0,
            after_return: false,
            started: false,
            limit,
            size: 0,
            failed: false,
            event: None,
            data: Vec::new(),
            long: None,
            has_data: false,
            id: None,
            retry: None,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        self.input.advance(self.at);
        self.searched = self.searched.saturating_sub(self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// The number of buffered bytes of incomplete events.
    pub fn held(&self) -> usize {
        let long = self.long.as_ref().map_or(0, Bytes::len);
        self.input.len().saturating_sub(self.at) + self.data.len() + long
    }

    /// The next complete event.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, EventTooLarge>> {
        if self.failed {
            return None;
        }
        if !self.started {
            const MARK: &[u8] = "\u{feff}".as_bytes();
            if self.input.len() < MARK.len() && MARK.starts_with(&self.input) {
                return None;
            }
            self.started = true;
            self.at += if self.input.starts_with(MARK) { MARK.len() } else { 0 };
        }
        let mut input = std::mem::take(&mut self.input);
        let next = self.read(&mut input);
        if !self.failed {
            self.input = input;
        }
        next
    }

    fn read(&mut self, input: &mut BytesMut) -> Option<Result<SseEvent, EventTooLarge>> {
        loop {
            if self.after_return {
                match input.get(self.at) {
                    None => return None,
                    Some(b'\n') => self.at += 1,
                    Some(_) => {}
                }
                self.after_return = false;
            }
            self.searched = self.searched.max(self.at);
            let fresh = input.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'\n', b'\r', fresh) else {
                self.searched = input.len();
                return self.too_large(input.len() - self.at).map(Err);
            };
            let end = self.searched + found;
            let start = self.at;
            self.after_return = input.get(end) == Some(&b'\r');
            self.at = end + 1;
            if let Some(error) = self.too_large(end - start) {
                return Some(Err(error));
            }
            if end - start > MAX_COPIED_LINE_BYTES {
                let mut line = input.split_to(end);
                line.advance(start);
                // Copy the rest, so that it does not keep the memory of the long line alive.
                *input = BytesMut::from(&input[..]);
                (self.at, self.searched) = (1, 1);
                if !line.starts_with(b":") {
                    self.size += line.len();
                    self.long_field(line.freeze());
                }
                continue;
            }
            let line = input.get(start..end).unwrap_or_default();
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Some(Ok(event));
                }
                continue;
            }
            if !line.starts_with(b":") {
                self.size += line.len();
                self.field(line);
            }
        }
    }

    fn too_large(&mut self, more: usize) -> Option<EventTooLarge> {
        // The limit is for the data, so leave room for field names.
        if self.size + more > self.limit.saturating_add(64) {
            self.failed = true;
            (self.data, self.long) = (Vec::new(), None);
            return Some(EventTooLarge { limit: self.limit });
        }
        None
    }

    /// Handles a long line. Data in a single line is shared, everything else is copied.
    fn long_field(&mut self, line: Bytes) {
        match line.strip_prefix(b"data:") {
            Some(value) if !self.has_data => {
                let value = value.strip_prefix(b" ").unwrap_or(value);
                self.long = Some(line.slice_ref(value));
                self.has_data = true;
            }
            _ => self.field(&line),
        }
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if let Some(long) = self.long.take() {
                    self.data = long.into();
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.event = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" if !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            _ => {}
        }
    }

    /// Ends the current event at an empty line. Returns `None` if it has no fields.
    fn dispatch(&mut self) -> Option<SseEvent> {
        self.size = 0;
        self.has_data = false;
        let event = SseEvent {
            event: self.event.take().filter(|event| !event.is_empty()),
            data: self.long.take().unwrap_or_else(|| std::mem::take(&mut self.data).into()),
            id: self.id.take(),
            retry: self.retry.take(),
        };
        (event != SseEvent::default()).then_some(event)
    }
}

/// Appends an event that carries a message. Newlines in the body become spaces.
pub fn encode(event: Option<&str>, id: Option<&str>, body: &[u8], out: &mut Vec<u8>) {
    fields(event, id, None, out);
    out.extend_from_slice(b"data: ");
    one_line(body, out);
    out.extend_from_slice(b"\n\n");
}

/// Appends an event without data, which gives the client an id to resume from.
pub fn encode_primer(id: &str, retry: Option<u64>, out: &mut Vec<u8>) {
    fields(None, Some(id), retry, out);
    out.extend_from_slice(b"data:\n\n");
}

/// Appends a comment, which keeps the connection alive.
pub fn encode_keep_alive(out: &mut Vec<u8>) {
    out.extend_from_slice(b":\n\n");
}

fn fields(event: Option<&str>, id: Option<&str>, retry: Option<u64>, out: &mut Vec<u8>) {
    for (name, value) in [("event", event), ("id", id)] {
        if let Some(value) = value {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            // A line end in a value would let it inject fields.
            out.extend(value.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r' | 0)));
            out.push(b'\n');
        }
    }
    if let Some(retry) = retry {
        out.extend_from_slice(format!("retry: {retry}\n").as_bytes());
    }
}
