//! A TOML file with a list of tools, at the top level or under `[chat]`.

use toolward_policy::source::{AllowlistSource, Case};

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::formats::rules::{ListKind, entries};
use crate::keys::TOML_TOOLS;
use crate::keys::check::check;
use crate::read::node::{Key, Node};
use crate::read::reader::Reader;

/// The list as an allowlist; `None` if an error was reported.
pub(crate) fn allowlist(reader: &mut Reader<'_>, root: &Node<'_>) -> Option<AllowlistSource> {
    let map = root.as_map()?;
    let chat = map.get("chat");
    if let Some(chat) = chat.filter(|chat| chat.as_map().is_none()) {
        reader.error(
            chat.span,
            format!("`chat` must be a table, not {}", chat.kind()),
            "write `[chat]`",
        );
        return None;
    }
    let inner = chat.and_then(Node::as_map);
    let (path, list) = match (map.entry("tools"), inner.and_then(|chat| chat.entry("tools"))) {
        (Some((key, list)), None) => {
            ignored(reader, map.iter().filter(|(other, _)| other.name != key.name));
            ("tools", list)
        }
        (None, Some((_, list))) => {
            let beside = inner.into_iter().flat_map(|chat| chat.iter());
            ignored(
                reader,
                map.iter()
                    .filter(|(key, _)| key.name != "chat")
                    .chain(beside.filter(|(key, _)| key.name != "tools")),
            );
            ("chat.tools", list)
        }
        (Some((top, _)), Some((below, _))) => {
            let first = reader.mark(top.span);
            reader.report(
                below.span,
                Diagnostic::error("`tools` is set both at the top level and under `[chat]`")
                    .related(first, "first set here")
                    .help("keep one of the two lists"),
            );
            return None;
        }
        (None, None) => {
            let message = "the file has no `tools` list, neither at the top level nor under \
                `[chat]`";
            reader.error(
                Span::default(),
                message,
                "write `tools = [\"name\", \"pattern_*\", \"hint:read-only\"]`",
            );
            return None;
        }
    };
    check(reader, list, &TOML_TOOLS, "tools", false);
    Some(AllowlistSource {
        path: path.into(),
        case: Case::Sensitive,
        tools: entries(reader, list, ListKind::Allowlist),
        prompts: None,
        resources: None,
    })
}

fn ignored<'n, 't: 'n>(
    reader: &mut Reader<'_>,
    others: impl Iterator<Item = (&'n Key<'t>, &'n Node<'t>)>,
) {
    let keys: Vec<_> = others.map(|(key, _)| key).collect();
    if let [first, ..] = keys.as_slice() {
        let names: Vec<_> = keys.iter().take(8).map(|key| quoted(&key.name)).collect();
        let more = if keys.len() > names.len() { ", …" } else { "" };
        let verb = if keys.len() == 1 { "is" } else { "are" };
        let message = format!("{}{more} {verb} ignored", names.join(", "));
        reader.warning(
            first.span,
            message,
            "only the `tools` list of such a file is loaded as \
            policy",
        );
    }
}
