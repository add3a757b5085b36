//! Resolves `approvals`, `admins` and `trusted_ui`.

use toolward_policy::source::{AdminSource, ApproversSource};

use crate::config::approvals::{Admin, Approvals, Notify, NotifyChannel, NotifyFormat};
use crate::config::{Secret, Token};
use crate::diagnostics::sanitize::quoted;
use crate::formats::rules::strings;
use crate::io::{Directories, program};
use crate::keys::value_syntax;
use crate::read::node::Node;
use crate::read::reader::Reader;
use crate::resolve::values::{duration, flag, list};

/// `approvals` of the main file.
pub(crate) fn approvals(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Approvals {
    let otherwise = Approvals::default();
    let Some(node) = root.get("approvals") else { return otherwise };
    let channels = node.get("notify").map(Node::items).unwrap_or_default();
    Approvals {
        hold: duration(node, "hold", otherwise.hold),
        ttl: duration(node, "ttl", otherwise.ttl),
        max_grant: duration(node, "max_grant", otherwise.max_grant),
        store: node.get("store").and_then(|node| Secret::read(reader, node, directories)),
        notify: channels.iter().filter_map(|node| notify(reader, node, directories)).collect(),
    }
}

fn notify(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
) -> Option<Notify> {
    let map = node.as_map()?;
    let mut given = ["exec", "http"].map(|key| map.entry(key)).into_iter().flatten();
    let (Some((key, value)), None) = (given.next(), given.next()) else {
        let message = "a notification must have exactly one channel";
        reader.error(node.span, message, "set either `exec` or `http`");
        return None;
    };
    let channel = if key.name == "exec" {
        reader.reject_keys(node, &["format"], "a program gets the summary as text");
        let words = strings(value);
        let Some((command, args)) = words.split_first().filter(|(command, _)| !command.is_empty())
        else {
            reader.error(key.span, "`exec` is empty", "write `exec: [PROGRAM, …]`");
            return None;
        };
        NotifyChannel::Exec { program: program(command, directories.base), args: args.to_vec() }
    } else {
        let format = match node.get("format").and_then(Node::as_str) {
            Some("slack") => NotifyFormat::Slack,
            Some("ntfy") => NotifyFormat::Ntfy,
            _ => NotifyFormat::Json,
        };
        NotifyChannel::Http { url: Secret::read(reader, value, directories)?, format }
    };
    Some(Notify { channel, arguments: flag(node, "arguments", false) })
}

/// `admins` of the main file; `None` if there is no such key.
pub(crate) fn admins(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Option<Vec<Admin>> {
    let table = root.get("admins")?;
    let mut admins = Vec::new();
    for (key, node) in table.entries() {
        let mut tokens = Vec::new();
        for token in node.get("tokens").map(Node::items).unwrap_or_default() {
            tokens.extend(match token.as_str().map(value_syntax::token) {
                Some(Ok(Some(hash))) => Some(Token::Sha256(hash)),
                Some(Ok(None)) => Secret::read(reader, token, directories).map(Token::Reference),
                _ => None,
            });
        }
        if node.get("tokens").is_some_and(|tokens| tokens.items().is_empty()) {
            let message = format!("the admin {} has no token", quoted(&key.name));
            reader.error(key.span, message, "make one with `toolward token new`");
        }
        for pattern in node.get("approve").map(Node::items).unwrap_or_default() {
            let written = pattern.as_str().unwrap_or_default();
            if written != "*" && !written.contains('/') {
                let message = format!("{} does not name a server", quoted(written));
                reader.error(pattern.span, message, "write `SERVER/TOOL`; each may be a pattern");
            }
        }
        admins.push(Admin {
            name: key.name.to_string(),
            tokens,
            approve: list(node, "approve"),
            edit: flag(node, "edit", false),
            mark: reader.mark(key.span),
        });
    }
    if admins.is_empty() {
        let help = "name an admin, or remove the key";
        reader.error(table.span, "`admins` is empty: no one could approve anything", help);
    }
    Some(admins)
}

/// The approvers of calls, for the policy.
pub(crate) fn approvers(root: &Node<'_>) -> ApproversSource {
    let admin = |(name, approve): (String, Vec<String>)| AdminSource { name, approve };
    let admins = root.get("admins").map(|table| {
        let entries = table.entries();
        entries.map(|(key, node)| admin((key.name.to_string(), list(node, "approve")))).collect()
    });
    let agents = root.get("agents").into_iter().flat_map(Node::entries);
    let trusted = agents.filter(|(_, node)| flag(node, "trusted_ui", false));
    ApproversSource { admins, trusted_ui: trusted.map(|(key, _)| key.name.to_string()).collect() }
}
