//! Sessions whose process was ended to make room for another session.

use std::sync::{Mutex, MutexGuard};

use hashbrown::HashSet;

use super::Key;
use crate::client::Owner;
use crate::lock::LockUnpoisoned;

/// Such a session has lost what the server knew of it. It is over: the client begins a new one instead of
/// going on with a process that knows nothing.
#[derive(Debug, Default)]
pub(super) struct Evicted(Mutex<HashSet<u128>>);

impl Evicted {
    fn sessions(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.0.locked()
    }

    /// The link of a key made room.
    pub(super) fn add(&self, key: &Key) {
        if let Owner::Session(id) = key.owner {
            self.sessions().insert(id);
        }
    }

    pub(super) fn contains(&self, owner: &Owner) -> bool {
        matches!(owner, Owner::Session(id) if self.sessions().contains(id))
    }

    /// The session has ended.
    pub(super) fn forget(&self, owner: &Owner) {
        if let Owner::Session(id) = owner {
            self.sessions().remove(id);
        }
    }
}
