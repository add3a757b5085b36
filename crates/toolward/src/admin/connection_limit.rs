//! Connection limit of the admin UI, with eviction.
//!
//! Any local process can connect. When the limit is reached, unauthenticated connections are evicted first, then
//! authenticated idle ones. Event streams are not evicted.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use toolward_gateway::lock::LockUnpoisoned;

/// Browsers use a handful; streams stay open.
pub(super) const MOST: usize = 64;
/// Minimum interval between log entries about the connection limit.
const SAY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Crowd(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    /// In the order in which they came.
    guests: Vec<Arc<Guest>>,
    said: Option<Instant>,
}

/// One connection.
#[derive(Default)]
pub(super) struct Guest {
    standing: AtomicU8,
    leave: Notify,
}

/// How much is known of a connection. The lowest leave first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    Unknown = 0,
    /// It has shown the token.
    Known = 1,
    /// It has shown the token and follows events.
    Follows = 2,
}

impl Guest {
    pub(super) fn stands(&self, standing: Priority) {
        self.standing.store(standing as u8, Ordering::Relaxed);
    }

    fn standing(&self) -> u8 {
        self.standing.load(Ordering::Relaxed)
    }

    /// Resolves when it has to make room.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }
}

/// What became of somebody who came.
pub(super) struct Came {
    /// `None`: there is no room.
    pub(super) guest: Option<Arc<Guest>>,
    /// The limit was reached, and this was not logged recently.
    pub(super) say: bool,
}

impl Crowd {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.locked()
    }

    pub(super) fn come(&self, now: Instant) -> Came {
        let mut inside = self.inside();
        let mut say = false;
        if inside.guests.len() >= MOST {
            say = inside.said.is_none_or(|said| now.duration_since(said) >= SAY);
            if say {
                inside.said = Some(now);
            }
            // The first of several that are alike is the oldest.
            let places = inside.guests.iter().enumerate();
            let first = places.min_by_key(|(_, guest)| guest.standing());
            let follows = Priority::Follows as u8;
            let Some(at) = first.filter(|(_, guest)| guest.standing() < follows).map(|(at, _)| at)
            else {
                return Came { guest: None, say };
            };
            inside.guests.remove(at).leave.notify_one();
        }
        let guest = Arc::new(Guest::default());
        inside.guests.push(guest.clone());
        Came { guest: Some(guest), say }
    }

    pub(super) fn go(&self, guest: &Arc<Guest>) {
        self.inside().guests.retain(|one| !Arc::ptr_eq(one, guest));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inside().guests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_inside(crowd: &Crowd, guest: &Arc<Guest>) -> bool {
        crowd.inside().guests.iter().any(|one| Arc::ptr_eq(one, guest))
    }

    #[test]
    fn the_oldest_that_is_not_known_makes_room_and_streams_stay() {
        let (crowd, now) = (Crowd::default(), Instant::now());
        let guests: Vec<_> = (0..MOST).map(|_| crowd.come(now).guest.unwrap()).collect();
        guests[0].stands(Priority::Follows);
        guests[1].stands(Priority::Known);
        let came = crowd.come(now);
        assert!(came.say && came.guest.is_some());
        assert!(!is_inside(&crowd, &guests[2]) && is_inside(&crowd, &guests[3]));
        // It is said once a minute.
        assert!(!crowd.come(now + SAY / 2).say && crowd.come(now + SAY).say);
        assert_eq!(crowd.inside().guests.len(), MOST);
        crowd.inside().guests.iter().skip(2).for_each(|one| one.stands(Priority::Follows));
        // Who waits leaves before who follows, and who follows for nobody.
        assert!(crowd.come(now).guest.is_some_and(|new| {
            new.stands(Priority::Follows);
            true
        }));
        assert!(!is_inside(&crowd, &guests[1]) && is_inside(&crowd, &guests[0]));
        assert!(crowd.come(now).guest.is_none());
        crowd.go(&guests[0]);
        assert!(crowd.come(now).guest.is_some() && !crowd.is_empty());
    }
}
