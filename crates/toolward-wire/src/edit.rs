//! Changing what the gateway owns in a body, with every other byte as it was.

use std::borrow::Cow;

use bytes::Bytes;

use crate::id::Id;
use crate::message::{Kind, Message};
use crate::scan::Section;
use crate::span::Span;
use crate::string;
use crate::words::meta;

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
        self.cuts.sort_by_key(|(span, _)| (span.start, span.end));
        let added: usize = self.cuts.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut out = Vec::with_capacity(body.len() + added);
        let mut at = 0;
        for (span, bytes) in &self.cuts {
            if span.start < at {
                continue;
            }
            out.extend_from_slice(Span { start: at, end: span.start }.of(body));
            out.extend_from_slice(bytes);
            at = span.end;
        }
        out.extend_from_slice(body.get(at as usize..).unwrap_or_default());
        out
    }
}

/// A change of one member: its new value, or `None` to remove it.
pub(crate) struct Change<'a> {
    pub(crate) key: Cow<'a, str>,
    pub(crate) value: Option<Cow<'a, [u8]>>,
}

/// Where a member of an object lies, and its unescaped key.
pub(crate) struct Place<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// Adds the cuts that change members of the object that opens at `open`. New members come last.
pub(crate) fn change_object<'a>(
    splice: &mut Splice<'a>,
    open: u32,
    places: &[Place<'_>],
    changes: Vec<Change<'a>>,
) {
    let mut added = Vec::new();
    let mut removed = vec![false; places.len()];
    for change in changes {
        let at = places.iter().position(|place| place.name == change.key);
        match (at, change.value) {
            (Some(at), Some(value)) => splice.replace(places[at].value, value),
            (Some(at), None) => removed[at] = true,
            (None, Some(value)) => {
                if !added.is_empty() {
                    added.push(b',');
                }
                string::write(&change.key, &mut added);
                added.push(b':');
                added.extend_from_slice(&value);
            }
            (None, None) => {}
        }
    }
    let mut last_kept: Option<Span> = None;
    for (at, place) in places.iter().enumerate() {
        if !removed[at] {
            last_kept = Some(place.value);
            continue;
        }
        // After a member that stays, the comma before goes too; else the one behind.
        let cut = match (last_kept, places.get(at + 1)) {
            (Some(_), _) => Span { start: places[at - 1].value.end, end: place.value.end },
            (None, Some(next)) => Span { start: place.key.start, end: next.key.start },
            (None, None) => Span { start: place.key.start, end: place.value.end },
        };
        splice.replace(cut, &b""[..]);
    }
    if !added.is_empty() {
        let end = match last_kept {
            Some(value) => {
                added.insert(0, b',');
                value.end
            }
            None => open + 1,
        };
        splice.replace(Span { start: end, end }, added);
    }
}

/// Collects changes to a message; [`finish`](Edit::finish) makes the new body.
///
/// ```
/// use toolward_wire::{Id, MAX_REQUEST, Message, Sender};
///
/// let body = br#"{"jsonrpc":"2.0", "id":"a", "method":"ping", "x":[1, 2]}"#;
/// let message = Message::parse(body[..].into(), MAX_REQUEST, Sender::Client).unwrap();
/// let out = message.edit().id(&Id::number(9)).set_meta("k", &b"true"[..]).finish();
/// assert_eq!(
///     &out[..],
///     br#"{"jsonrpc":"2.0", "id":9, "method":"ping", "x":[1, 2],"params":{"_meta":{"k":true}}}"#
/// );
/// ```
#[must_use]
pub struct Edit<'a> {
    message: &'a Message,
    changes: Vec<(Section, Change<'a>)>,
}

impl<'a> Edit<'a> {
    pub(crate) fn new(message: &'a Message) -> Edit<'a> {
        Edit { message, changes: Vec::new() }
    }

    pub fn id(self, id: &Id) -> Edit<'a> {
        let raw = id.raw().to_vec();
        self.set(Section::Envelope, "id", raw)
    }

