//! The clients of stateless requests, so that their views are cached between requests.

use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use toolward_wire::{ClientCapabilities, Era, Revision};

use crate::client::{Caller, Client, Owner, Scope};
use crate::lock::LockUnpoisoned;
use crate::view::cache::{ViewBytes, Viewer};

/// The memory for cached clients and their views. Beyond it, the quarter that was not used for the longest time is
/// evicted. A limit on the number of clients would make many agents with small views evict each other.
const MAX_BYTES: usize = 64 << 20;
/// The memory of a client without its views: an estimate.
const CLIENT_BYTES: usize = 1 << 10;

/// The clients of stateless requests by caller and scope.
pub(super) struct StatelessClients {
    clients: Mutex<Clients>,
    max_bytes: usize,
}

impl Default for StatelessClients {
    fn default() -> StatelessClients {
        StatelessClients { clients: Mutex::default(), max_bytes: MAX_BYTES }
    }
}

#[derive(Default)]
struct Clients {
    /// The active configuration under which the clients authenticated.
    active: u64,
    by_caller: HashMap<(Caller, Scope, ClientCapabilities), CachedClient>,
    /// The memory of their views.
    view_bytes: ViewBytes,
    /// The number of lookups.
    uses: u64,
}

struct CachedClient {
    client: Arc<Viewer>,
    /// The lookup that last found it.
    used: u64,
}

impl StatelessClients {
    pub(super) fn client(
        &self,
        active: u64,
        (caller, scope): (Caller, Scope),
        declared: ClientCapabilities,
    ) -> Arc<Viewer> {
        let mut clients = self.clients.locked();
        if clients.active != active {
            *clients = Clients { active, ..Clients::default() };
        }
        clients.uses += 1;
        let used = clients.uses;
        let key = (caller, scope, declared);
        if let Some(cached) = clients.by_caller.get_mut(&key) {
            cached.used = used;
            return cached.client.clone();
        }
        if clients.bytes() > self.max_bytes {
            clients.evict();
        }
        let (caller, scope, declared) = key.clone();
        let owner = Owner::Agent(caller.holder());
        let mut client = Client::new(caller, scope, Revision::newest(Era::Modern), owner);
        client.declared = declared;
        let client = Arc::new(Viewer::counted(client, clients.view_bytes.clone()));
        clients.by_caller.insert(key, CachedClient { client: client.clone(), used });
        client
    }
}

impl Clients {
    fn bytes(&self) -> usize {
        self.view_bytes.get() + self.by_caller.len() * CLIENT_BYTES
    }

    /// Evicts the quarter of the clients that was not used for the longest time, except those with a request in flight.
    fn evict(&mut self) {
        let mut uses: Vec<u64> = self.by_caller.values().map(|cached| cached.used).collect();
        let at = uses.len() / 4;
        if at >= uses.len() {
            return;
        }
        let (_, &mut last, _) = uses.select_nth_unstable(at);
        self.by_caller
            .retain(|_, cached| cached.used > last || Arc::strong_count(&cached.client) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(number: usize) -> Caller {
        Caller::new(Some(format!("agent-{number}").into()), "token")
    }

    #[test]
    fn clients_are_evicted_by_memory_and_the_longest_unused_first() {
        let cached = StatelessClients { max_bytes: 100 * CLIENT_BYTES, ..Default::default() };
        let client =
            |number| cached.client(1, (caller(number), Scope::All), ClientCapabilities::default());
        let in_flight = client(0);
        let ids = |number| Arc::as_ptr(&client(number));
        let first: Vec<_> = (0..101).map(ids).collect();
        // All fit, so that each is found again.
        assert!((0..101).all(|number| ids(number) == first[number]));
        let _ = (client(1), client(101));
        let clients = cached.clients.locked();
        let has = |number| {
            let key = (caller(number), Scope::All, ClientCapabilities::default());
            clients.by_caller.contains_key(&key)
        };
        assert!(has(0) && has(1) && has(100) && has(101), "in flight, or used recently");
        assert!((2..26).all(|number| !has(number)), "the longest unused");
        drop(in_flight);
    }

    #[test]
    fn ten_thousand_clients_are_kept() {
        let cached = StatelessClients::default();
        let client =
            |number| cached.client(1, (caller(number), Scope::All), ClientCapabilities::default());
        for number in 0..10_000 {
            let _ = client(number);
        }
        assert_eq!(cached.clients.locked().by_caller.len(), 10_000);
        // Another configuration has other clients.
        let _ = cached.client(2, (caller(0), Scope::All), ClientCapabilities::default());
        assert_eq!(cached.clients.locked().by_caller.len(), 1);
    }
}
