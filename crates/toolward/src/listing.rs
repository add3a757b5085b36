//! Listing decisions about prompts, resources and templates, for `ls`, `can-i`, `explain` and the admin UI.

use std::borrow::Cow;

use toolward_policy::{Caller, Cell, Decision, Policy, Subject, Verdict, uri};
use toolward_wire::list::ListKind;

/// Why a listing shows a template that no rule allows as it is written.
pub(crate) const EXPANDS: &str =
    "no rule allows the template as written, but it can expand to URIs that a rule allows";

/// The decision of a listing about an entry.
pub(crate) struct ListDecision {
    pub(crate) decision: Decision,
    pub(crate) cell: Cell,
    /// A template that is listed only for URIs that it can expand to.
    pub(crate) expands: bool,
}

/// The decisions of a listing about entries of one server, in their order.
pub(crate) fn decisions<'n>(
    policy: &Policy,
    (caller, server): (Caller<'_>, &str),
    kind: ListKind,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Vec<ListDecision> {
    let cells = policy.cells(caller.agent, server, names.clone().map(|name| subject(kind, name)));
    let is_template = kind == ListKind::ResourceTemplates;
    let decided = |(name, cell): (&str, Cell)| {
        let written = cell.list(caller).decision;
        let expansion = is_template.then(|| expansion(policy, (caller, server), name, written));
        let expansion = expansion.flatten();
        let decision = expansion.unwrap_or(written);
        ListDecision { decision, cell, expands: expansion.is_some() }
    };
    names.zip(cells).map(decided).collect()
}

fn subject(kind: ListKind, name: &str) -> Subject<'_> {
    match kind {
        ListKind::Resources => Subject::Resource(name),
        ListKind::ResourceTemplates => Subject::Template(name),
        ListKind::Tools | ListKind::Prompts => Subject::Prompt(name),
    }
}

/// The decision about a template that is denied as it is written, and can expand to a URI that is allowed: it is
/// listed, and each URI is decided on its own.
pub(crate) fn expansion(
    policy: &Policy,
    (caller, server): (Caller<'_>, &str),
    template: &str,
    written: Decision,
) -> Option<Decision> {
    let denied = written.verdict == Verdict::Deny;
    let expands = denied && policy.shows_template(caller, server, template);
    expands.then_some(Decision { verdict: Verdict::Depends, ..written })
}

/// Identifies an entry that two servers can both list; `None`: names of prompts belong to their server.
pub(crate) fn shared_key(kind: ListKind, name: &str) -> Option<Cow<'_, str>> {
    match kind {
        ListKind::Tools | ListKind::Prompts => None,
        ListKind::Resources => Some(uri::normalise(name).map_or(Cow::Borrowed(name), Cow::Owned)),
        ListKind::ResourceTemplates => Some(Cow::Borrowed(name)),
    }
}
