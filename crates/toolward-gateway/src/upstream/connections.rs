//! The connection pool of one server.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

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
pub(super) struct ConnectionPool(Mutex<Connections>);

type Connections = HashMap<Key, Arc<ServerConnection>>;

/// The processes behind connections.
fn processes(all: &Connections) -> HashSet<Key> {
    all.keys().map(Key::process).collect()
}

/// The process that was idle longest, if one is.
fn idlest(all: &Connections) -> Option<Key> {
    let idle = |process: &Key| {
        let users = all.iter().filter(|(key, _)| key.process() == *process);
        let may_go = |connection: &ServerConnection| {
            !connection.is_busy() && connection.idle() >= MIN_IDLE_TIME
        };
        users.map(|(_, one)| may_go(one).then(|| one.idle())).min().flatten()
    };
    let idle = processes(all).into_iter().filter_map(|one| Some((idle(&one)?, one)));
    idle.max_by_key(|(idle, _)| *idle).map(|(_, process)| process)
}

impl ConnectionPool {
    fn all(&self) -> MutexGuard<'_, Connections> {
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

    /// The connection of a key, created if necessary: it shares the process of another one, if it can. If there are
    /// `most` processes, the one that was idle longest is evicted, and its connections are returned too; a process in
    /// use is never evicted.
    pub(super) fn get_or_make(
        &self,
        key: &Key,
        most: Option<usize>,
        make: impl FnOnce(Option<&ServerConnection>) -> Arc<ServerConnection>,
    ) -> Result<(Busy, Vec<Arc<ServerConnection>>), Unavailable> {
        let mut all = self.all();
        if let Some(connection) = all.get(key) {
            return Ok((connection.busy(), Vec::new()));
        }
        let process = key.process();
        let sharing = all.iter().find(|(other, _)| other.process() == process);
        let sharing = sharing.map(|(_, connection)| connection.clone());
        let mut idle = Vec::new();
        if let Some(most) = most.filter(|most| sharing.is_none() && processes(&all).len() >= *most)
        {
            let gone = idlest(&all).ok_or(Unavailable::Full(most))?;
            idle.extend(all.extract_if(|key, _| key.process() == gone).map(|(_, gone)| gone));
        }
        let connection = make(sharing.as_deref());
        let busy = connection.busy();
        all.insert(key.clone(), connection);
        drop(all);
        Ok((busy, idle))
    }

    /// Why there is no connection for either of the keys yet.
    pub(super) fn missing(&self, keys: &[Key; 2], most: Option<usize>) -> Unavailable {
        let all = self.all();
        match most {
            Some(most) => {
                let processes = processes(&all);
                let is_full = processes.len() >= most;
                match is_full && keys.iter().all(|key| !processes.contains(&key.process())) {
                    true => Unavailable::Full(most),
                    false => Unavailable::Slow,
                }
            }
            None => Unavailable::Slow,
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

    /// The number of processes.
    pub(super) fn processes(&self) -> usize {
        processes(&self.all()).len()
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
