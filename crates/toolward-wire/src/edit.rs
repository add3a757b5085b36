//! In-place edits of a message: members the gateway owns change, every other byte stays.

use std::borrow::Cow;

use bytes::Bytes;

use crate::id::Id;
use crate::member_index::{Member, Section};
use crate::message::{Kind, Message};
use crate::names::meta;
use crate::own_meta;
use crate::raw::Raw;
use crate::span::Span;
use crate::string;

/// Minimum size of an unchanged part that is shared instead of copied.
const MIN_SHARED_BYTES: usize = 16 << 10;

/// A set of replacements in a body.
#[derive(Debug, Clone, Default)]
pub struct Splice<'a> {
    cuts: Vec<(Span, Cow<'a, [u8]>)>,
}

impl<'a> Splice<'a> {
    pub fn new() -> Splice<'a> {
        Splice::default()
    }

    /// Replaces `span` with `bytes`.
    ///
    /// If two spans overlap, the one that starts later is ignored. Insertions at the same offset
    /// keep the order in which they were added.
    pub fn replace(&mut self, span: Span, bytes: impl Into<Cow<'a, [u8]>>) {
        self.cuts.push((span, bytes.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Applies all replacements and returns the new body.
    pub fn apply(mut self, body: &[u8]) -> Vec<u8> {
        // With the exact capacity, the buffer becomes `Bytes` without another allocation.
        let mut out = Vec::with_capacity(self.settle(body.len()));
        let mut at = 0;
        for (span, bytes) in &self.cuts {
            out.extend_from_slice(Span { start: at, end: span.start }.of(body));
            out.extend_from_slice(bytes);
            at = span.end;
        }
        out.extend_from_slice(body.get(at as usize..).unwrap_or_default());
        out
    }

    /// Applies all replacements and returns the new body in three pieces.
    ///
    /// The middle piece is the longest unchanged part and shares the memory of `body`, so a small
    /// change does not copy a large body.
    pub fn apply_shared(mut self, body: &Bytes) -> [Bytes; 3] {
        self.settle(body.len());
        let end = body.len() as u32;
        let starts = std::iter::once(0).chain(self.cuts.iter().map(|(span, _)| span.end));
        let ends = self.cuts.iter().map(|(span, _)| span.start).chain([end]);
        let kept = starts.zip(ends).map(|(start, end)| Span { start, end });
        let longest = kept.enumerate().max_by_key(|(_, span)| span.length());
        let Some((at, middle)) = longest.filter(|(_, span)| span.length() >= MIN_SHARED_BYTES)
        else {
            return [self.apply(body).into(), Bytes::new(), Bytes::new()];
        };
        let after = self.cuts.split_off(at);
        let before = Splice { cuts: self.cuts };
        let shifted = after.into_iter().map(|(span, bytes)| {
            let (start, end) = (span.start - middle.end, span.end - middle.end);
            (Span { start, end }, bytes)
        });
        let after = Splice { cuts: shifted.collect() };
        let (head, tail) = (&body[..middle.start as usize], &body[middle.end as usize..]);
        let middle = body.slice(middle.start as usize..middle.end as usize);
        [before.apply(head).into(), middle, after.apply(tail).into()]
    }

    /// Sorts the replacements and drops those that overlap. Returns the length of the new body.
    fn settle(&mut self, mut length: usize) -> usize {
        self.cuts.sort_by_key(|(span, _)| (span.start, span.end));
        let mut at = 0;
        self.cuts.retain(|(span, bytes)| {
            let kept = span.start >= at;
            if kept {
                length = (length + bytes.len()).saturating_sub(span.length());
                at = span.end;
            }
            kept
        });
        length
    }
}

/// A value without the keys that only the gateway writes, for values that are copied into other messages.
///
/// ```
/// use toolward_wire::{Raw, without_own_meta};
///
/// let info = Raw::scan(br#"{"name":"s","_meta":{"io.toolward/x":1}}"#, 1024).unwrap();
/// assert_eq!(&without_own_meta(info)[..], br#"{"name":"s"}"#);
/// ```
pub fn without_own_meta(value: Raw<'_>) -> Cow<'_, [u8]> {
    let cuts = own_meta::cuts_in_value(value.bytes());
    if cuts.is_empty() {
        return value.bytes().into();
    }
    let mut splice = Splice::new();
    for cut in cuts {
        splice.replace(cut, &b""[..]);
    }
    splice.apply(value.bytes()).into()
}

/// A member of an object with the spans of its key and value.
pub(crate) trait MemberSpans {
    fn is(&self, name: &str) -> bool;
    fn key(&self) -> Span;
    fn value(&self) -> Span;
}

/// Adds replacements that change members of the object whose brace is at `open`.
///
/// `find` returns the span of a member's value, and `members` iterates over all members. Each
/// change is a key and its new value, or `None` to remove the member. New members are appended.
pub(crate) fn change_object<'c, P: MemberSpans>(
    splice: &mut Splice<'c>,
    open: u32,
    find: impl Fn(&str) -> Option<Span>,
    members: impl Iterator<Item = P>,
    changes: impl Iterator<Item = (&'c str, Option<&'c [u8]>)> + Clone,
) {
    let mut added = Vec::new();
    let mut removes = false;
    for (key, value) in changes.clone() {
        match (find(key), value) {
            (Some(span), Some(value)) => splice.replace(span, value),
            (Some(_), None) => removes = true,
            (None, Some(value)) => {
                added.push(b',');
                string::write(key, &mut added);
                added.push(b':');
                added.extend_from_slice(value);
            }
            (None, None) => {}
        }
    }
    if added.is_empty() && !removes {
        return;
    }
    let is_removed = |member: &P| {
        let mut removed = changes.clone().filter(|(_, value)| value.is_none());
        removed.any(|(key, _)| member.is(key))
    };
    let (mut last, mut last_kept): (Option<Span>, Option<Span>) = (None, None);
    let mut rest = members.peekable();
    while let Some(member) = rest.next() {
        let value = member.value();
        if !is_removed(&member) {
            last_kept = Some(value);
        } else {
            // If an earlier member stays, the comma before is removed too, otherwise the one after.
            let cut = match (last_kept.and(last), rest.peek()) {
                (Some(last), _) => Span { start: last.end, end: value.end },
                (None, Some(next)) => Span { start: member.key().start, end: next.key().start },
                (None, None) => Span { start: member.key().start, end: value.end },
            };
            splice.replace(cut, &b""[..]);
        }
        last = Some(value);
    }
    if !added.is_empty() {
        let end = match last_kept {
            Some(value) => value.end,
            None => {
                added.remove(0);
                open + 1
            }
        };
        splice.replace(Span { start: end, end }, added);
    }
}

/// A builder for changes to a message. [`finish`](Edit::finish) returns the new body.
///
/// ```
/// use toolward_wire::{Id, MAX_REQUEST_BYTES, Message, Sender};
///
/// let body = br#"{"jsonrpc":"2.0", "id":"a", "method":"ping", "x":[1, 2]}"#;
/// let message = Message::parse(body[..].into(), MAX_REQUEST_BYTES, Sender::Client).unwrap();
/// let out = message.edit().id(&Id::number(9)).set_meta("k", &b"true"[..]).finish();
/// assert_eq!(
///     &out[..],
///     br#"{"jsonrpc":"2.0", "id":9, "method":"ping", "x":[1, 2],"params":{"_meta":{"k":true}}}"#
/// );
/// ```
#[must_use]
pub struct Edit<'a> {
    message: &'a Message,
    changes: Vec<Change<'a>>,
    /// The JSON of all new values.
    values: Vec<u8>,
    /// Further spans to remove.
    cuts: Vec<Span>,
}

/// A change to one member.
struct Change<'a> {
    section: Section,
    key: Cow<'a, str>,
    /// The span of the new value in [`Edit::values`], or `None` to remove the member.
    value: Option<Span>,
}

