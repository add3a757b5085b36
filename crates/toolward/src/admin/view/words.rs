//! Words for the kinds of entries.

use toolward_wire::list::ListKind;

use crate::cli::Kind;

/// The word for several entries of a kind.
pub(crate) fn plural(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "tools",
        ListKind::Prompts => "prompts",
        ListKind::Resources => "resources",
        ListKind::ResourceTemplates => "templates",
    }
}

/// The word for one entry, also in URLs.
pub(crate) fn singular(kind: ListKind) -> &'static str {
    noun(subject(kind))
}

/// The word for the subject of a query, also in URLs.
pub(crate) fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool",
        Kind::Prompt => "prompt",
        Kind::Resource => "resource",
        Kind::Template => "template",
    }
}

/// The subject of a query about an entry of a list.
pub(crate) fn subject(kind: ListKind) -> Kind {
    match kind {
        ListKind::Tools => Kind::Tool,
        ListKind::Prompts => Kind::Prompt,
        ListKind::Resources => Kind::Resource,
        ListKind::ResourceTemplates => Kind::Template,
    }
}

/// The kind that a word in a URL means.
pub(crate) fn kind_of(word: &str) -> Option<ListKind> {
    ListKind::ALL.into_iter().find(|kind| singular(*kind) == word)
}
