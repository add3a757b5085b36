//! Tool, prompt, resource and template lists, parsed entry by entry.
//!
//! A malformed entry is dropped and reported. The other entries keep all their fields, byte for
//! byte.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;

use crate::edit::{MemberSpans, Splice, change_object};
use crate::message::Message;
use crate::method::PolicySubject;
use crate::names::is_variant_of;
use crate::own_meta;
use crate::raw::{Raw, RawMember, Shape};
use crate::scan::{self, ScanError};
use crate::span::Span;
use crate::string;

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListKind {
    Tools,
    Prompts,
    Resources,
    ResourceTemplates,
}

impl ListKind {
    pub const ALL: [ListKind; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::ResourceTemplates];

    /// The position in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The method that lists it.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
        }
    }

    /// The server capability that it belongs to.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::ResourceTemplates => "resources",
        }
    }

    /// The notification that announces a change. Resources and templates share one.
    pub const fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::ResourceTemplates => "notifications/resources/list_changed",
        }
    }

    /// The name of an entry's kind in messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::ResourceTemplates => "resource template",
        }
    }

    pub fn of(subject: PolicySubject) -> Option<ListKind> {
        match subject {
            PolicySubject::ToolList => Some(Self::Tools),
            PolicySubject::PromptList => Some(Self::Prompts),
            PolicySubject::ResourceList => Some(Self::Resources),
            PolicySubject::TemplateList => Some(Self::ResourceTemplates),
            _ => None,
        }
    }

    /// The member of the result that contains the array.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// The member that identifies an entry in requests.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }
}

/// One page of a list.
#[derive(Debug, Clone, Default)]
pub struct List {
    pub entries: Vec<Entry>,
    pub malformed: Vec<MalformedEntry>,
    pub next_cursor: Option<String>,
}

/// An error that makes a whole page unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListError {
    /// The result does not contain the array.
    NoArray {
        member: &'static str,
    },
    BadCursor,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoArray { member } => write!(f, "the result has no array `{member}`"),
            Self::BadCursor => write!(f, "`nextCursor` is not a string"),
        }
    }
}

impl std::error::Error for ListError {}

/// An entry that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedEntry {
    pub index: usize,
    /// The name of the entry, if it has one.
    pub name: Option<String>,
    pub problem: EntryError,
}

/// The reason an entry was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryError {
    NotAnObject,
    /// A duplicate key or another ambiguity, at any depth.
    Json(ScanError),
    /// The identifying member is missing, empty or not a string.
    NoName {
        member: &'static str,
    },
    /// An earlier entry has the same name.
    Repeated,
    /// A member differs only in case from one that the gateway reads.
    CaseVariant {
        key: String,
    },
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => write!(f, "the entry is not an object"),
            Self::Json(error) => write!(f, "{error}"),
            Self::NoName { member } => write!(f, "`{member}` must be a non-empty string"),
            Self::Repeated => write!(f, "an earlier entry has the same name"),
            Self::CaseVariant { key } => {
                write!(f, "`{key}` differs from a protocol member only in case")
            }
        }
    }
}

/// Members of an entry that the gateway reads.
const READ_MEMBERS: &[&str] =
    &["name", "uri", "uriTemplate", "description", "inputSchema", "annotations", "_meta"];

