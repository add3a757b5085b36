//! A server's list of tools, prompts, resources or templates: every entry as sent, and the facts that policy uses.

use std::collections::HashSet;

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolward_policy::{Tool, ToolSet};
use toolward_wire::headers::{ParamHeaderError, ParamHeaders};
use toolward_wire::list::{Entry, List, ListError, ListKind, MalformedEntry};
use toolward_wire::without_own_meta;
use toolward_wire::{Message, meta};

/// The entries of a server's list, collected over all its pages.
#[derive(Debug)]
pub struct CatalogueBuilder {
    kind: ListKind,
    entries: Vec<Entry>,
    seen: HashSet<Box<str>>,
    /// Invalid entries, which are left out.
    pub malformed: Vec<MalformedEntry>,
    server_info: Option<Bytes>,
}

impl CatalogueBuilder {
    pub fn new(kind: ListKind) -> CatalogueBuilder {
        let (entries, seen, malformed, server_info) = Default::default();
        CatalogueBuilder { kind, entries, seen, malformed, server_info }
    }

    /// Adds a page of the list; returns the cursor of the next one.
    pub(crate) fn add_page(&mut self, answer: &Message) -> Result<Option<String>, ListError> {
        let page = List::read(answer, self.kind, &mut self.seen)?;
        let info = answer.result_meta(meta::SERVER_INFO).filter(|info| info.is_object());
        self.server_info = info.map(|info| without_own_meta(info).into_owned().into());
        self.entries.extend(page.entries);
        self.malformed.extend(page.malformed);
        Ok(page.next_cursor)
    }

    /// Builds the catalogue. Over HTTP, a tool with invalid `Mcp-Param` header annotations is
    /// dropped, as the protocol requires.
    pub fn finish(self, over_http: bool, ttl_ms: Option<u64>) -> Catalogue {
        let mut catalogue = Catalogue {
            kind: self.kind,
            entries: Vec::with_capacity(self.entries.len()),
            tools: ToolSet::new(Vec::new()),
            headers: HashMap::new(),
            dropped: Vec::new(),
            hash: [0; 32],
            ttl_ms,
            server_info: self.server_info,
            is_stored: false,
        };
        let mut tools = Vec::with_capacity(self.entries.len());
        let mut hash = Sha256::new();
        for entry in self.entries {
            hash.update((entry.bytes().len() as u64).to_le_bytes());
            hash.update(entry.bytes());
            if self.kind != ListKind::Tools {
                catalogue.entries.push(entry);
                continue;
            }
            // An entry is an object; others are in `malformed`.
            let Value::Object(definition) = entry.raw().to_json() else { continue };
            let schema = definition.get("inputSchema");
            match schema.map(ParamHeaders::read).transpose() {
                Err(problem) if over_http => {
                    catalogue.dropped.push((entry.name().into(), problem));
                    continue;
                }
                Ok(Some(headers)) if !headers.is_empty() => {
                    catalogue.headers.insert(entry.name().into(), headers);
                }
                _ => {}
            }
            tools.push(Tool::new(entry.name(), &definition));
            catalogue.entries.push(entry);
        }
        catalogue.tools = ToolSet::new(tools);
        catalogue.hash = hash.finalize().into();
        catalogue
    }
}

/// A server's list of one kind.
#[derive(Debug)]
pub struct Catalogue {
    kind: ListKind,
    entries: Vec<Entry>,
    tools: ToolSet,
    /// `Mcp-Param-*` headers of the tools that have any.
    headers: HashMap<Box<str>, ParamHeaders>,
    dropped: Vec<(Box<str>, ParamHeaderError)>,
    hash: [u8; 32],
    ttl_ms: Option<u64>,
    server_info: Option<Bytes>,
    /// It was sent in an earlier run.
    is_stored: bool,
}

impl Catalogue {
    pub fn kind(&self) -> ListKind {
        self.kind
    }

    /// The entries as sent, in the order of [`tools`](Self::tools).
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The tools; empty for other kinds.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// Marks a list from the store, so that nothing that is built from it is taken for the server's own list.
    pub(super) fn stored(mut self) -> Catalogue {
        let mut hash = Sha256::new_with_prefix(b"stored");
        hash.update(self.hash);
        self.hash = hash.finalize().into();
        self.is_stored = true;
        self
    }

    /// Whether the list was sent in an earlier run, so that nothing is decided on it.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// The same list with other entries of its kind.
    pub(crate) fn with_entries(&self, entries: Vec<Entry>) -> Catalogue {
        let server_info = self.server_info.clone();
        let builder = CatalogueBuilder { entries, server_info, ..CatalogueBuilder::new(self.kind) };
        let is_stored = self.is_stored;
        // Its entries passed the checks for HTTP before.
        Catalogue { is_stored, ..builder.finish(false, self.ttl_ms) }
    }

    /// The headers of calls of a tool over HTTP.
    pub fn headers(&self, tool: &str) -> Option<&ParamHeaders> {
        self.headers.get(tool)
    }

    /// Tools that were dropped, with the reason.
    pub fn dropped(&self) -> &[(Box<str>, ParamHeaderError)] {
        &self.dropped
    }

    /// How long the list may be cached, if the server declares it.
    pub(crate) fn ttl_ms(&self) -> Option<u64> {
        self.ttl_ms
    }

    /// The `serverInfo` that came with the list.
    pub fn server_info(&self) -> Option<&Bytes> {
        self.server_info.as_ref()
    }

    /// The hash of the entries as sent.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}
