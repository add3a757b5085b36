//! Index of the members of a message, built by the scanner.

use std::borrow::Cow;

use crate::span::Span;
use crate::string;

/// An object of a message whose members are indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    // Starts at 1 so that an empty scanner frame is all zeros, which is the cheapest to initialize.
    Envelope = 1,
    Params,
    ParamsMeta,
    Result,
    ResultMeta,
    Error,
}

/// An indexed member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    label: Label,
    pub(crate) section: Section,
    /// Whether the key contains an escape sequence.
    pub(crate) escaped: bool,
    /// The key, including its quotes.
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// The section and length of a key: a quick check that rules out most other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label(u32);

impl Label {
    /// The label of a key with an escape sequence, whose length is not known yet.
    const ESCAPED: Label = Label(0);

    #[inline]
    fn new(section: Section, length: usize) -> Label {
        Label((length as u32) << 3 | section as u32)
    }
}

impl Member {
    /// The unescaped key. It is valid UTF-8.
    #[inline]
    pub(crate) fn name<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        let content = self.key_content(body);
        if self.escaped { string::unescaped(content) } else { Cow::Borrowed(content) }
    }

    /// The key as received, without its quotes.
    #[inline]
    pub(crate) fn key_content<'b>(&self, body: &'b [u8]) -> &'b [u8] {
        Span { start: self.key.start + 1, end: self.key.end - 1 }.of(body)
    }
}

/// All indexed members of a message, in document order.
#[derive(Debug, Clone)]
pub(crate) struct MemberIndex {
    members: Vec<Member>,
    /// Whether any key contains an escape sequence.
    escaped: bool,
}

impl MemberIndex {
    pub(crate) fn with_capacity(capacity: usize) -> MemberIndex {
        MemberIndex { members: Vec::with_capacity(capacity), escaped: false }
    }

    /// Adds a member whose value starts at `value`. Returns the new number of members.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        section: Section,
        key: Span,
        escaped: bool,
        value: usize,
    ) -> u32 {
        let label = match escaped {
            true => Label::ESCAPED,
            false => Label::new(section, key.length() - 2),
        };
        self.escaped |= escaped;
        let value = Span::new(value, value);
        self.members.push(Member { label, section, escaped, key, value });
        self.members.len() as u32
    }

    /// Sets the end of the value of the member at `index`.
    #[inline]
    pub(crate) fn end(&mut self, index: u32, end: usize) {
        if let Some(member) = self.members.get_mut(index as usize) {
            member.value.end = end as u32;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    pub(crate) fn of(&self, section: Section) -> impl Iterator<Item = &Member> + Clone {
        self.members.iter().filter(move |member| member.section == section)
    }

    /// Finds the member with this name. There is at most one, since duplicates are rejected.
    #[inline(always)]
    pub(crate) fn find(&self, section: Section, name: &str, body: &[u8]) -> Option<&Member> {
        let label = Label::new(section, name.len());
        let is =
            |member: &&Member| member.label == label && member.key_content(body) == name.as_bytes();
        let found = self.members.iter().find(is);
        if found.is_none() && self.escaped {
            return self.find_escaped(section, name, body);
        }
        found
    }

    #[cold]
    fn find_escaped(&self, section: Section, name: &str, body: &[u8]) -> Option<&Member> {
        let mut escaped = self.of(section).filter(|member| member.escaped);
        escaped.find(|member| *member.name(body) == *name.as_bytes())
    }
}
