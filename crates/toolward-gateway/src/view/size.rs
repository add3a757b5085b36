//! The memory of a view, for caches with a limit in bytes.

use std::mem::size_of;

use super::{ListedEntry, ServerView, View};

/// The explanation, guards and headers of an entry, and what the allocator adds: an estimate.
const ENTRY_EXTRA: usize = 512;

impl View {
    /// The approximate number of bytes that the view occupies.
    pub(crate) fn bytes(&self) -> usize {
        let entry = size_of::<(Box<str>, ListedEntry)>() + ENTRY_EXTRA;
        let names = self.shown.iter().map(|(name, entry)| name.len() + entry.original.len());
        let servers = self.servers.iter().map(ServerView::bytes);
        size_of::<View>()
            + self.array.len()
            + self.outcomes.len()
            + self.shown.len() * entry
            + names.sum::<usize>()
            + servers.sum::<usize>()
    }
}

impl ServerView {
    fn bytes(&self) -> usize {
        let names = [&self.shown, &self.removed, &self.would_hide, &self.would_show];
        let names = names.into_iter().flatten().map(|name| name.len() + size_of::<String>());
        let entries: usize = self.entries.iter().map(bytes::Bytes::len).sum();
        size_of::<ServerView>() + self.name.len() + entries + names.sum::<usize>()
    }
}