    /// The token under which a request wants progress, or of which a notification reports.
    pub fn progress_token(self, token: &Id) -> Edit<'a> {
        let raw = token.raw().to_vec();
        match self.message.kind() {
            Kind::Request => self.set(Section::ParamsMeta, meta::PROGRESS_TOKEN, raw),
            _ => self.set(Section::Params, "progressToken", raw),
        }
    }

    /// A member of `params` that is a string, such as the name or the cursor.
    pub fn set_param_str(self, key: &'a str, text: &str) -> Edit<'a> {
        let quoted = string::quote(text);
        self.set(Section::Params, key, quoted)
    }

    /// A member of `params`; the value is JSON.
    pub fn set_param(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::Params, key, value)
    }

    pub fn remove_param(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::Params, key)
    }

    /// A member of `params._meta`; the value is JSON.
    pub fn set_meta(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::ParamsMeta, key, value)
    }

    pub fn remove_meta(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::ParamsMeta, key)
    }

    /// A member of `result`; the value is JSON.
    pub fn set_result(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::Result, key, value)
    }

    pub fn remove_result(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::Result, key)
    }

    /// A member of `result._meta`; the value is JSON.
    pub fn set_result_meta(self, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.set(Section::ResultMeta, key, value)
    }

    pub fn remove_result_meta(self, key: &'a str) -> Edit<'a> {
        self.remove(Section::ResultMeta, key)
    }

    fn set(mut self, section: Section, key: &'a str, value: impl Into<Cow<'a, [u8]>>) -> Edit<'a> {
        self.put(section, Change { key: key.into(), value: Some(value.into()) });
        self
    }

    fn remove(mut self, section: Section, key: &'a str) -> Edit<'a> {
        self.put(section, Change { key: key.into(), value: None });
        self
    }

    /// The last change of a member holds.
    fn put(&mut self, section: Section, change: Change<'a>) {
        self.changes.retain(|(at, earlier)| *at != section || earlier.key != change.key);
        self.changes.push((section, change));
    }

    pub fn finish(mut self) -> Bytes {
        if self.changes.is_empty() {
            return self.message.body().clone();
        }
        let mut splice = Splice::new();
        // From the inside out: an object that is missing becomes a new member of the one around.
        for (section, parent, key) in [
            (Section::ParamsMeta, Section::Params, "_meta"),
            (Section::Params, Section::Envelope, "params"),
            (Section::ResultMeta, Section::Result, "_meta"),
            (Section::Result, Section::Envelope, "result"),
        ] {
            let changes = self.take(section);
            if changes.is_empty() {
                continue;
            }
            match self.message.find_member(parent, key) {
                Some(member) => {
                    let places = places(self.message, section);
                    change_object(&mut splice, member.value.start, &places, changes);
                }
                None => {
                    let value = new_object(changes);
                    if value.len() > 2 {
                        self.put(parent, Change { key: key.into(), value: Some(value.into()) });
                    }
                }
            }
        }
        let changes = self.take(Section::Envelope);
        let places = places(self.message, Section::Envelope);
        change_object(&mut splice, self.message.root().start, &places, changes);
        splice.apply(self.message.body()).into()
    }

    fn take(&mut self, section: Section) -> Vec<Change<'a>> {
        self.changes.extract_if(.., |(at, _)| *at == section).map(|(_, change)| change).collect()
    }
}

fn places(message: &Message, section: Section) -> Vec<Place<'_>> {
    message
        .members(section)
        .map(|member| Place {
            name: member.name(message.body()),
            key: member.key,
            value: member.value,
        })
        .collect()
}

fn new_object(changes: Vec<Change<'_>>) -> Vec<u8> {
    let mut splice = Splice::new();
    change_object(&mut splice, 0, &[], changes);
    splice.apply(b"{}")
}
