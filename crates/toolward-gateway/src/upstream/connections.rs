//! The connection pool of one server.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;

use toolward_wire::Revision;
use toolward_wire::list::ListKind;

use super::connection::{Busy, ServerConnection};
use super::{Key, Listed, Unavailable};
use crate::client::Owner;
use crate::lock::LockUnpoisoned;

/// An idle connection is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// A connection that was used this recently is not evicted: a client that lists is about to call.
const MIN_IDLE_TIME: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct ConnectionPool(Mutex<HashMap<Key, Arc<ServerConnection>>>);

impl ConnectionPool {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<ServerConnection>>> {
        self.0.locked()
    }

    /// A connection on which the server has responded, marked as in use.
    pub(super) fn spoken(&self, key: &Key) -> Option<Busy> {
        self.all().get(key).filter(|connection| connection.has_spoken()).map(ServerConnection::busy)
    }

    /// The connection whose list a client sees: in its own protocol version, or, if `bridged` (the
    /// server does not support that protocol version), in the other.
    pub(super) fn seen(&self, keys: &[Key; 2], bridged: bool) -> Option<Arc<ServerConnection>> {
        let all = self.all();
        let [own, other] = keys.each_ref().map(|key| all.get(key));
        let own_listed = own.filter(|connection| connection.has_listed());
        // A connection in a newly supported protocol version is used only after it has listed.
        let bridged = bridged || own.is_some_and(|connection| connection.has_spoken());
        let other = other.filter(|connection| bridged && connection.has_listed());
        own_listed.or(other).or(own).cloned()
    }

    /// The same, marked as in use, if the server has responded on it.
    pub(super) fn used(&self, keys: &[Key; 2], bridged: bool) -> Option<Busy> {
        self.seen(keys, bridged)
            .filter(|connection| connection.has_spoken())
            .map(|connection| connection.busy())
    }

    /// The connection of a key, if there is one, marked as in use.
    pub(super) fn get(&self, key: &Key) -> Option<Busy> {
        self.all().get(key).map(ServerConnection::busy)
    }

    /// The connection of a key, created if necessary. If there are `most` connections, the one
    /// that was idle longest is evicted and returned too; a connection in use is never evicted.
    pub(super) fn get_or_make(
        &self,
        key: &Key,
        most: Option<usize>,
        make: impl FnOnce() -> Arc<ServerConnection>,
    ) -> Result<(Busy, Option<Arc<ServerConnection>>), Unavailable> {
        let mut all = self.all();
        if let Some(connection) = all.get(key) {
            return Ok((connection.busy(), None));
        }
        let mut idle = None;
        if let Some(most) = most.filter(|most| all.len() >= *most) {
            let may_go = |connection: &Arc<ServerConnection>| {
                !connection.is_busy() && connection.idle() >= MIN_IDLE_TIME
            };
            let idlest = all
                .iter()
                .filter(|(_, connection)| may_go(connection))
                .max_by_key(|(_, l)| l.idle());
            let gone = idlest.map(|(key, _)| key.clone()).ok_or(Unavailable::Full(most))?;
            idle = all.remove(&gone);
        }
        let connection = make();
        let busy = connection.busy();
        all.insert(key.clone(), connection);
        drop(all);
        Ok((busy, idle))
    }

    /// Why there is no connection for either of the keys yet.
    pub(super) fn missing(&self, keys: &[Key; 2], most: Option<usize>) -> Unavailable {
        let all = self.all();
        match most {
            Some(most) if all.len() >= most && keys.iter().all(|key| !all.contains_key(key)) => {
                Unavailable::Full(most)
            }
            _ => Unavailable::Slow,
        }
    }

    /// Keeps a connection on which the server responded after all, unless there is another one by
    /// now.
    pub(super) fn keep(&self, connection: &Arc<ServerConnection>) {
        self.all().entry(connection.key().clone()).or_insert_with(|| connection.clone());
    }

    /// Removes a connection; it closes when it is no longer in use.
    pub(super) fn remove(&self, connection: &Arc<ServerConnection>) {
        let mut all = self.all();
        if all.get(connection.key()).is_some_and(|now| Arc::ptr_eq(now, connection)) {
            all.remove(connection.key());
        }
    }

    /// Removes a connection on which the server has not responded.
    pub(super) fn remove_silent(&self, key: &Key) {
        let mut all = self.all();
        if all.get(key).is_some_and(|connection| !connection.has_spoken()) {
            all.remove(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    /// The protocol versions in which the server has responded.
    pub(super) fn spoken_in(&self) -> Vec<Revision> {
        let all = self.all();
        let spoken = all.iter().filter(|(_, connection)| connection.has_spoken());
        spoken.map(|(key, _)| key.revision).collect()
    }

    /// The list of any connection that has one.
    pub(super) fn listed(&self, kind: ListKind) -> Option<Listed> {
        self.all().values().find_map(|connection| connection.remembered(kind))
    }

    pub(super) fn release(&self, owner: &Owner) {
        self.all().retain(|key, _| key.owner != *owner);
    }

    /// Closes idle connections.
    pub(super) fn sweep(&self) {
        self.all().retain(|_, connection| connection.is_busy() || connection.idle() < IDLE_TIMEOUT);
    }

    pub(super) fn drain(&self) -> Vec<Arc<ServerConnection>> {
        self.all().drain().map(|(_, connection)| connection).collect()
    }
}