impl List {
    /// Reads one page of a list from a response.
    ///
    /// `seen` contains the names on earlier pages. The names on this page are added.
    pub fn read(
        message: &Message,
        kind: ListKind,
        seen: &mut HashSet<Box<str>>,
    ) -> Result<List, ListError> {
        let member = kind.member();
        let array = message
            .result_member(member)
            .filter(|array| array.shape() == Shape::Array)
            .ok_or(ListError::NoArray { member })?;
        let next_cursor = match message.result_member("nextCursor") {
            None => None,
            Some(cursor) if cursor.shape() == Shape::Null => None,
            Some(cursor) => Some(cursor.as_str().ok_or(ListError::BadCursor)?.into_owned()),
        };
        let mut list = List { next_cursor, ..List::default() };
        for (index, (raw, _)) in array.elements().enumerate() {
            let mut bytes = message.body().slice_ref(raw.bytes());
            if message.has_own_keys() {
                bytes = without_own_meta(bytes);
            }
            let checked = match message.is_ambiguous() {
                true => scan::check(&bytes, usize::MAX).map(|_| ()).map_err(EntryError::Json),
                false => Ok(()),
            };
            let entry = checked.and_then(|()| Entry::scanned(bytes, kind)).and_then(|entry| {
                match seen.insert(entry.name.clone()) {
                    true => Ok(entry),
                    false => Err(EntryError::Repeated),
                }
            });
            match entry {
                Ok(entry) => list.entries.push(entry),
                Err(problem) => {
                    let name = raw.member(kind.key()).and_then(Raw::as_str);
                    let name = name.map(|name| name.into_owned());
                    list.malformed.push(MalformedEntry { index, name, problem });
                }
            }
        }
        Ok(list)
    }
}

/// An entry: a tool, prompt, resource or template, with all its fields.
#[derive(Debug, Clone)]
pub struct Entry {
    bytes: Bytes,
    name: Box<str>,
}

impl Entry {
    /// Parses an entry that does not come from a response.
    pub fn parse(bytes: Bytes, kind: ListKind) -> Result<Entry, EntryError> {
        let span = scan::check(&bytes, usize::MAX).map_err(EntryError::Json)?;
        Entry::scanned(bytes.slice(span.range()), kind)
    }

    fn scanned(bytes: Bytes, kind: ListKind) -> Result<Entry, EntryError> {
        let raw = Raw::scanned(&bytes);
        if !raw.is_object() {
            return Err(EntryError::NotAnObject);
        }
        let mut name = None;
        for member in raw.members() {
            if member.is(kind.key()) {
                name = member.value.as_str();
            } else if is_variant_of(READ_MEMBERS, member.name().as_bytes()) {
                return Err(EntryError::CaseVariant { key: member.name().into_owned() });
            }
        }
        match name {
            Some(name) if !name.is_empty() => {
                let name = name.into_owned().into();
                Ok(Entry { bytes, name })
            }
            _ => Err(EntryError::NoName { member: kind.key() }),
        }
    }

    /// The name, URI or URI template.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entry as received.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn raw(&self) -> Raw<'_> {
        Raw::scanned(&self.bytes)
    }

    /// Starts an edit of the entry, for the list that clients see.
    pub fn edit(&self) -> EntryEdit<'_> {
        EntryEdit { entry: self, changes: Vec::new(), enums: Vec::new() }
    }
}

/// A builder for changes to an entry. Every other byte stays.
///
/// ```
/// use toolward_wire::list::{Entry, ListKind};
///
/// let bytes = br#"{"name": "a", "inputSchema": {"properties": {"do": {"enum": ["x", "y"]}}}}"#;
/// let tool = Entry::parse(bytes[..].into(), ListKind::Tools).unwrap();
/// let shown = tool.edit().name("b").keep_enum("do", &["y"]).finish();
/// assert_eq!(
///     &shown[..],
///     br#"{"name": "b", "inputSchema": {"properties": {"do": {"enum": ["y"]}}}}"#
/// );
/// ```
#[must_use]
pub struct EntryEdit<'a> {
    entry: &'a Entry,
    /// The changed members, by key.
    changes: Vec<(&'static str, Vec<u8>)>,
    enums: Vec<(Span, Vec<u8>)>,
}

