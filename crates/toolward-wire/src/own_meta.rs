//! Removal of `_meta` keys that only the gateway writes.
//!
//! Keys under `io.toolward/` are the gateway's own statements, such as the reason for a refusal. A
//! peer that could write them could impersonate the gateway, so they are removed from every `_meta`
//! that the protocol defines: of a message, a list entry, a content block, a resource, or the
//! description of a client or server. Payload is not touched: `arguments`, `structuredContent`,
//! schemas and the like may contain a member `_meta` of their own.
//!
//! The scanner reports whether any key has the prefix. Only then is the body traversed again, in
//! one pass with an explicit stack.

use crate::names::{is_own_key, meta};
use crate::raw::{content, skip_space, value_end};
use crate::span::Span;
use crate::string;

/// Members whose value is payload or a schema.
const DATA: &[&[u8]] = &[
    b"arguments",
    b"structuredContent",
    b"inputSchema",
    b"outputSchema",
    b"requestedSchema",
    b"data",
    b"input",
    b"metadata",
    b"experimental",
    b"extensions",
];

/// Members whose value maps ids, which the peer chooses, to messages.
const MAPS: &[&[u8]] = &[b"inputRequests", b"inputResponses"];

/// Members of a `_meta` whose value has a `_meta` itself.
const DESCRIPTIONS: &[&str] = &[meta::CLIENT_INFO, meta::SERVER_INFO];

/// Finds what to cut from a message: own keys in every protocol-level `_meta` except that of
/// `params` and `result`, which are indexed.
///
/// `root` is the span of the message in `body`.
pub(crate) fn cuts_in_message(body: &[u8], root: Span) -> Vec<Span> {
    Walk::new(body, true).run(root.start as usize)
}

/// Finds what to cut from a scanned value, such as a list entry.
pub(crate) fn cuts_in_value(value: &[u8]) -> Vec<Span> {
    Walk::new(value, false).run(0)
}

struct Walk<'b> {
    bytes: &'b [u8],
    /// Whether the root is a message.
    is_message: bool,
    open: Vec<Container>,
    cuts: Vec<Span>,
}

/// An open container that can contain a `_meta`, or is one.
#[derive(Clone, Copy)]
struct Container {
    kind: Kind,
    /// The start of the current member's key. Unused in an array.
    key: usize,
    /// The end of the previous member.
    last_end: usize,
    has_kept: bool,
    has_removed: bool,
    /// The cut that ends at the next key, because no earlier member is kept.
    unfinished: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    Object,
    /// `params` or `result` of a message.
    Section,
    /// An object whose keys are ids.
    Map,
    Meta,
    /// The `_meta` of a [`Section`](Kind::Section), whose own keys are removed through the index.
    IndexedMeta,
}

impl<'b> Walk<'b> {
    fn new(bytes: &'b [u8], is_message: bool) -> Walk<'b> {
        Walk { bytes, is_message, open: Vec::new(), cuts: Vec::new() }
    }

    fn run(mut self, start: usize) -> Vec<Span> {
        let mut at = match self.bytes.get(start) {
            Some(b'{') => self.enter(Kind::Object, start),
            _ => return self.cuts,
        };
        while let Some(container) = self.open.last().copied() {
            at = skip_space(self.bytes, at);
            at = match self.bytes.get(at) {
                None => break,
                Some(b',') => at + 1,
                Some(b'}' | b']') => self.leave(at + 1),
                Some(_) if container.kind == Kind::Array => self.value(Some(Kind::Object), at),
                Some(_) => self.member(container.kind, at),
            };
        }
        self.cuts
    }

    fn enter(&mut self, kind: Kind, at: usize) -> usize {
        self.open.push(Container {
            kind,
            key: at + 1,
            last_end: at + 1,
            has_kept: false,
            has_removed: false,
            unfinished: None,
        });
        at + 1
    }

    /// Leaves the innermost container, which ends at `end`.
    fn leave(&mut self, end: usize) -> usize {
        let closed = self.open.pop();
        let is_emptied =
            closed.is_some_and(|it| it.kind == Kind::Meta && it.has_removed && !it.has_kept);
        self.end_member(end, is_emptied);
        end
    }

    /// Reads the member whose key is at `at`, and its value unless that is entered.
    fn member(&mut self, kind: Kind, at: usize) -> usize {
        self.begin_member(at);
        let (key_end, escaped) = string::end(self.bytes, at);
        let key = content(self.bytes.get(at..key_end).unwrap_or_default());
        let key = if escaped { string::unescaped(key) } else { key.into() };
        let colon = skip_space(self.bytes, key_end);
        let value = skip_space(self.bytes, colon + 1);
        if kind == Kind::Meta && is_own_key(&key) {
            let end = value_end(self.bytes, value);
            self.end_member(end, true);
            return end;
        }
        self.value(self.kind_of_value(kind, &key), value)
    }

    /// The kind of a member's value, if it is an object. `None` if the value is payload.
    fn kind_of_value(&self, parent: Kind, key: &[u8]) -> Option<Kind> {
        let is = |names: &[&[u8]]| names.contains(&key);
        match parent {
            Kind::Map => Some(Kind::Object),
            Kind::Meta | Kind::IndexedMeta => {
                let is_description = DESCRIPTIONS.iter().any(|name| name.as_bytes() == key);
                is_description.then_some(Kind::Object)
            }
            Kind::Section if key == b"_meta" => Some(Kind::IndexedMeta),
            _ if key.eq_ignore_ascii_case(b"_meta") => Some(Kind::Meta),
            _ if is(DATA) => None,
            _ if is(MAPS) => Some(Kind::Map),
            _ if self.is_message && self.open.len() == 1 && is(&[b"params", b"result"]) => {
                Some(Kind::Section)
            }
            _ => Some(Kind::Object),
        }
    }

    /// Enters the value at `at`, or skips it. `kind` is `None` for payload.
    fn value(&mut self, kind: Option<Kind>, at: usize) -> usize {
        match (self.bytes.get(at), kind) {
            (Some(b'{'), Some(kind)) => self.enter(kind, at),
            (Some(b'['), Some(Kind::Object | Kind::Map)) => self.enter(Kind::Array, at),
            _ => {
                let end = value_end(self.bytes, at);
                self.end_member(end, false);
                end
            }
        }
    }

    /// A member starts at `key`: the cut before it ends there.
    fn begin_member(&mut self, key: usize) {
        let Some(container) = self.open.last_mut() else { return };
        container.key = key;
        if let Some(cut) = container.unfinished.take().and_then(|cut| self.cuts.get_mut(cut)) {
            cut.end = key as u32;
        }
    }

    /// The current member of the innermost container ends at `end`.
    ///
    /// With a member that is removed, the comma before it is removed too if an earlier member is
    /// kept, otherwise the one after it.
    fn end_member(&mut self, end: usize, is_removed: bool) {
        let Some(container) = self.open.last_mut() else { return };
        if is_removed {
            container.has_removed = true;
            let start = if container.has_kept { container.last_end } else { container.key };
            container.unfinished = (!container.has_kept).then_some(self.cuts.len());
            self.cuts.push(Span::new(start, end));
        } else {
            container.has_kept = true;
        }
        container.last_end = end;
    }
}
