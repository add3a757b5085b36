//! The connection limit: counts open connections by source and agent, and evicts one for a new one.
//!
//! Callers without a credential can open connections, but never lock out others: unauthenticated
//! connections are closed first, oldest first, and one source can have only a share of them. Then idle
//! connections of an agent that exceeds its share are closed. If there is no such connection either, the
//! new one is closed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::Notify;

use crate::lock::LockUnpoisoned;

/// One source may have this fraction of all connections without authenticating, and one agent may have it
/// before its idle connections are closed for others.
const SHARES: usize = 4;

pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    count: usize,
    /// Unauthenticated connections by age, and the same by source.
    unknown: BTreeMap<u64, Arc<str>>,
    sources: HashMap<Arc<str>, BTreeMap<u64, Arc<Seat>>>,
    /// Authenticated connections, by agent and age.
    agents: HashMap<Option<Arc<str>>, BTreeMap<u64, Arc<Seat>>>,
}

/// State shared between a connection and the code that evicts it.
#[derive(Default)]
struct Seat {
    busy: AtomicBool,
    evicted: AtomicBool,
    changed: Notify,
}

/// An admitted connection. Dropping it frees its place.
pub(super) struct Admission {
    connections: Arc<Connections>,
    id: u64,
    seat: Arc<Seat>,
    holder: Mutex<Holder>,
    known: AtomicBool,
}

/// The list that contains a connection.
enum Holder {
    Source(Arc<str>),
    Agent(Option<Arc<str>>),
}

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { most: most.max(1), open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.locked()
    }

    pub(super) fn count(&self) -> usize {
        self.open().count
    }

    /// Admits a new connection; `None` if the limit is reached and no connection can be evicted.
    pub(super) fn admit(self: &Arc<Self>, source: &str) -> Option<Admission> {
        let mut open = self.open();
        let share = (self.most / SHARES).max(1);
        if open.sources.get(source).is_some_and(|of_source| of_source.len() >= share) {
            open.evict_from(source);
        }
        if open.count >= self.most && !open.evict_one(share) {
            return None;
        }
        let (source, seat): (Arc<str>, Arc<Seat>) = (source.into(), Arc::default());
        let id = open.next;
        open.next += 1;
        open.count += 1;
        open.unknown.insert(id, source.clone());
        open.sources.entry(source.clone()).or_default().insert(id, seat.clone());
        drop(open);
        let (holder, known) = (Mutex::new(Holder::Source(source)), AtomicBool::new(false));
        Some(Admission { connections: self.clone(), id, seat, holder, known })
    }
}

impl Open {
    /// Evicts the oldest unauthenticated connection of a source.
    fn evict_from(&mut self, source: &str) {
        let Some(of_source) = self.sources.get_mut(source) else { return };
        if let Some((id, seat)) = of_source.pop_first() {
            if of_source.is_empty() {
                self.sources.remove(source);
            }
            self.unknown.remove(&id);
            self.count -= 1;
            seat.evict();
        }
    }

    fn evict_one(&mut self, share: usize) -> bool {
        if let Some((_, source)) = self.unknown.first_key_value() {
            let source = source.clone();
            self.evict_from(&source);
            return true;
        }
        let most = self.agents.values_mut().max_by_key(|of_agent| of_agent.len());
        let Some(of_agent) = most.filter(|of_agent| of_agent.len() > share) else { return false };
        let idle = of_agent.iter().find(|(_, seat)| !seat.busy.load(Ordering::Acquire));
        let Some(id) = idle.map(|(id, _)| *id) else { return false };
        if let Some(seat) = of_agent.remove(&id) {
            self.count -= 1;
            seat.evict();
        }
        true
    }

    /// Removes a connection from its list; false if it was evicted before.
    fn remove(&mut self, id: u64, holder: &Holder) -> bool {
        let removed = match holder {
            Holder::Source(source) => {
                self.unknown.remove(&id);
                take(&mut self.sources, source, id)
            }
            Holder::Agent(agent) => take(&mut self.agents, agent, id),
        };
        self.count -= usize::from(removed);
        removed
    }
}

