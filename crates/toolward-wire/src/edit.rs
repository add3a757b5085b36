//! Changing what the gateway owns in a body, with every other byte as it was.

use std::borrow::Cow;

use bytes::Bytes;

use crate::id::Id;
use crate::member_index::{Member, Section};
use crate::message::{Kind, Message};
use crate::names::meta;
use crate::span::Span;
use crate::string;

/// A shorter part is copied rather than shared.
const SHARED: usize = 16 << 10;

/// Replaces parts of a body by other bytes.
#[derive(Debug, Clone, Default)]
pub struct Splice<'a> {
    cuts: Vec<(Span, Cow<'a, [u8]>)>,
}

impl<'a> Splice<'a> {
    pub fn new() -> Splice<'a> {
        Splice::default()
    }

    /// Puts `bytes` where `span` is. Of two spans that overlap, the one that begins later is left
    /// out; of two at the same empty place, the first added comes first.
    pub fn replace(&mut self, span: Span, bytes: impl Into<Cow<'a, [u8]>>) {
        self.cuts.push((span, bytes.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    /// The body with all replacements made.
    pub fn apply(mut self, body: &[u8]) -> Vec<u8> {
        // Made as long as it becomes, a buffer can be shared as it is.
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

    /// The body with all replacements made, in three pieces. The middle one is the longest part that
    /// stays as it is and shares the memory of `body`: a large body is not copied for a small change.
    pub fn apply_shared(mut self, body: &Bytes) -> [Bytes; 3] {
        self.settle(body.len());
        let end = body.len() as u32;
        let starts = std::iter::once(0).chain(self.cuts.iter().map(|(span, _)| span.end));
        let ends = self.cuts.iter().map(|(span, _)| span.start).chain([end]);
        let kept = starts.zip(ends).map(|(start, end)| Span { start, end });
        let longest = kept.enumerate().max_by_key(|(_, span)| span.length());
        let Some((at, middle)) = longest.filter(|(_, span)| span.length() >= SHARED) else {
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

    /// Puts the replacements in order and leaves out those that overlap; how long the body becomes.
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

/// A member of an object, and where it lies.
pub(crate) trait Place {
    fn is(&self, name: &str) -> bool;
    fn key(&self) -> Span;
    fn value(&self) -> Span;
}

/// Adds the cuts that change members of the object that opens at `open`. `find` gives the value of
/// a member, and `places` are all of them. Each change is a key and its new value, or `None` to
/// remove it. New members come last.
pub(crate) fn change_object<'c, P: Place>(
    splice: &mut Splice<'c>,
    open: u32,
    find: impl Fn(&str) -> Option<Span>,
    places: impl Iterator<Item = P>,
    changes: impl Iterator<Item = (&'c str, Option<&'c [u8]>)> + Clone,
) {
    let mut added = Vec::new();
    let mut removes = false;
    for (key, value) in changes.clone() {
        match (find(key), value) {
            (Some(place), Some(value)) => splice.replace(place, value),
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
    let is_removed = |place: &P| {
        let mut removed = changes.clone().filter(|(_, value)| value.is_none());
        removed.any(|(key, _)| place.is(key))
    };
    let (mut last, mut last_kept): (Option<Span>, Option<Span>) = (None, None);
    let mut rest = places.peekable();
    while let Some(place) = rest.next() {
        let value = place.value();
        if !is_removed(&place) {
            last_kept = Some(value);
        } else {
            // After a member that stays, the comma before goes too; else the one behind.
            let cut = match (last_kept.and(last), rest.peek()) {
                (Some(last), _) => Span { start: last.end, end: value.end },
                (None, Some(next)) => Span { start: place.key().start, end: next.key().start },
                (None, None) => Span { start: place.key().start, end: value.end },
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

/// Collects changes to a message; [`finish`](Edit::finish) makes the new body.
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
    /// The bytes of all new values.
    values: Vec<u8>,
}

/// A change of one member.
struct Change<'a> {
    section: Section,
    key: &'a str,
    /// Where its new value lies in [`Edit::values`], or `None` to remove it.
    value: Option<Span>,
}

impl Message {
    /// Begins to change what the gateway owns; all other bytes stay.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }
}

impl<'a> Edit<'a> {
    fn new(message: &'a Message) -> Edit<'a> {
        Edit { message, changes: Vec::with_capacity(4), values: Vec::with_capacity(64) }
    }

    pub fn id(self, id: &Id) -> Edit<'a> {
        self.set(Section::Envelope, "id", id.raw())
    }

    /// The token under which a request wants progress, or of which a notification reports.
    pub fn progress_token(self, token: &Id) -> Edit<'a> {
        match self.message.kind() {
            Kind::Request => self.set(Section::ParamsMeta, meta::PROGRESS_TOKEN, token.raw()),
            _ => self.set(Section::Params, "progressToken", token.raw()),
        }
    }

    /// A member of `params` that is a string, such as the name or the cursor.
    pub fn set_param_str(self, key: &'a str, text: &str) -> Edit<'a> {
        self.write(Section::Params, key, |values| string::write(text, values))
    }

    /// A member of `params`; the value is JSON.
    pub fn set_param(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::Params, key, &value.into())
    }

    pub fn remove_param(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::Params, key)
    }

    /// A member of `params._meta`; the value is JSON.
    pub fn set_meta(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::ParamsMeta, key, &value.into())
    }

    pub fn remove_meta(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::ParamsMeta, key)
    }

    /// A member of `result`; the value is JSON.
    pub fn set_result(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::Result, key, &value.into())
    }

    pub fn remove_result(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::Result, key)
    }

    /// A member of `result._meta`; the value is JSON.
    pub fn set_result_meta(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::ResultMeta, key, &value.into())
    }

    pub fn remove_result_meta(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::ResultMeta, key)
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
        self.put(Change { section, key, value });
        self
    }

    fn remove(mut self, section: Section, key: &'a str) -> Edit<'a> {
        self.put(Change { section, key, value: None });
        self
    }

    /// The last change of a member holds.
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
        if self.changes.is_empty() {
            return body.clone();
        }
        self.with_splice(|splice| splice.apply(body).into())
    }

    /// The new body in three pieces, of which the middle one shares the memory of a long message.
    pub fn finish_shared(self) -> [Bytes; 3] {
        let body = self.message.body();
        self.with_splice(|splice| splice.apply_shared(body))
    }

    fn with_splice<T>(mut self, finish: impl FnOnce(Splice<'_>) -> T) -> T {
        // From the inside out: an object that is missing becomes a new member of the one around.
        let objects = NESTED.map(|(section, parent, key)| {
            if !self.changes.iter().any(|change| change.section == section) {
                return None;
            }
            let member = self.message.find_member(parent, key);
            if member.is_none() {
                self.make_object(section, parent, key);
            }
            member.map(|member| (section, member.value.start))
        });
        let mut splice = Splice { cuts: Vec::with_capacity(self.changes.len() + 1) };
        for (section, open) in objects.into_iter().flatten() {
            self.change(section, open, &mut splice);
        }
        self.change(Section::Envelope, self.message.root().start, &mut splice);
        finish(splice)
    }

    /// Turns the changes of an object that is missing into one of the object around it.
    fn make_object(&mut self, section: Section, parent: Section, key: &'a str) {
        let mut splice = Splice::new();
        let nothing = std::iter::empty::<InBody<'_>>();
        change_object(&mut splice, 0, |_| None, nothing, self.changes_of(section));
        let object = splice.apply(b"{}");
        self.changes.retain(|change| change.section != section);
        if object.len() > 2 {
            let start = self.values.len();
            self.values.extend_from_slice(&object);
            let value = Some(Span::new(start, self.values.len()));
            self.put(Change { section: parent, key, value });
        }
    }

    /// Adds the cuts that change the object of a section, which opens at `open`.
    fn change<'c>(&'c self, section: Section, open: u32, splice: &mut Splice<'c>) {
        let body = self.message.body();
        let find = |key: &str| self.message.find_member(section, key).map(|member| member.value);
        let places = self.message.members(section).map(|member| InBody { member, body });
        change_object(splice, open, find, places, self.changes_of(section));
    }

    fn changes_of(&self, section: Section) -> impl Iterator<Item = (&str, Option<&[u8]>)> + Clone {
        let ours = self.changes.iter().filter(move |change| change.section == section);
        ours.map(|change| (change.key, change.value.map(|value| value.of(&self.values))))
    }
}

/// The objects inside the envelope: from the inside out, with the object around each and its key.
const NESTED: [(Section, Section, &str); 4] = [
    (Section::ParamsMeta, Section::Params, "_meta"),
    (Section::Params, Section::Envelope, "params"),
    (Section::ResultMeta, Section::Result, "_meta"),
    (Section::Result, Section::Envelope, "result"),
];

/// A noted member, with the bytes in which it lies.
struct InBody<'m> {
    member: &'m Member,
    body: &'m [u8],
}

impl Place for InBody<'_> {
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
