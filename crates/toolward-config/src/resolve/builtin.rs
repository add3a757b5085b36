//! The gateway's own server (`builtin`): its policy source and checks of related keys.

use toolward_policy::source::ServerSource;

use crate::config::{BUILTIN_SERVER, Config};
use crate::diagnostics::sanitize::quoted;
use crate::read::node::Node;
use crate::read::reader::Reader;
use crate::resolve::servers;

/// The policy source of the built-in server. A call of `execute_tool` is decided by the tool that
/// it calls, so `execute_tool` itself counts as harmless: read-only mode and rules on hints apply
/// to the called tool. Clients see it annotated as destructive.
pub(crate) fn source() -> ServerSource {
    let hints = ["read-only", "closed-world"].map(String::from).to_vec();
    ServerSource {
        hints: vec![("execute_tool".into(), hints)],
        ..ServerSource::new(BUILTIN_SERVER)
    }
}

/// Checks combinations of keys.
pub(crate) fn check(reader: &mut Reader<'_>, root: &Node<'_>, config: &Config) {
    let agents = root.get("agents").into_iter().flat_map(Node::entries);
    for (key, agent) in agents.filter(|_| !config.builtin) {
        if let Some((discovery, given)) = agent.as_map().and_then(|map| map.entry("discovery"))
            && given.as_str() == Some("progressive")
        {
            let message = format!(
                "{} would find no tools: the server `{BUILTIN_SERVER}` is not enabled",
                quoted(&key.name)
            );
            reader.error(discovery.span, message, "add `builtin: true`");
        }
    }
    let most = config.limits_of.response_bytes;
    for (key, node) in servers::listed(root) {
        let Some(server) = config.servers.iter().find(|server| server.name == key.name) else {
            continue;
        };
        let given = &server.result_bytes;
        let sizes = given.by_tool.iter().map(|(_, size)| *size).chain(given.otherwise);
        if let Some((caps, _)) = node.as_map().and_then(|map| map.entry("result_bytes"))
            && sizes.into_iter().any(|size| size > most)
        {
            let help = format!("no response of a server may have more than {most} bytes");
            reader.warning(caps.span, "`result_bytes` exceeds `limits_of.response_bytes`", &help);
        }
    }
}
