//! A server's tools: every entry as it was sent, and the facts that policy asks for.

use std::collections::HashSet;

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolward_policy::{Tool, ToolSet};
use toolward_wire::headers::{ParamHeaderError, ParamHeaders};
use toolward_wire::list::{Entry, List, ListError, ListKind, MalformedEntry};
use toolward_wire::{Message, meta};

/// What a server offers, gathered over all pages of its list.
#[derive(Debug, Default)]
pub struct Offered {
    entries: Vec<Entry>,
    seen: HashSet<Box<str>>,
    /// Entries that are no usable tools; they are left out.
    pub malformed: Vec<MalformedEntry>,
    server_info: Option<Bytes>,
}

impl Offered {
    /// Adds a page of the list; gives the cursor of the next one.
    pub fn add_page(&mut self, answer: &Message) -> Result<Option<String>, ListError> {
        let page = List::read(answer, ListKind::Tools, &mut self.seen)?;
        let info = answer.result_meta(meta::SERVER_INFO).filter(|info| info.is_object());
        self.server_info = info.map(|info| Bytes::copy_from_slice(info.bytes()));
        self.entries.extend(page.entries);
        self.malformed.extend(page.malformed);
        Ok(page.next_cursor)
    }

    /// The list. Over HTTP, a tool whose header marks are invalid is dropped, as the protocol says.
    pub fn finish(self, over_http: bool, ttl_ms: Option<u64>) -> Catalogue {
        let mut catalogue = Catalogue {
            entries: Vec::with_capacity(self.entries.len()),
            tools: ToolSet::new(Vec::new()),
            headers: HashMap::new(),
            dropped: Vec::new(),
            hash: [0; 32],
            ttl_ms,
            server_info: self.server_info,
        };
        let mut tools = Vec::with_capacity(self.entries.len());
        let mut hash = Sha256::new();
        for entry in self.entries {
            // An entry is an object, or it would have been left out.
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
            hash.update((entry.bytes().len() as u64).to_le_bytes());
            hash.update(entry.bytes());
            catalogue.entries.push(entry);
        }
        catalogue.tools = ToolSet::new(tools);
        catalogue.hash = hash.finalize().into();
        catalogue
    }
}

/// A server's list.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
    tools: ToolSet,
    /// `Mcp-Param-*` headers, for the tools that have some.
    headers: HashMap<Box<str>, ParamHeaders>,
    dropped: Vec<(Box<str>, ParamHeaderError)>,
    hash: [u8; 32],
    ttl_ms: Option<u64>,
    server_info: Option<Bytes>,
}

impl Catalogue {
    /// The entries as sent, in the order of [`tools`](Self::tools).
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// The headers that calls of a tool carry over HTTP.
    pub fn headers(&self, tool: &str) -> Option<&ParamHeaders> {
        self.headers.get(tool)
    }

    /// Tools that are left out, and why.
    pub fn dropped(&self) -> &[(Box<str>, ParamHeaderError)] {
        &self.dropped
    }

    /// For how long the server lets its list be kept, where it says so.
    pub fn ttl_ms(&self) -> Option<u64> {
        self.ttl_ms
    }

    /// Who the server says it is, beside its list.
    pub fn server_info(&self) -> Option<&Bytes> {
        self.server_info.as_ref()
    }

    /// The hash of the entries as sent.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}
