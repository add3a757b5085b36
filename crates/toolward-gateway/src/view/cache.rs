//! View cache: views by what they depend on, and the views that each client holds.
//!
//! Clients that would see the same share one view. Building a view costs about 1 ms for 10,000 tools, looking one
//! up costs a hash, and a call whose client holds a fresh view costs neither.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use hashbrown::HashMap;
use tokio::time::Instant;

use super::build::ServerList;
use super::names::Naming;
use super::{Rules, View};
use crate::client::{Claims, Client, Scope, ServerId};
use crate::lock::LockUnpoisoned;
use crate::upstream::{Listed, Server, Unavailable};

/// Dead entries are evicted when the cache grows to this size, and then to twice what is left.
const MIN_PRUNE_SIZE: usize = 64;

/// The views of one active configuration. Entries are weak: clients keep views alive.
#[derive(Default)]
pub(crate) struct ViewCache(Mutex<Views>);

#[derive(Default)]
struct Views {
    by_key: HashMap<ViewKey, Weak<View>>,
    /// Looking for dead entries at each new view would cost more with every client.
    prune_at: usize,
}

/// The hash of a server's list, or why there is none and whether a retry can help.
type ListState = Result<[u8; 32], (&'static str, bool)>;

/// Everything a view depends on beside the active configuration.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    agent: Option<Arc<str>>,
    /// Only if rules read them.
    claims: Option<Arc<Claims>>,
    scope: Scope,
    lists: Vec<(ServerId, ListState)>,
}

/// A server and its tool list as a client gets it now.
pub(crate) struct FetchedList {
    pub(crate) server: Arc<Server>,
    pub(crate) list: Result<Listed, Unavailable>,
}

impl ViewCache {
    /// The view of a client over these lists, from the cache or built now.
    pub(crate) fn view(
        &self,
        rules: Rules<'_>,
        naming: &Naming,
        client: &Client,
        lists: &[FetchedList],
    ) -> Arc<View> {
        let key = ViewKey {
            agent: client.caller.agent.clone(),
            claims: client.caller.claims.clone().filter(|claims| claims.for_policy().is_some()),
            scope: client.scope,
            lists: lists.iter().map(FetchedList::key).collect(),
        };
        if let Some(view) = self.views().by_key.get(&key).and_then(Weak::upgrade) {
            return view;
        }
        let parts: Vec<ServerList<'_>> = lists.iter().map(FetchedList::part).collect();
        let naming = match client.scope {
            Scope::All => Some(naming),
            Scope::One(_) => None,
            Scope::Discovery => Some(&Naming::Address),
        };
        let view = Arc::new(View::new(rules, &client.caller, naming, &parts));
        self.views().insert(key, &view);
        view
    }

    fn views(&self) -> MutexGuard<'_, Views> {
        self.0.locked()
    }
}

impl Views {
    fn insert(&mut self, key: ViewKey, view: &Arc<View>) {
        if self.by_key.len() >= self.prune_at {
            self.by_key.retain(|_, view| view.strong_count() > 0);
            self.prune_at = (self.by_key.len() * 2).max(MIN_PRUNE_SIZE);
        }
        self.by_key.insert(key, Arc::downgrade(view));
    }
}

impl FetchedList {
    fn key(&self) -> (ServerId, Result<[u8; 32], (&'static str, bool)>) {
        let list = self.list.as_ref().map(|listed| *listed.catalogue.hash());
        (self.server.id, list.map_err(|why| (why.word(), why.is_retryable())))
    }

    fn part(&self) -> ServerList<'_> {
        let list = self.list.as_ref().map(|listed| listed.catalogue.clone());
        ServerList { server: &self.server, list: list.map_err(Clone::clone) }
    }
}

/// A client and the views it holds.
#[derive(Debug)]
pub struct Viewer {
    client: Client,
    held: Mutex<HeldViews>,
    /// The same client with the scope in which meta tools reach servers for it.
    discovery: OnceLock<Arc<Viewer>>,
}

#[derive(Debug, Default)]
struct HeldViews {
    current: Option<HeldView>,
    /// The last list that was sent to the client.
    sent: Option<Arc<View>>,
}

/// A view and what it was built from.
#[derive(Debug)]
struct HeldView {
    view: Arc<View>,
    version: ViewVersion,
    fresh_until: Option<Instant>,
    /// When a listing, or a call of a name that is not in the view, fetches lists again.
    relist_at: Option<Instant>,
}

/// The active configuration and the generation of server lists that a view was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewVersion {
    pub(crate) active: u64,
    pub(crate) generation: u64,
}

impl Deref for Viewer {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl From<Client> for Viewer {
    fn from(client: Client) -> Viewer {
        Viewer { client, held: Mutex::default(), discovery: OnceLock::new() }
    }
}

impl Viewer {
    /// The same client with the scope in which meta tools reach servers for it.
    pub(crate) fn discovery(&self) -> Arc<Viewer> {
        let create = || Arc::new(Viewer::from(self.client.with_scope(Scope::Discovery)));
        self.discovery.get_or_init(create).clone()
    }

    /// The held view, if it is fresh and has the tool that is wanted, or all lists.
    pub(crate) fn held_view(
        &self,
        version: ViewVersion,
        wanted: Option<&str>,
    ) -> Option<Arc<View>> {
        let held = self.held();
        let held = held.current.as_ref().filter(|held| held.version == version)?;
        let now = Instant::now();
        let fresh = held.fresh_until.is_none_or(|until| now < until);
        let young = held.relist_at.is_none_or(|at| now < at);
        let enough =
            wanted.is_some_and(|name| held.view.has(name)) || (young && held.view.is_complete());
        (fresh && enough).then(|| held.view.clone())
    }

    /// Holds a view that was built from these lists.
    pub(crate) fn hold(&self, view: &Arc<View>, version: ViewVersion, lists: &[FetchedList]) {
        let listed = lists.iter().filter_map(|one| one.list.as_ref().ok());
        self.held().current = Some(HeldView {
            view: view.clone(),
            version,
            fresh_until: listed.clone().filter_map(|listed| listed.fresh_until).min(),
            relist_at: listed.filter_map(|listed| listed.relist_at).min(),
        });
    }

    /// The last list that was sent to the client.
    pub(crate) fn sent(&self) -> Option<Arc<View>> {
        self.held().sent.clone()
    }

    pub(crate) fn set_sent(&self, view: Arc<View>) {
        self.held().sent = Some(view);
    }

    fn held(&self) -> MutexGuard<'_, HeldViews> {
        self.held.locked()
    }
}
