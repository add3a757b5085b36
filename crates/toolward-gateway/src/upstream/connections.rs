//! The links to one server, and how many of them there may be.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;

use toolward_wire::Revision;

use super::connection::{Busy, Link};
use super::{Key, Listed, Unavailable};
use crate::client::Owner;
use crate::lock::LockUnpoisoned;

/// A link that nobody used for so long ends.
const IDLE: Duration = Duration::from_secs(300);
/// One that was used just now is about to be used again: whoever lists calls next.
const LINGERS: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Links(Mutex<HashMap<Key, Arc<Link>>>);

impl Links {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<Link>>> {
        self.0.locked()
    }

    /// A link on which the server has answered, taken into use.
    pub(super) fn spoken(&self, key: &Key) -> Option<Busy> {
        self.all().get(key).filter(|link| link.has_spoken()).map(Link::busy)
    }

    /// The link on which a client sees the server's list: in its own era, or, where `bridged` says
    /// that the server does not speak that, in the other.
    pub(super) fn seen(&self, keys: &[Key; 2], bridged: bool) -> Option<Arc<Link>> {
        let all = self.all();
        let [own, other] = keys.each_ref().map(|key| all.get(key));
        let own_listed = own.filter(|link| link.has_listed());
        // One that has just come to speak it is not seen before it has listed.
        let bridged = bridged || own.is_some_and(|link| link.has_spoken());
        let other = other.filter(|link| bridged && link.has_listed());
        own_listed.or(other).or(own).cloned()
    }

    /// The same, taken into use, where the server has answered.
    pub(super) fn used(&self, keys: &[Key; 2], bridged: bool) -> Option<Busy> {
        self.seen(keys, bridged).filter(|link| link.has_spoken()).map(|link| link.busy())
    }

    /// The link of a key, where there is one, taken into use.
    pub(super) fn get(&self, key: &Key) -> Option<Busy> {
        self.all().get(key).map(Link::busy)
    }

    /// The link of a key, made where there is none. With `most` links, the one that was idle longest
    /// makes room; one in use never does. Gives the link that had to go, too.
    pub(super) fn get_or_make(
        &self,
        key: &Key,
        most: Option<usize>,
        make: impl FnOnce() -> Arc<Link>,
    ) -> Result<(Busy, Option<Arc<Link>>), Unavailable> {
        let mut all = self.all();
        if let Some(link) = all.get(key) {
            return Ok((link.busy(), None));
        }
        let mut idle = None;
        if let Some(most) = most.filter(|most| all.len() >= *most) {
            let may_go = |link: &Arc<Link>| !link.is_busy() && link.idle() >= LINGERS;
            let idlest = all.iter().filter(|(_, link)| may_go(link)).max_by_key(|(_, l)| l.idle());
            let gone = idlest.map(|(key, _)| key.clone()).ok_or(Unavailable::Full(most))?;
            idle = all.remove(&gone);
        }
        let link = make();
        let busy = link.busy();
        all.insert(key.clone(), link);
        drop(all);
        Ok((busy, idle))
    }

    /// Why there is nothing yet by any of the keys.
    pub(super) fn missing(&self, keys: &[Key; 2], most: Option<usize>) -> Unavailable {
        let all = self.all();
        match most {
            Some(most) if all.len() >= most && keys.iter().all(|key| !all.contains_key(key)) => {
                Unavailable::Full(most)
            }
            _ => Unavailable::Slow,
        }
    }

    /// A link that has answered after all is kept, unless there is another by now.
    pub(super) fn keep(&self, link: &Arc<Link>) {
        self.all().entry(link.key().clone()).or_insert_with(|| link.clone());
    }

    /// Lets go of a link; it ends when nobody uses it.
    pub(super) fn remove(&self, link: &Arc<Link>) {
        let mut all = self.all();
        if all.get(link.key()).is_some_and(|now| Arc::ptr_eq(now, link)) {
            all.remove(link.key());
        }
    }

    /// Lets go of a link on which the server has not answered.
    pub(super) fn remove_silent(&self, key: &Key) {
        self.remove_unless(key, Link::has_spoken);
    }

    /// Lets go of a link on which nobody has listed.
    pub(super) fn remove_unlisted(&self, key: &Key) {
        self.remove_unless(key, Link::has_listed);
    }

    fn remove_unless(&self, key: &Key, needed: impl Fn(&Link) -> bool) {
        let mut all = self.all();
        if all.get(key).is_some_and(|link| !needed(link)) {
            all.remove(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    /// The revisions in which the server has answered.
    pub(super) fn spoken_in(&self) -> Vec<Revision> {
        let all = self.all();
        let spoken = all.iter().filter(|(_, link)| link.has_spoken());
        spoken.map(|(key, _)| key.revision).collect()
    }

    /// A list that some link has.
    pub(super) fn listed(&self) -> Option<Listed> {
        self.all().values().find_map(|link| link.remembered())
    }

    pub(super) fn release(&self, owner: &Owner) {
        self.all().retain(|key, _| key.owner != *owner);
    }

    /// Lets go of what nobody used for a while.
    pub(super) fn sweep(&self) {
        self.all().retain(|_, link| link.is_busy() || link.idle() < IDLE);
    }

    pub(super) fn drain(&self) -> Vec<Arc<Link>> {
        self.all().drain().map(|(_, link)| link).collect()
    }
}
