//! Explains calls to names that are not in the agent's list, with the active policy.

use std::collections::HashMap;
use std::sync::Arc;

use toolward_gateway::active::Active;
use toolward_gateway::client::Scope;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::upstream::Server;
use toolward_gateway::upstream::catalogue::Catalogue;
use toolward_gateway::view::names::Naming;
use toolward_policy::reason::About;
use toolward_policy::{Caller, Decision, Subject};

/// Tools by the names that clients may use for them.
pub(crate) struct Names {
    lists: Vec<(Arc<Server>, Option<Arc<Catalogue>>)>,
    by_name: HashMap<Box<str>, Vec<ToolPosition>>,
}

/// A tool by its indexes in the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ToolPosition {
    server: usize,
    tool: usize,
    /// The name is valid only at the server's own address.
    plain: bool,
}

/// The active policy's explanation of a name.
pub(crate) struct Says {
    /// The tool that the name refers to, as `SERVER/TOOL`.
    pub(crate) tool: Option<(String, String)>,
    pub(crate) decision: Option<Decision>,
    pub(crate) reason: String,
}

impl Names {
    pub(crate) fn new(gateway: &Gateway, active: &Active) -> Names {
        let list =
            |server: &Arc<Server>| (server.clone(), server.listed().map(|listed| listed.catalogue));
        let lists: Vec<_> = active.servers.iter().map(list).collect();
        let mut by_name: HashMap<Box<str>, Vec<ToolPosition>> = HashMap::new();
        for (at, (server, list)) in lists.iter().enumerate() {
            let exposure = active.policy.exposure(server.name());
            let tools = list.iter().flat_map(|list| list.tools().tools());
            for (tool, found) in tools.enumerate() {
                // A tool that is not exposed is still identified by its own name.
                let name = match exposure.and_then(|exposure| exposure.show(found.name())) {
                    Some(shown) => shown.name,
                    None => found.name().into(),
                };
                let names = [
                    (gateway.active().naming.called(server.name(), &name), false),
                    (Naming::Address.called(server.name(), &name), false),
                    (name, true),
                ];
                for (name, plain) in names {
                    let found = ToolPosition { server: at, tool, plain };
                    by_name.entry(name).or_default().push(found);
                }
            }
        }
        Names { lists, by_name }
    }

    /// Explains a name that an agent called; `scope` is the endpoint, if known.
    pub(crate) fn say(
        &self,
        active: &Active,
        agent: Option<&str>,
        scope: Option<Scope>,
        name: &str,
    ) -> Says {
        let all = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let of_scope = |found: &&ToolPosition| match scope {
            Some(Scope::One(id)) => {
                let server = self.lists.get(found.server);
                found.plain && server.is_some_and(|(server, _)| server.id == id)
            }
            Some(Scope::All | Scope::Discovery) => !found.plain,
            None => true,
        };
        let mut found: Vec<ToolPosition> = all.iter().filter(of_scope).copied().collect();
        // If the endpoint is unknown, a prefixed name is preferred.
        if found.iter().any(|found| !found.plain) {
            found.retain(|found| !found.plain);
        }
        found.dedup_by_key(|found| (found.server, found.tool));
        match found.as_slice() {
            [] => Says { tool: None, decision: None, reason: self.nobody(name) },
            [one] => self.about(active, agent, *one),
            several => Says {
                tool: None,
                decision: None,
                reason: format!("{} servers have a tool of this name", several.len()),
            },
        }
    }

    fn nobody(&self, name: &str) -> String {
        let unknown = self
            .lists
            .iter()
            .find(|(server, list)| list.is_none() && name.starts_with(server.name()));
        match unknown {
            Some((server, _)) => format!("the tools of `{}` are not known now", server.name()),
            None => "no server has a tool of this name now".into(),
        }
    }

    fn about(&self, active: &Active, agent: Option<&str>, found: ToolPosition) -> Says {
        let policy = &active.policy;
        let list = self.lists.get(found.server);
        let tool = list.and_then(|(_, list)| list.as_ref()?.tools().tools().get(found.tool));
        let Some(((server, _), tool)) = list.zip(tool) else {
            return Says { tool: None, decision: None, reason: String::new() };
        };
        let (server, hints) = (server.name(), policy.hints(server.name(), tool));
        let cell = policy.cell(agent, server, Subject::Tool(tool, &hints));
        let decision = cell.list(Caller { agent, claims: None }).decision;
        let about = About { agent, server, subject: tool.name(), action: None };
        Says {
            tool: Some((server.into(), tool.name().into())),
            reason: policy.reason(&decision, about),
            decision: Some(decision),
        }
    }
}