impl Message {
    /// Starts an edit of this message. Members that are not changed keep their bytes.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }
}

impl<'a> Edit<'a> {
    fn new(message: &'a Message) -> Edit<'a> {
        let (changes, values) = (Vec::with_capacity(4), Vec::with_capacity(64));
        Edit { message, changes, values, cuts: Vec::new() }
    }

    /// Sets the id.
    pub fn id(self, id: &Id) -> Edit<'a> {
        self.set(Section::Envelope, "id", id.raw())
    }

    /// Sets the progress token that a request asks for, or that a progress notification refers to.
    pub fn progress_token(self, token: &Id) -> Edit<'a> {
        match self.message.kind() {
            Kind::Request => self.set(Section::ParamsMeta, meta::PROGRESS_TOKEN, token.raw()),
            _ => self.set(Section::Params, "progressToken", token.raw()),
        }
    }

    /// Sets a member of `params` to a string.
    pub fn set_param_str(self, key: &'a str, text: &str) -> Edit<'a> {
        self.write(Section::Params, key, |values| string::write(text, values))
    }

    /// Sets a member of `params` to a JSON value.
    pub fn set_param(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::Params, key, &value.into())
    }

    pub fn remove_param(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::Params, key)
    }

    /// Sets a member of `params._meta` to a JSON value.
    pub fn set_meta(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::ParamsMeta, key, &value.into())
    }

    pub fn remove_meta(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::ParamsMeta, key)
    }

    /// Sets a member of `result` to a JSON value.
    pub fn set_result(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::Result, key, &value.into())
    }

    pub fn remove_result(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::Result, key)
    }

    /// Sets a member of `result._meta` to a JSON value.
    pub fn set_result_meta(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::ResultMeta, key, &value.into())
    }

    pub fn remove_result_meta(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::ResultMeta, key)
    }

    /// Removes keys that only the gateway writes, such as a forged refusal, from every `_meta` that
    /// the protocol defines.
    pub fn remove_own_meta(self) -> Edit<'a> {
        if self.message.has_own_keys() { self.without_own_meta() } else { self }
    }

    #[cold]
    fn without_own_meta(mut self) -> Edit<'a> {
        self.cuts = own_meta::cuts_in_message(self.message.body(), self.message.root());
        for member in self.message.own_meta() {
            let name = member.name(self.message.body());
            let key = String::from_utf8_lossy(&name).into_owned();
            self.put(Change { section: member.section, key: key.into(), value: None });
        }
        self
    }

    fn set(self, section: Section, key: &'a str, value: &[u8]) -> Edit<'a> {
        self.write(section, key, |values| values.extend_from_slice(value))
    }

    fn write(
        mut self,
        section: Section,
        key: &'a str,
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Edit<'a> {
        let start = self.values.len();
        value(&mut self.values);
        let value = Some(Span::new(start, self.values.len()));
        self.put(Change { section, key: key.into(), value });
        self
    }

    fn remove(mut self, section: Section, key: &'a str) -> Edit<'a> {
        self.put(Change { section, key: key.into(), value: None });
        self
    }

    /// Adds a change. It replaces an earlier change of the same member.
    fn put(&mut self, change: Change<'a>) {
        let same =
            |earlier: &Change<'_>| earlier.section == change.section && earlier.key == change.key;
        if let Some(at) = self.changes.iter().position(same) {
            self.changes.remove(at);
        }
        self.changes.push(change);
    }

    pub fn finish(self) -> Bytes {
        let body = self.message.body();
        if self.changes.is_empty() && self.cuts.is_empty() {
            return body.clone();
        }
        self.with_splice(|splice| splice.apply(body).into())
    }

    /// Returns the new body in three pieces. See [`Splice::apply_shared`].
    pub fn finish_shared(self) -> [Bytes; 3] {
        let body = self.message.body();
        self.with_splice(|splice| splice.apply_shared(body))
    }

    fn with_splice<T>(mut self, finish: impl FnOnce(Splice<'_>) -> T) -> T {
        // Innermost objects first: an object that does not exist becomes a new member of its
        // parent.
        let objects = NESTED.map(|(section, parent, key)| {
            if !self.changes.iter().any(|change| change.section == section) {
                return None;
            }
            let member = self.message.find_member(parent, key);
            if member.is_none() {
                self.make_object(section, parent, key);
            } else if key == "_meta" && self.is_emptied(section) {
                self.changes.retain(|change| change.section != section);
                self.put(Change { section: parent, key: key.into(), value: None });
                return None;
            }
            member.map(|member| (section, member.value.start))
        });
        let capacity = self.changes.len() + self.cuts.len() + 1;
        let mut splice = Splice { cuts: Vec::with_capacity(capacity) };
        for cut in &self.cuts {
            splice.replace(*cut, &b""[..]);
        }
        for (section, open) in objects.into_iter().flatten() {
            self.change(section, open, &mut splice);
        }
        self.change(Section::Envelope, self.message.root().start, &mut splice);
        finish(splice)
    }

    /// Whether the changes leave nothing of an object that had members.
    fn is_emptied(&self, section: Section) -> bool {
        let body = self.message.body();
        let mut members = self.message.members(section).peekable();
        let removed = |name: &[u8]| {
            self.changes_of(section).any(|(key, value)| value.is_none() && key.as_bytes() == name)
        };
        members.peek().is_some()
            && self.changes_of(section).all(|(_, value)| value.is_none())
            && members.all(|member| removed(&member.name(body)))
    }

    /// Turns the changes of an object that does not exist into a change of its parent.
    fn make_object(&mut self, section: Section, parent: Section, key: &'a str) {
        let mut splice = Splice::new();
        let no_members = std::iter::empty::<IndexedMember<'_>>();
        change_object(&mut splice, 0, |_| None, no_members, self.changes_of(section));
        let object = splice.apply(b"{}");
        self.changes.retain(|change| change.section != section);
        if object.len() > 2 {
            let start = self.values.len();
            self.values.extend_from_slice(&object);
            let value = Some(Span::new(start, self.values.len()));
            self.put(Change { section: parent, key: key.into(), value });
        }
    }

    /// Adds the replacements for the object of a section, whose brace is at `open`.
    fn change<'c>(&'c self, section: Section, open: u32, splice: &mut Splice<'c>) {
        let body = self.message.body();
        let find = |key: &str| self.message.find_member(section, key).map(|member| member.value);
        let members = self.message.members(section).map(|member| IndexedMember { member, body });
        change_object(splice, open, find, members, self.changes_of(section));
    }

    fn changes_of(&self, section: Section) -> impl Iterator<Item = (&str, Option<&[u8]>)> + Clone {
        let ours = self.changes.iter().filter(move |change| change.section == section);
        ours.map(|change| (&*change.key, change.value.map(|value| value.of(&self.values))))
    }
}

/// The objects inside the envelope, innermost first, each with its parent and its key.
const NESTED: [(Section, Section, &str); 4] = [
    (Section::ParamsMeta, Section::Params, "_meta"),
    (Section::Params, Section::Envelope, "params"),
    (Section::ResultMeta, Section::Result, "_meta"),
    (Section::Result, Section::Envelope, "result"),
];

/// An indexed member and the body that contains it.
struct IndexedMember<'m> {
    member: &'m Member,
    body: &'m [u8],
}

impl MemberSpans for IndexedMember<'_> {
    fn is(&self, name: &str) -> bool {
        *self.member.name(self.body) == *name.as_bytes()
    }

    fn key(&self) -> Span {
        self.member.key
    }

    fn value(&self) -> Span {
        self.member.value
    }
}
