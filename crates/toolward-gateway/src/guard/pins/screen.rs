//! Applies the approved definitions to a server's list.

use std::sync::Arc;

use hashbrown::HashMap;
use toolward_policy::Annotations;
use toolward_wire::list::{Entry, ListKind};

use super::Mode;
use super::canonical::Pointer;
use super::change::{Change, Class};
use super::classify::{changes, worst};
use super::definition::Definition;
use super::lock_file::LockedList;
use crate::upstream::catalogue::Catalogue;

/// The treatment of an entry whose definition is not the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is hidden.
    Quarantined,
    /// Agents see the approved definition.
    ApprovedShown,
    /// Agents see the current definition.
    Reported,
}

impl Outcome {
    /// The treatment after a change of this class. `is_known`: there is an approved definition.
    pub fn of(mode: Mode, class: Class, is_known: bool) -> Outcome {
        match (mode, class) {
            (Mode::Off | Mode::Warn, _) => Outcome::Reported,
            (Mode::Classify, Class::Neutral | Class::Narrowing) if is_known => {
                Outcome::ApprovedShown
            }
            (Mode::Classify | Mode::Strict, _) => Outcome::Quarantined,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Quarantined => "quarantined",
            Outcome::ApprovedShown => "approved-shown",
            Outcome::Reported => "reported",
        }
    }
}

/// An entry whose definition is not the approved one.
#[derive(Debug, Clone)]
pub struct ChangedEntry {
    pub kind: ListKind,
    pub name: Box<str>,
    pub class: Class,
    pub changes: Vec<Change>,
    /// `None` for a new entry.
    pub approved: Option<Definition>,
    pub current: Definition,
    pub outcome: Outcome,
}

impl ChangedEntry {
    /// The changes in a few words.
    pub fn summary(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for change in self.changes.iter().filter(|change| change.class == self.class) {
            let place = change.at.trim_start_matches('/');
            let word = match place.is_empty() {
                true => change.what.clone(),
                false => format!("{place} {}", change.what),
            };
            words.push(word);
        }
        let more = words.len().saturating_sub(3);
        words.truncate(3);
        match more {
            0 => words.join(", "),
            more => format!("{}, and {more} more", words.join(", ")),
        }
    }
}

/// A server's list after its definitions were compared with the approved ones.
#[derive(Debug)]
pub struct Screened {
    /// The entries that agents may see, with the definitions that they are shown.
    pub(crate) catalogue: Arc<Catalogue>,
    pub changed: Vec<ChangedEntry>,
    /// The hints that a tool claims in its other definition, approved or current, if they differ from the shown ones.
    pub(crate) other_hints: HashMap<Box<str>, Annotations>,
}

impl Screened {
    /// The entries that are hidden.
    pub fn quarantined(&self) -> impl Iterator<Item = &ChangedEntry> {
        self.changed.iter().filter(|one| one.outcome == Outcome::Quarantined)
    }
}

/// Compares one definition with its approved forms; `None` if it is one of them. `others` are the names of other tools.
pub fn compare(
    kind: ListKind,
    current: &Definition,
    forms: &[Definition],
    ignored: &[Pointer],
    others: &dyn Fn() -> Vec<String>,
) -> Option<(Option<Definition>, Vec<Change>)> {
    if forms.is_empty() {
        let what = format!("new {}", kind.noun());
        return Some((None, vec![Change { at: String::new(), class: Class::Widening, what }]));
    }
    let digest = current.digest_without(ignored);
    if forms.iter().any(|form| form.digest_without(ignored) == digest) {
        return None;
    }
    let others = others();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let compared = forms.iter().map(|form| {
        let changes = changes(kind, (form, current), ignored, &others);
        (Some(form.clone()), changes)
    });
    compared.min_by_key(|(_, changes)| (worst(changes), changes.len()))
}

/// Applies approved definitions to a list. `names` are those of all approved tools.
pub(super) fn screen(
    (mode, ignored): (Mode, &[Pointer]),
    catalogue: &Arc<Catalogue>,
    approved: &LockedList,
    names: &[String],
) -> Screened {
    let kind = catalogue.kind();
    let mut shown: Vec<Entry> = Vec::with_capacity(catalogue.entries().len());
    let (mut changed, mut other_hints) = (Vec::new(), HashMap::new());
    for entry in catalogue.entries() {
        let current = Definition::of(entry);
        let forms = approved.get(entry.name()).map_or(&[][..], Vec::as_slice);
        let others = || {
            let own = catalogue.entries().iter().filter(|_| kind == ListKind::Tools);
            let own = own.map(|one| one.name().to_string()).chain(names.iter().cloned());
            own.filter(|name| name != entry.name()).collect()
        };
        let Some((form, changes)) = compare(kind, &current, forms, ignored, &others) else {
            shown.push(entry.clone());
            continue;
        };
        let class = worst(&changes).unwrap_or(Class::Widening);
        let stored = form.as_ref().and_then(|form| form.entry(kind));
        let outcome = Outcome::of(mode, class, stored.is_some());
        let (is, was) = (current.annotations(), form.as_ref().map(Definition::annotations));
        match (outcome, stored) {
            (Outcome::Reported, _) => {
                // Without an approved definition, the tool has the hints of one that claims nothing.
                let was = was.unwrap_or_default();
                if was != is {
                    other_hints.insert(entry.name().into(), was);
                }
                shown.push(entry.clone());
            }
            (Outcome::ApprovedShown, Some(stored)) => {
                if was != Some(is) {
                    other_hints.insert(entry.name().into(), is);
                }
                shown.push(stored);
            }
            _ => {}
        }
        let name = entry.name().into();
        changed.push(ChangedEntry { kind, name, class, changes, approved: form, current, outcome });
    }
    let catalogue = match changed.is_empty() {
        true => catalogue.clone(),
        false => Arc::new(catalogue.with_entries(shown)),
    };
    Screened { catalogue, changed, other_hints }
}
