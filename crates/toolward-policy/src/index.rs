//! An index over many selectors, for looking up one name.
//!
//! A list of ten thousand selectors costs a few hash lookups per name: exact names and `X.*` by the
//! whole name, `text*` and `*text` by each length that occurs, and only the remaining shapes one by
//! one. The result is always a superset that the selector itself confirms.

use hashbrown::HashMap;

use crate::fnmatch::Pattern;
use crate::selector::{Glob, Selector};

/// The index of one list.
#[derive(Debug, Default)]
pub(crate) struct Index {
    names: Globs,
    /// Left parts of `tool.action` selectors.
    tools_of_actions: Globs,
    hints: Vec<u32>,
}

/// Globs by shape, each with the entry it belongs to.
#[derive(Debug, Default)]
struct Globs {
    exact: HashMap<Box<str>, Entries>,
    prefixes: Affixes,
    suffixes: Affixes,
    any: Vec<u32>,
    others: Vec<(Glob, u32)>,
}

/// Nearly every name occurs in one entry only.
#[derive(Debug)]
enum Entries {
    One(u32),
    Many(Vec<u32>),
}

#[derive(Debug, Default)]
struct Affixes {
    lengths: Vec<usize>,
    texts: HashMap<Box<str>, Entries>,
}

impl Index {
    pub(crate) fn new<'a>(selectors: impl Iterator<Item = &'a Selector>) -> Index {
        let mut index = Index::default();
        for (entry, selector) in selectors.enumerate() {
            let entry = entry as u32;
            let Some(form) = selector.name_form() else {
                index.hints.push(entry);
                continue;
            };
            index.names.insert(&form.whole, entry);
            if let Some(tool) = &form.every_action {
                index.names.insert(tool, entry);
            }
            for split in &form.splits {
                index.tools_of_actions.insert(&split.tool, entry);
            }
        }
        index
    }

    /// Adds the entries that may cover the tool as a whole by its name.
    pub(crate) fn by_name(&self, name: &str, found: &mut Vec<u32>) {
        self.names.find(name, found);
    }

    /// Adds the entries that may name an action of the tool.
    pub(crate) fn by_action(&self, name: &str, found: &mut Vec<u32>) {
        self.tools_of_actions.find(name, found);
    }

    /// How many patterns a look-up compares a name with, one by one.
    pub(crate) fn scanned(&self) -> usize {
        self.names.others.len()
    }

    pub(crate) fn hints(&self) -> &[u32] {
        &self.hints
    }
}

impl Globs {
    fn insert(&mut self, glob: &Glob, entry: u32) {
        match glob.pattern() {
            Pattern::Exact(text) => add(&mut self.exact, text, entry),
            Pattern::Any => self.any.push(entry),
            Pattern::Prefix(text) => self.prefixes.insert(text, entry),
            Pattern::Suffix(text) => self.suffixes.insert(text, entry),
            Pattern::Tokens(_) => self.others.push((glob.clone(), entry)),
        }
    }

    fn find(&self, name: &str, found: &mut Vec<u32>) {
        if let Some(entries) = self.exact.get(name) {
            entries.append_to(found);
        }
        for &length in &self.prefixes.lengths {
            if let Some(text) = name.get(..length)
                && let Some(entries) = self.prefixes.texts.get(text)
            {
                entries.append_to(found);
            }
        }
        for &length in &self.suffixes.lengths {
            if let Some(start) = name.len().checked_sub(length)
                && let Some(text) = name.get(start..)
                && let Some(entries) = self.suffixes.texts.get(text)
            {
                entries.append_to(found);
            }
        }
        found.extend_from_slice(&self.any);
        found.extend(self.others.iter().filter(|(g, _)| g.matches(name)).map(|(_, entry)| entry));
    }
}

impl Affixes {
    fn insert(&mut self, text: &str, entry: u32) {
        if !self.lengths.contains(&text.len()) {
            self.lengths.push(text.len());
        }
        add(&mut self.texts, text, entry);
    }
}

fn add(map: &mut HashMap<Box<str>, Entries>, text: &str, entry: u32) {
    match map.get_mut(text) {
        Some(entries) => entries.push(entry),
        None => {
            map.insert(text.into(), Entries::One(entry));
        }
    }
}

impl Entries {
    fn push(&mut self, entry: u32) {
        match self {
            Entries::One(first) => *self = Entries::Many(vec![*first, entry]),
            Entries::Many(entries) => entries.push(entry),
        }
    }

    fn append_to(&self, found: &mut Vec<u32>) {
        match self {
            Entries::One(entry) => found.push(*entry),
            Entries::Many(entries) => found.extend_from_slice(entries),
        }
    }
}
