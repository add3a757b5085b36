//! The built-in server, `toolward`: its name and its tools.
//!
//! It is listed and subject to policy like any other server. `methods/meta_tools` implements its
//! tools.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use toolward_policy::ToolSet;
use toolward_wire::list::ListKind;
use toolward_wire::{MAX_RESPONSE_BYTES, Message, Revision, Sender};

use super::catalogue::{Catalogue, CatalogueBuilder};
use super::{Caps, Definition, Reach, Timeouts};

pub const NAME: &str = "toolward";
/// The tool that calls other tools.
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
/// The same with the server's name, as in audit records.
pub const EXECUTE: &str = "toolward/execute_tool";
/// The tool definitions.
const TOOLS: &str = include_str!("built_in/tools.json");

/// The definition of the built-in server, for the list of servers.
pub fn definition() -> Definition {
    Definition {
        name: NAME.into(),
        reach: Reach::Own,
        timeouts: Timeouts::default(),
        share: true,
        cache: false,
        max_children: 1,
        eager: false,
        answer_bytes: MAX_RESPONSE_BYTES,
        results: Caps::default(),
        schemes: Vec::new(),
        roots: None,
    }
}

/// Its tools, for the policy.
pub fn tools() -> ToolSet {
    catalogue(Revision::R2026_07_28).tools().clone()
}

/// Its list of one kind for clients of a protocol version. It has only tools.
pub(crate) fn list(kind: ListKind, revision: Revision) -> Arc<Catalogue> {
    match kind {
        ListKind::Tools => catalogue(revision),
        _ => Arc::new(CatalogueBuilder::new(kind).finish(false, None)),
    }
}

/// Its tool list for clients of a protocol version.
fn catalogue(revision: Revision) -> Arc<Catalogue> {
    static STRUCTURED: LazyLock<Arc<Catalogue>> = LazyLock::new(|| Arc::new(made(&[])));
    static PLAIN: LazyLock<Arc<Catalogue>> =
        LazyLock::new(|| Arc::new(made(&["title", "outputSchema"])));
    match is_structured(revision) {
        true => STRUCTURED.clone(),
        false => PLAIN.clone(),
    }
}

/// Builds the list without the given members.
fn made(without: &[&str]) -> Catalogue {
    let mut tools: Value = serde_json::from_str(TOOLS).unwrap_or_default();
    for tool in tools.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        tool.retain(|member, _| !without.contains(&member.as_str()));
    }
    let page = json!({"jsonrpc": "2.0", "id": 0, "result": {"tools": tools}}).to_string();
    let mut offered = CatalogueBuilder::new(ListKind::Tools);
    if let Ok(page) = Message::parse(page.into(), MAX_RESPONSE_BYTES, Sender::Server) {
        // Our own list is valid.
        let _ = offered.add_page(&page);
    }
    offered.finish(false, None)
}

/// Whether results in a protocol version can be structured.
pub(crate) fn is_structured(revision: Revision) -> bool {
    revision >= Revision::R2025_06_18
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
                let structured = revision >= Revision::R2025_06_18 && tool.name() != EXECUTE_TOOL;
                assert_eq!(definition["outputSchema"].is_object(), structured, "{revision}");
                let reads = definition["annotations"]["readOnlyHint"] == true;
                assert_eq!(reads, tool.name() != EXECUTE_TOOL);
            }
        }
    }
}
