//! The members of a message whose places were noted by the scanner.

use std::borrow::Cow;

use crate::span::Span;
use crate::string;

/// An object of a message whose members are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    // Not zero: a frame of the scanner that is all zero costs least.
    Envelope = 1,
    Params,
    ParamsMeta,
    Result,
    ResultMeta,
    Error,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    label: Label,
    pub(crate) section: Section,
    /// The key holds escapes.
    pub(crate) escaped: bool,
    /// The key with its quotes.
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// The section and the length of a key: what most other members differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label(u32);

impl Label {
    /// Of a key that holds escapes, and has no length before they are undone.
    const ESCAPED: Label = Label(0);

    #[inline]
    fn new(section: Section, length: usize) -> Label {
        Label((length as u32) << 3 | section as u32)
    }
}

impl Member {
    /// The key, unescaped, which is UTF-8.
    #[inline]
    pub(crate) fn name<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        let content = self.key_content(body);
        if self.escaped { string::unescaped(content) } else { Cow::Borrowed(content) }
    }

    /// The key as sent, without its quotes.
    #[inline]
    pub(crate) fn key_content<'b>(&self, body: &'b [u8]) -> &'b [u8] {
        Span { start: self.key.start + 1, end: self.key.end - 1 }.of(body)
    }
}

/// All noted members, in their order.
#[derive(Debug, Clone)]
pub(crate) struct MemberIndex {
    members: Vec<Member>,
    /// Some key holds escapes.
    escaped: bool,
}

impl MemberIndex {
    pub(crate) fn with_capacity(capacity: usize) -> MemberIndex {
        MemberIndex { members: Vec::with_capacity(capacity), escaped: false }
    }

    /// Adds a member whose value begins at `value`: how many there are now.
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

    /// The value of the member at `index` ends at `end`.
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

    /// The member of this name, of which there is at most one.
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
