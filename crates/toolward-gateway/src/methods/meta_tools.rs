//! The gateway's own server, `toolward`: what an agent may know of its policy, and the tools by which
//! it finds and calls other tools.
//!
//! It stands in the list of servers and under policy like any other; only who answers its calls is
//! different. What it shows is the agent's own view of the other servers, so that it has nothing to
//! hide, and what it calls goes the way of every call.

mod arguments;
mod discovery;
pub(crate) mod execute;
mod result;
mod route;
mod server_config;

use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use serde_json::{Value, json};
use toolward_policy::{Decision, Policy, ToolSet};
use toolward_wire::{Id, MAX_RESPONSE_BYTES, Message, Revision, Sender};

use super::events;
use crate::active::Snapshot;
use crate::audit::NotRecorded;
use crate::client::Client;
use crate::gateway::Gateway;
use crate::guard::ByAgent;
use crate::responses::Answer;
use crate::upstream::catalogue::{Catalogue, Offered};
use crate::upstream::{Caps, Definition, Reach, Timeouts};
use crate::view::{Permit, View};

pub use self::route::Route;

/// What it is called.
pub const NAME: &str = "toolward";
/// The tool that others are called through, as records name it.
pub const EXECUTE: &str = "toolward/execute_tool";
/// Its tools.
const TOOLS: &str = include_str!("meta_tools/tools.json");

/// The server, to stand among the others.
pub fn definition() -> Definition {
    Definition {
        name: NAME.into(),
        reach: Reach::Own,
        timeouts: Timeouts::default(),
        share: true,
        max_children: 1,
        eager: false,
        answer_bytes: MAX_RESPONSE_BYTES,
        results: Caps::default(),
    }
}

/// Its tools, as policy knows them.
pub fn tools() -> ToolSet {
    catalogue(Revision::R2026_07_28).tools().clone()
}

/// Its list, as clients of a revision get it.
pub(crate) fn catalogue(revision: Revision) -> Arc<Catalogue> {
    static STRUCTURED: LazyLock<Arc<Catalogue>> = LazyLock::new(|| Arc::new(made(&[])));
    static PLAIN: LazyLock<Arc<Catalogue>> =
        LazyLock::new(|| Arc::new(made(&["title", "outputSchema"])));
    match result::is_structured(revision) {
        true => STRUCTURED.clone(),
        false => PLAIN.clone(),
    }
}

/// The list without these members.
fn made(without: &[&str]) -> Catalogue {
    let mut tools: Value = serde_json::from_str(TOOLS).unwrap_or_default();
    for tool in tools.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        tool.retain(|member, _| !without.contains(&member.as_str()));
    }
    let page = json!({"jsonrpc": "2.0", "id": 0, "result": {"tools": tools}}).to_string();
    let mut offered = Offered::default();
    if let Ok(page) = Message::parse(page.into(), MAX_RESPONSE_BYTES, Sender::Server) {
        // A list of ours has nothing that could be wrong.
        let _ = offered.add_page(&page);
    }
    offered.finish(false, None)
}

/// How agents find tools, and what there is to say of servers.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Agents that see the gateway's own tools alone.
    pub progressive: ByAgent<()>,
    /// What servers are for, in the operator's words.
    pub descriptions: HashMap<String, String>,
}

impl Discovery {
    pub fn is_progressive(&self, agent: Option<&str>) -> bool {
        self.progressive.of(agent).next().is_some()
    }

    /// How an agent calls the tools of a server.
    pub fn route(&self, policy: &Policy, agent: Option<&str>, server: &str) -> Route {
        match server == NAME || !self.is_progressive(agent) {
            true => Route::Direct,
            false => Route::through_execute(policy, agent),
        }
    }

    /// The decision and the reason that deny an agent the direct call of a tool that its policy allows.
    pub(crate) fn direct_call_denial(
        &self,
        policy: &Policy,
        agent: Option<&str>,
        server: &str,
    ) -> Option<(Decision, String)> {
        let route = self.route(policy, agent, server);
        Some((route.denial()?, route.note()?))
    }

    pub(crate) fn description(&self, server: &str) -> Option<&str> {
        self.descriptions.get(server).map(String::as_str)
    }
}

impl Gateway {
    /// Answers a call of one of the gateway's own tools, which was decided and recorded like any other.
    /// Also gives how the record calls what came of it.
    pub(crate) async fn own_answer(
        &self,
        snapshot: &Snapshot,
        client: &Arc<Client>,
        id: &Id,
        (listed, permit): (&View, &Permit),
    ) -> Result<(Answer, &'static str), NotRecorded> {
        // Lists of all servers are waited for, whatever is asked, so that time tells nothing.
        let view = self.view(snapshot, &client.discovering(), None).await;
        let (tool, call) = (&*permit.decided().original, permit.message());
        let said = match tool {
            "server_config" => server_config::said(snapshot, client, (listed, &view), call),
            "list_servers" => discovery::servers(&view, &snapshot.discovery, call),
            "get_server_tools" => discovery::tools(&view, call),
            "search_tools" => discovery::search(&view, call),
            execute::NAME => Err(execute::wrong(call)),
            _ => Err(format!("there is no tool `{tool}`")),
        };
        if said.is_ok() && tool != "server_config" {
            // What is shown is a listing, and is recorded as one.
            let mut facts = events::listing(snapshot, client, id, call, &view);
            facts.text("via", &format!("{NAME}/{tool}"));
            self.audit
                .listing(client.caller.agent.as_ref(), view.id(), || events::names(&view), facts)
                .await?;
        }
        let outcome = if said.is_ok() { "ok" } else { "tool-error" };
        Ok((result::answer(id, client.revision, &said), outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_list_has_five_tools_in_every_revision() {
        for revision in Revision::ALL {
            let list = catalogue(revision);
            let names: Vec<&str> = list.tools().tools().iter().map(|tool| tool.name()).collect();
            let expected = [
                "search_tools",
                "list_servers",
                "get_server_tools",
                "execute_tool",
                "server_config",
            ];
            assert_eq!(names, expected, "{revision}");
            for (entry, tool) in list.entries().iter().zip(list.tools().tools()) {
                let definition = entry.raw().to_json();
                let structured = revision >= Revision::R2025_06_18 && tool.name() != execute::NAME;
                assert_eq!(definition["outputSchema"].is_object(), structured, "{revision}");
                let reads = definition["annotations"]["readOnlyHint"] == true;
                assert_eq!(reads, tool.name() != execute::NAME);
            }
        }
    }
}