/// Removes a connection from the list of a key, and the list if it becomes empty.
fn take<K: std::hash::Hash + Eq>(
    lists: &mut HashMap<K, BTreeMap<u64, Arc<Seat>>>,
    key: &K,
    id: u64,
) -> bool {
    let Some(list) = lists.get_mut(key) else { return false };
    let removed = list.remove(&id).is_some();
    if list.is_empty() {
        lists.remove(key);
    }
    removed
}

impl Seat {
    fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

impl Admission {
    /// Whether the client has authenticated on this connection.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// The client has authenticated as this agent. If it later authenticates as another one, the first
    /// still counts.
    pub(super) fn authenticated(&self, agent: Option<&Arc<str>>) {
        if self.known.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut holder = self.holder.locked();
        let mut open = self.connections.open();
        // A connection that was evicted at this very moment is admitted again: it has a credential.
        open.remove(self.id, &holder);
        self.seat.evicted.store(false, Ordering::Release);
        open.count += 1;
        open.agents.entry(agent.cloned()).or_default().insert(self.id, self.seat.clone());
        *holder = Holder::Agent(agent.cloned());
    }

    /// Sets whether a request is in flight.
    pub(super) fn set_busy(&self, busy: bool) {
        self.seat.busy.store(busy, Ordering::Release);
    }

    /// Resolves when the connection is evicted.
    pub(super) async fn evicted(&self) {
        while !self.seat.evicted.load(Ordering::Acquire) {
            self.seat.changed.notified().await;
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let holder = self.holder.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.connections.open().remove(self.id, holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(admission: &Admission) -> bool {
        admission.seat.evicted.load(Ordering::Acquire)
    }

    fn agent(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    #[test]
    fn the_oldest_unauthenticated_connection_is_evicted() {
        let connections = Connections::new(4);
        let known = connections.admit("a").unwrap();
        known.authenticated(agent("x").as_ref());
        let [first, second, third] = ["b", "c", "d"].map(|from| connections.admit(from).unwrap());
        let _new = connections.admit("e").unwrap();
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
        assert!(!is_evicted(&known));
        assert_eq!(connections.count(), 4);
        drop((first, second, third, known));
        assert_eq!(connections.count(), 1);
    }

    #[test]
    fn one_that_authenticates_while_it_is_evicted_stays() {
        let connections = Connections::new(1);
        let first = connections.admit("a").unwrap();
        let second = connections.admit("b").unwrap();
        assert!(is_evicted(&first));
        first.authenticated(agent("x").as_ref());
        assert!(!is_evicted(&first));
        assert_eq!(connections.count(), 2);
        drop((first, second));
        assert_eq!(connections.count(), 0);
    }

    #[test]
    fn a_source_has_its_part_and_no_more() {
        let connections = Connections::new(8);
        let other = connections.admit("other").unwrap();
        let own: Vec<_> = (0..6).map(|_| connections.admit("same").unwrap()).collect();
        assert_eq!(own.iter().filter(|one| is_evicted(one)).count(), 4);
        assert!(!is_evicted(&other));
        assert_eq!(connections.count(), 3);
    }

    #[test]
    fn idle_connections_of_a_greedy_agent_evict_one_and_busy_ones_do_not() {
        let connections = Connections::new(4);
        let own: Vec<_> = (0..4)
            .map(|at| {
                let one = connections.admit(&at.to_string()).unwrap();
                one.authenticated(agent("greedy").as_ref());
                one.set_busy(at == 0);
                one
            })
            .collect();
        let new = connections.admit("new").unwrap();
        let evicted: Vec<bool> = own.iter().map(is_evicted).collect();
        assert_eq!(evicted, [false, true, false, false]);
        new.authenticated(agent("other").as_ref());
        for one in &own {
            one.set_busy(true);
        }
        assert!(connections.admit("another").is_none());
    }
}
