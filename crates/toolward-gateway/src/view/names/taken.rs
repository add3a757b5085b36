//! Ownership of flat names.
//!
//! A name belongs to the tool that claimed it first. It is released when neither a view nor the last
//! known list of its server contains it, so a server that keeps renaming its tools can neither fill
//! memory nor reserve names forever.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::client::ServerId;
use crate::lock::LockUnpoisoned;

/// Marks an unknown list: no list has this hash.
const UNKNOWN_LIST: [u8; 32] = [0; 32];

/// The names in use under one active configuration.
#[derive(Debug, Default, Clone)]
pub struct NameRegistry(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    by_name: HashMap<Box<str>, Owned>,
    /// The claims of each server's last known list, with the list's hash.
    latest: HashMap<ServerId, ([u8; 32], Claims)>,
}

#[derive(Debug)]
struct Owned {
    server: ServerId,
    tool: Box<str>,
    claims: usize,
}

impl NameRegistry {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.locked()
    }

    /// The names of the next configuration. Names of servers that stay keep their owners until the
    /// server's list is known under it. `keep` returns whether a server still shows a tool under this
    /// name.
    ///
    /// Without this, a reload could assign a name to another server, which would then get a client's
    /// calls.
    pub(super) fn continued(&self, keep: impl Fn(ServerId, &str) -> bool) -> NameRegistry {
        let next = NameRegistry::default();
        {
            let mut names = next.names();
            for (name, owned) in &self.names().by_name {
                if !keep(owned.server, &owned.tool) {
                    continue;
                }
                let (server, tool) = (owned.server, owned.tool.clone());
                names.by_name.insert(name.clone(), Owned { server, tool, claims: 1 });
                let unclaimed = || (UNKNOWN_LIST, Claims::none(server));
                let (_, latest) = names.latest.entry(server).or_insert_with(unclaimed);
                latest.names.push(name.clone());
            }
        }
        next
    }

    pub(super) fn claims(&self, server: ServerId) -> Claims {
        Claims { taken: Some(self.clone()), server, names: Vec::new() }
    }
}

/// Names claimed for the tools of one server. Dropping it releases them.
#[derive(Debug)]
pub struct Claims {
    taken: Option<NameRegistry>,
    server: ServerId,
    names: Vec<Box<str>>,
}

impl Claims {
    /// Empty claims, for naming schemes without conflicts.
    pub(crate) fn none(server: ServerId) -> Claims {
        Claims { taken: None, server, names: Vec::new() }
    }

    /// Claims a name for a tool; `None` if another tool has it.
    pub(super) fn add(&mut self, name: Box<str>, tool: &str) -> Option<Box<str>> {
        let mut names = self.taken.as_ref()?.names();
        match names.by_name.entry(name.clone()) {
            Entry::Vacant(slot) => {
                slot.insert(Owned { server: self.server, tool: tool.into(), claims: 1 });
            }
            Entry::Occupied(mut slot) => {
                let owned = slot.get_mut();
                if (owned.server, &*owned.tool) != (self.server, tool) {
                    return None;
                }
                owned.claims += 1;
            }
        }
        drop(names);
        self.names.push(name.clone());
        Some(name)
    }

    /// Stores these as the names of the server's last known list, which has this hash.
    pub(crate) fn keep_latest(&self, hash: &[u8; 32]) {
        let Some(taken) = &self.taken else { return };
        let mut names = taken.names();
        if names.latest.get(&self.server).is_some_and(|(known, _)| known == hash) {
            return;
        }
        for name in &self.names {
            if let Some(owned) = names.by_name.get_mut(name) {
                owned.claims += 1;
            }
        }
        // Without the registry, which would otherwise own itself.
        let kept = Claims { taken: None, server: self.server, names: self.names.clone() };
        if let Some((_, before)) = names.latest.insert(self.server, (*hash, kept)) {
            names.release(&before.names);
        }
    }
}

impl Names {
    fn release(&mut self, released: &[Box<str>]) {
        for name in released {
            if let Entry::Occupied(mut slot) = self.by_name.entry(name.clone()) {
                slot.get_mut().claims -= 1;
                if slot.get().claims == 0 {
                    slot.remove();
                }
            }
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            taken.names().release(&mem::take(&mut self.names));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Naming;
    use super::*;

    /// The names that a list gets, and the value that holds them.
    fn listed(flat: &Naming, server: u64, version: u8, tools: &[&str]) -> (Vec<bool>, Claims) {
        let mut claims = flat.claims(ServerId::new(server));
        let named =
            tools.iter().map(|tool| flat.expose(&mut claims, "s", tool).is_some()).collect();
        claims.keep_latest(&[version; 32]);
        (named, claims)
    }

    #[test]
    fn flat_names_belong_to_who_came_first() {
        let flat = Naming::Flat(NameRegistry::default());
        let (first, _held) = listed(&flat, 0, 1, &["read"]);
        let (second, _also) = listed(&flat, 1, 1, &["read", "write"]);
        let (again, _more) = listed(&flat, 0, 1, &["read"]);
        assert_eq!((first, second, again), (vec![true], vec![false, true], vec![true]));
    }

    #[test]
    fn a_name_is_free_again_when_no_view_and_no_list_has_it() {
        let flat = Naming::Flat(NameRegistry::default());
        let (_, view) = listed(&flat, 0, 1, &["read"]);
        drop(view);
        assert_eq!(listed(&flat, 1, 1, &["read"]).0, [false], "the list still has it");
        let (_, view) = listed(&flat, 0, 2, &["read"]);
        drop(listed(&flat, 0, 3, &["other"]));
        assert_eq!(listed(&flat, 1, 2, &["read"]).0, [false], "a view still has it");
        drop(view);
        assert_eq!(listed(&flat, 1, 3, &["read"]).0, [true]);
    }

    #[test]
    fn a_server_that_renames_its_tools_does_not_fill_memory() {
        let taken = NameRegistry::default();
        let flat = Naming::Flat(taken.clone());
        for round in 0..100u8 {
            let names: Vec<String> = (0..100).map(|at| format!("tool_{round}_{at}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            drop(listed(&flat, 0, round, &names));
        }
        assert_eq!(taken.names().by_name.len(), 100);
    }

    #[test]
    fn after_a_reload_names_stay_with_servers_that_stay_and_are_free_otherwise() {
        let flat = Naming::Flat(NameRegistry::default());
        let (_, _one) = listed(&flat, 0, 1, &["read", "write"]);
        let (_, _two) = listed(&flat, 1, 1, &["find"]);
        let stays = |server: ServerId, _: &str| server == ServerId::new(0);
        let next = Naming::Flat(NameRegistry::default()).replacing(&flat, stays);
        // The renamed server has another id, and gets its name back; names of servers that stay are not reassigned.
        assert_eq!(listed(&next, 2, 1, &["find", "read"]).0, [true, false]);
        assert_eq!(listed(&next, 0, 1, &["read"]).0, [true]);
        // The list of the remaining server is known now: names that it no longer has are free.
        assert_eq!(listed(&next, 2, 2, &["write"]).0, [true]);
    }
}
