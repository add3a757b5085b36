//! The gateway's own server (`builtin`): its policy source and checks of related keys.

use toolward_policy::source::ServerSource;

use crate::config::{BUILTIN_SERVER, Config};
use crate::diagnostics::sanitize::quoted;
use crate::read::node::Node;
use crate::read::reader::Reader;
use crate::resolve::servers;

/// What the policy knows about it. What `execute_tool` does is decided on the tool that it calls: it
/// counts as harmless itself, so that read-only mode and rules on hints hold for that tool and not for
/// the way to it. Clients are told that it can do anything.
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
                "{} could find no tools: the server `{BUILTIN_SERVER}` is not offered",
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
            let help = format!("no answer of a server may have more than {most} bytes");
            reader.warning(
                caps.span,
                "`result_bytes` is more than `limits_of.response_bytes`",
                &help,
            );
        }
    }
}
