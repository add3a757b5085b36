//! The known tools of all servers, for evaluating, linting and testing a policy.

use crate::tool::{Tool, ToolSet};

/// Servers and their tools, if known, in configuration order.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    servers: Vec<(String, Option<ToolSet>)>,
}

impl Catalogue {
    /// Adds a server, or sets its tools.
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

    /// A server's tools, if they are known.
    pub fn tools(&self, server: &str) -> Option<&ToolSet> {
        self.servers.iter().find(|(name, _)| name == server)?.1.as_ref()
    }

    /// All known lists.
    pub fn lists(&self) -> impl Iterator<Item = (&str, &ToolSet)> {
        self.servers.iter().filter_map(|(name, tools)| Some((name.as_str(), tools.as_ref()?)))
    }

    /// A tool as its server describes it; by name alone if the server's list is unknown; `None` if
    /// the list is known and does not contain it.
    pub fn tool(&self, server: &str, name: &str) -> Option<Tool> {
        match self.tools(server) {
            None => Some(Tool::named(name)),
            Some(tools) => tools.id(name).map(|id| tools.tools()[id as usize].clone()),
        }
    }
}
