//! A definition of a tool, prompt or resource template, with its digests.

use bytes::Bytes;
use serde_json::{Map, Value};
use toolward_policy::Annotations;
use toolward_wire::Raw;
use toolward_wire::list::{Entry, EntryError, ListKind};

use super::canonical::{Digest, Pointer, comparable, pretty};

/// A definition as its server sent it.
#[derive(Debug, Clone)]
pub struct Definition {
    bytes: Bytes,
    digest: Digest,
}

impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        self.digest == other.digest
    }
}

impl Definition {
    pub fn of(entry: &Entry) -> Definition {
        Definition { bytes: entry.bytes().clone(), digest: Digest::of(entry.raw(), &[]) }
    }

    /// Reads a stored definition, and its name.
    pub(super) fn parse(bytes: &[u8], kind: ListKind) -> Result<(Definition, Entry), EntryError> {
        let entry = Entry::parse(Bytes::copy_from_slice(bytes), kind)?;
        Ok((Definition::of(&entry), entry))
    }

    fn raw(&self) -> Option<Raw<'_>> {
        Raw::scan(&self.bytes, usize::MAX).ok()
    }

    /// The digest of the whole definition.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub(super) fn digest_without(&self, ignored: &[Pointer]) -> Digest {
        match self.raw().filter(|_| !ignored.is_empty()) {
            Some(raw) => Digest::of(raw, ignored),
            None => self.digest,
        }
    }

    /// The digest of each member.
    pub fn fields(&self) -> Vec<(String, Digest)> {
        let members = self.raw().into_iter().flat_map(Raw::members);
        let fields = members.map(|one| (one.name().into_owned(), Digest::of(one.value, &[])));
        let mut fields: Vec<_> = fields.collect();
        fields.sort_unstable();
        fields
    }

    /// The hints that it claims.
    pub(super) fn annotations(&self) -> Annotations {
        let claims = self.raw().and_then(|raw| raw.member("annotations"));
        Annotations::of(claims.map(Raw::to_json).as_ref())
    }

    /// The definition as text for people, one member per line.
    pub fn readable(&self) -> String {
        self.indented(0)
    }

    pub(super) fn indented(&self, indent: usize) -> String {
        let mut text = String::new();
        if let Some(raw) = self.raw() {
            pretty(raw, indent, &mut text);
        }
        text
    }

    /// The entry of a list that this definition is.
    pub(super) fn entry(&self, kind: ListKind) -> Option<Entry> {
        Entry::parse(self.bytes.clone(), kind).ok()
    }

    /// The members for comparison, without the ignored parts.
    pub(super) fn comparable(&self, ignored: &[Pointer]) -> Map<String, Value> {
        match self.raw().map(comparable) {
            Some(mut value) => {
                ignored.iter().for_each(|pointer| pointer.remove_from(&mut value));
                match value {
                    Value::Object(members) => members,
                    _ => Map::new(),
                }
            }
            None => Map::new(),
        }
    }
}