impl<'a> EntryEdit<'a> {
    pub fn name(self, name: &str) -> EntryEdit<'a> {
        self.set("name", name)
    }

    pub fn description(self, text: &str) -> EntryEdit<'a> {
        self.set("description", text)
    }

    fn set(mut self, key: &'static str, text: &str) -> EntryEdit<'a> {
        self.changes.retain(|(earlier, _)| *earlier != key);
        self.changes.push((key, string::quote(text)));
        self
    }

    /// Restricts `inputSchema.properties.KEY.enum` to the strings in `keep`, in document order.
    pub fn keep_enum(mut self, key: &str, keep: &[&str]) -> EntryEdit<'a> {
        let path = ["inputSchema", "properties", key, "enum"];
        if let Some((values, span)) = find(self.entry.raw(), &path)
            && values.shape() == Shape::Array
        {
            let mut kept = vec![b'['];
            for (value, _) in values.elements() {
                let stays = value.as_str().is_some_and(|text| keep.contains(&text.as_ref()));
                if stays {
                    if kept.len() > 1 {
                        kept.extend_from_slice(b", ");
                    }
                    kept.extend_from_slice(value.bytes());
                }
            }
            kept.push(b']');
            self.enums.retain(|(earlier, _)| *earlier != span);
            self.enums.push((span, kept));
        }
        self
    }

    pub fn finish(self) -> Bytes {
        if self.changes.is_empty() && self.enums.is_empty() {
            return self.entry.bytes.clone();
        }
        let mut splice = Splice::new();
        let members: Vec<RawMember<'_>> = self.entry.raw().members().collect();
        let changes = self.changes.iter().map(|(key, value)| (*key, Some(&value[..])));
        let find = |key: &str| {
            members.iter().find(|member| member.is(key)).map(|member| member.value_span)
        };
        change_object(&mut splice, 0, find, members.iter().copied(), changes);
        for (span, values) in self.enums {
            splice.replace(span, values);
        }
        splice.apply(&self.entry.bytes).into()
    }
}

impl MemberSpans for RawMember<'_> {
    fn is(&self, name: &str) -> bool {
        RawMember::is(self, name)
    }

    fn key(&self) -> Span {
        self.key_span
    }

    fn value(&self) -> Span {
        self.value_span
    }
}

/// Removes the gateway's own keys from `_meta`.
fn without_own_meta(entry: Bytes) -> Bytes {
    let cuts = own_meta::cuts_in_value(&entry);
    if cuts.is_empty() {
        return entry;
    }
    let mut splice = Splice::new();
    cuts.into_iter().for_each(|cut| splice.replace(cut, &b""[..]));
    splice.apply(&entry).into()
}

/// The value at a path of object keys, and its span in the bytes of `raw`.
fn find<'b>(raw: Raw<'b>, path: &[&str]) -> Option<(Raw<'b>, Span)> {
    let whole = Span::new(0, raw.bytes().len());
    path.iter().try_fold((raw, whole), |(raw, span), key| {
        let member = raw.members().find(|member| member.is(key))?;
        Some((member.value, member.value_span.after(span.start)))
    })
}

/// Builds a JSON array of entries.
pub fn array<'a>(entries: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let mut array = vec![b'['];
    for entry in entries {
        if array.len() > 1 {
            array.push(b',');
        }
        array.extend_from_slice(entry);
    }
    array.push(b']');
    array.into()
}

/// Builds the result of a list request.
///
/// `more` contains additional members and their JSON values, such as `resultType` and `ttlMs`.
pub fn result(
    kind: ListKind,
    array: &[u8],
    next_cursor: Option<&str>,
    more: &[(&str, &[u8])],
) -> Vec<u8> {
    let mut result = Vec::with_capacity(array.len() + 256);
    result.push(b'{');
    string::write(kind.member(), &mut result);
    result.push(b':');
    result.extend_from_slice(array);
    if let Some(cursor) = next_cursor {
        result.extend_from_slice(b",\"nextCursor\":");
        string::write(cursor, &mut result);
    }
    for (key, value) in more {
        result.push(b',');
        string::write(key, &mut result);
        result.push(b':');
        result.extend_from_slice(value);
    }
    result.push(b'}');
    result
}
