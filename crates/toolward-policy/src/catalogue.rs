//! What is known of the servers' tools: the universe in which policy is asked, linted and tested.

use crate::tool::{Tool, ToolSet};

/// Servers and, where known, their tools, in the order of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    servers: Vec<(String, Option<ToolSet>)>,
}

impl Catalogue {
    /// Adds a server, or what is known of its tools.
    pub fn insert(&mut self, server: &str, tools: Option<ToolSet>) {
        match self.servers.iter_mut().find(|(name, _)| name == server) {
            Some((_, known)) => *known = tools.or_else(|| known.take()),
            None => self.servers.push((server.into(), tools)),
        }
    }

    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|(name, _)| name.as_str())
    }

    pub fn has_server(&self, server: &str) -> bool {
        self.servers().any(|name| name == server)
    }

    /// A server's tools, where they are known.
    pub fn tools(&self, server: &str) -> Option<&ToolSet> {
        self.servers.iter().find(|(name, _)| name == server)?.1.as_ref()
    }

    /// All known lists.
    pub fn lists(&self) -> impl Iterator<Item = (&str, &ToolSet)> {
        self.servers.iter().filter_map(|(name, tools)| Some((name.as_str(), tools.as_ref()?)))
    }

    /// A tool: as its server described it, by its name alone where the server's list is not known,
    /// and `None` where the list is known and lacks it.
    pub fn tool(&self, server: &str, name: &str) -> Option<Tool> {
        match self.tools(server) {
            None => Some(Tool::named(name)),
            Some(tools) => tools.id(name).map(|id| tools.tools()[id as usize].clone()),
        }
    }
}
