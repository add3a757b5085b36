//! Compares what a server offers with what was approved.

use toolward_gateway::guard::pins::Mode;
use toolward_gateway::guard::pins::canonical::{Digest, Pointer};
use toolward_gateway::guard::pins::change::{Change, Class};
use toolward_gateway::guard::pins::classify::worst;
use toolward_gateway::guard::pins::definition::Definition;
use toolward_gateway::guard::pins::lock_file::{LockFile, LockedServer, PINNED_KINDS};
use toolward_gateway::guard::pins::screen::{Outcome, compare};
use toolward_wire::list::ListKind;

use super::survey::digest_of;

/// An entry that is not as it was approved.
pub(crate) struct ChangedEntry {
    pub(crate) kind: ListKind,
    pub(crate) name: String,
    pub(crate) class: Class,
    pub(crate) changes: Vec<Change>,
    pub(crate) approved: Option<Definition>,
    /// `None` if the server no longer has it.
    pub(crate) current: Option<Definition>,
    /// The digest for `toolward accept --expect`.
    pub(crate) digest: Option<Digest>,
    pub(crate) outcome: Outcome,
}

/// All differences of a server.
pub(crate) struct Comparison {
    pub(crate) entries: Vec<ChangedEntry>,
    /// The approved and the current instructions, if they differ.
    pub(crate) instructions: Option<(Option<String>, Option<String>)>,
    /// Its command line or URL is another one.
    pub(crate) identity: bool,
}

impl Comparison {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.instructions.is_none() && !self.identity
    }
}

/// Compares a server with its approved definitions in `all`.
pub(crate) fn compare_server(
    name: &str,
    (offered, mode, ignored): (&LockedServer, Mode, &[Pointer]),
    all: &LockFile,
) -> Comparison {
    let unknown = LockedServer::default();
    let approved = all.servers.get(name).unwrap_or(&unknown);
    let mut entries = Vec::new();
    let locked = all.servers.values().filter_map(|server| server.list(ListKind::Tools));
    let names: Vec<String> = locked.flat_map(|list| list.keys().cloned()).collect();
    for kind in PINNED_KINDS {
        let (old, new) = (approved.list(kind), offered.list(kind));
        for (name, forms) in new.into_iter().flatten() {
            let others = || {
                let own = offered.list(ListKind::Tools).into_iter().flatten();
                let own = own.map(|(other, _)| other.clone()).chain(names.iter().cloned());
                own.filter(|other| other != name).collect()
            };
            let approved = old.and_then(|old| old.get(name)).map_or(&[][..], Vec::as_slice);
            let changed = forms.iter().filter_map(|current| {
                let (form, changes) = compare(kind, current, approved, ignored, &others)?;
                Some((form, changes, current.clone()))
            });
            let Some((form, changes, current)) =
                changed.max_by_key(|(_, changes, _)| worst(changes))
            else {
                continue;
            };
            let class = worst(&changes).unwrap_or(Class::Widening);
            entries.push(ChangedEntry {
                kind,
                name: name.clone(),
                class,
                changes,
                outcome: Outcome::of(mode, class, form.is_some()),
                approved: form,
                current: Some(current),
                digest: Some(digest_of(forms)),
            });
        }
        for (name, forms) in old.into_iter().flatten() {
            if new.is_some_and(|new| new.contains_key(name)) {
                continue;
            }
            let what = format!("{} removed", kind.noun());
            entries.push(ChangedEntry {
                kind,
                name: name.clone(),
                class: Class::Narrowing,
                changes: vec![Change { at: String::new(), class: Class::Narrowing, what }],
                approved: forms.first().cloned(),
                current: None,
                digest: None,
                outcome: Outcome::Reported,
            });
        }
    }
    let (was, is) =
        (approved.instructions.clone().flatten(), offered.instructions.clone().flatten());
    let is_known = all.servers.contains_key(name);
    Comparison {
        entries,
        instructions: (was != is).then_some((was, is)),
        identity: is_known && approved.identity != offered.identity,
    }
}
