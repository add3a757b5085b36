//! Resolves `hints` and `hints_from` of a server.
//!
//! The operator's `hints` take precedence over a set, also if they are a pattern and the set names the tool. A set takes
//! precedence over the server's annotations. Tools that neither of them names have the hints of their annotations.

use toolward_policy::fnmatch::fnmatch;

use crate::config::HintSources;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::suggest::nearest;
use crate::formats::hint_names::check_tag;
use crate::formats::rules::strings;
use crate::hint_sets::{self, HintSet};
use crate::read::node::Node;
use crate::read::reader::Reader;

const BUILTIN: &str = "builtin";

/// The hints of a server's tools, as the policy gets them.
pub(crate) fn hints(reader: &mut Reader<'_>, server: &Node<'_>) -> Vec<(String, Vec<String>)> {
    let table = server.get("hints");
    for tag in table.into_iter().flat_map(Node::entries).flat_map(|(_, list)| list.items()) {
        check_tag(reader, tag.as_str().unwrap_or_default(), tag.span);
    }
    let mut hints = stated(server);
    match (set(server), server.get("hints_from")) {
        (Ok(Some(set)), _) => hints.extend(rest_of(set, server)),
        (Err((message, help)), Some(node)) => reader.error(node.span, message, &help),
        _ => {}
    }
    hints
}

/// The sources of the hints, for explanations and advice.
pub(crate) fn sources(server: &Node<'_>) -> HintSources {
    let set = set(server).ok().flatten();
    HintSources {
        is_stated: server.get("hints").is_some(),
        from_set: set
            .map(|set| rest_of(set, server).map(|(tool, _)| tool).collect())
            .unwrap_or_default(),
        set,
        available: available(server),
    }
}

fn stated(server: &Node<'_>) -> Vec<(String, Vec<String>)> {
    let table = server.get("hints").into_iter().flat_map(Node::entries);
    table.map(|(key, list)| (key.name.to_string(), strings(list))).collect()
}

/// The entries of a set for which the operator has none.
fn rest_of(
    set: &'static HintSet,
    server: &Node<'_>,
) -> impl Iterator<Item = (String, Vec<String>)> {
    let stated = stated(server);
    let is_stated = move |tool: &str| {
        stated.iter().any(|(pattern, _)| pattern == tool || fnmatch(pattern, tool))
    };
    set.tools.iter().filter(move |(tool, _)| !is_stated(tool)).cloned()
}

/// The set that `hints_from` selects, or an error with help.
fn set(server: &Node<'_>) -> Result<Option<&'static HintSet>, (String, String)> {
    let Some(written) = server.get("hints_from").and_then(Node::as_str) else { return Ok(None) };
    let names = || hint_sets::all().iter().map(|set| set.name);
    if written == BUILTIN {
        let message = "there is no built-in set of hints for this server's command";
        let help = format!(
            "if it is a server of another name, write `builtin:NAME`; there are {}",
            names().collect::<Vec<_>>().join(", ")
        );
        return available(server).map(Some).ok_or((message.into(), help));
    }
    let Some(name) = written.strip_prefix(BUILTIN).and_then(|rest| rest.strip_prefix(':')) else {
        let message = format!("{} is not a source of hints", quoted(written));
        return Err((message, "write `builtin` or `builtin:NAME`".into()));
    };
    hint_sets::named(name).map(Some).ok_or_else(|| {
        let help = match nearest(name, names()) {
            Some(nearest) => format!("did you mean `{BUILTIN}:{nearest}`?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        (format!("there is no built-in set of hints named {}", quoted(name)), help)
    })
}

/// The set for the package that a server's command line starts.
fn available(server: &Node<'_>) -> Option<&'static HintSet> {
    let command = server.get("command").and_then(Node::as_str)?;
    let args = server.get("args").map(Node::items).unwrap_or_default();
    let args: Vec<&str> = args.iter().map(|arg| arg.as_str().unwrap_or_default()).collect();
    hint_sets::matching(command, &args)
}
