//! A server's tools: every entry as it was sent, and the facts that policy asks for.

use std::collections::HashSet;

use serde_json::Value;
use toolward_policy::{Tool, ToolSet};
use toolward_wire::Message;
use toolward_wire::list::{Entry, List, ListKind, ListProblem, MalformedEntry};

/// What a server offers, gathered over all pages of its list.
#[derive(Debug, Default)]
pub struct Offered {
    entries: Vec<Entry>,
    seen: HashSet<Box<str>>,
    /// Entries that are no usable tools; they are left out.
    pub malformed: Vec<MalformedEntry>,
}

impl Offered {
    /// Adds a page of the list; gives the cursor of the next one.
    pub fn add_page(&mut self, answer: &Message) -> Result<Option<String>, ListProblem> {
        let page = List::read(answer, ListKind::Tools, &mut self.seen)?;
        self.entries.extend(page.entries);
        self.malformed.extend(page.malformed);
        Ok(page.next_cursor)
    }

    pub fn finish(self) -> Catalogue {
        let tools = self.entries.iter().map(|entry| {
            match entry.raw().to_json() {
                Value::Object(definition) => Tool::new(entry.name(), &definition),
                // An entry is an object, or it would have been left out.
                _ => Tool::named(entry.name()),
            }
        });
        Catalogue { tools: ToolSet::new(tools.collect()), entries: self.entries }
    }
}

/// A server's list.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
    tools: ToolSet,
}

impl Catalogue {
    /// The entries as sent, in the order of [`tools`](Self::tools).
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }
}
