//! Sessions whose process was evicted in favor of another session.

use std::sync::{Mutex, MutexGuard};

use hashbrown::HashSet;

use super::Key;
use crate::client::Owner;
use crate::lock::LockUnpoisoned;

/// EvictedSessions sessions. The server's state of such a session is lost, so the session is over:
/// the client has to start a new one rather than continue with a process that lacks the state.
#[derive(Debug, Default)]
pub(super) struct EvictedSessions(Mutex<HashSet<u128>>);

impl EvictedSessions {
    fn sessions(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.0.locked()
    }

    /// Adds the session of an evicted connection.
    pub(super) fn add(&self, key: &Key) {
        if let Owner::Session(id) = key.owner {
            self.sessions().insert(id);
        }
    }

    pub(super) fn contains(&self, owner: &Owner) -> bool {
        matches!(owner, Owner::Session(id) if self.sessions().contains(id))
    }

    /// Removes a session that has ended.
    pub(super) fn forget(&self, owner: &Owner) {
        if let Owner::Session(id) = owner {
            self.sessions().remove(id);
        }
    }
}
