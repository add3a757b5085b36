//! View cache: views by their inputs, and the views that each client holds.
//!
//! Clients that would see the same share one view. Building a view costs about 1 ms for 10,000 tools, looking one
//! up costs a hash, and a call whose client holds a fresh view costs neither.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolward_wire::list::ListKind;

use super::build::ServerList;
use super::names::Naming;
use super::{Rules, View};
use crate::client::{Claims, Client, Scope, ServerId};
use crate::guard::pins::Pins;
use crate::lock::LockUnpoisoned;
use crate::upstream::{Listed, Server, Unavailable};

/// Dead entries are evicted when the cache reaches this size, and then at twice the remaining size.
const MIN_PRUNE_SIZE: usize = 64;

/// The views of one active configuration. Entries are weak: clients keep views alive.
#[derive(Default)]
pub(crate) struct ViewCache(Mutex<Views>);

#[derive(Default)]
struct Views {
    by_key: HashMap<ViewKey, Weak<View>>,
    /// The size at which dead entries are evicted. Checking at each new view would cost more with every
    /// client.
    prune_at: usize,
}

/// The hash of a server's list, or why it has no list and whether a retry can help.
type ListState = Result<[u8; 32], (&'static str, bool)>;

/// Everything a view depends on besides the active configuration.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    agent: Option<Arc<str>>,
    /// Only if rules read them.
    claims: Option<Arc<Claims>>,
    scope: Scope,
    kind: ListKind,
    lists: Vec<(ServerId, ListState)>,
}

/// A server and its current list of one kind for a client.
pub(crate) struct FetchedList {
    pub(crate) server: Arc<Server>,
    pub(crate) list: Result<Listed, Unavailable>,
}

impl ViewCache {
    /// The view of a client from these lists, cached or newly built.
    pub(crate) fn view(
        &self,
        rules: Rules<'_>,
        naming: Option<&Naming>,
        (client, kind): (&Client, ListKind),
        lists: &[FetchedList],
    ) -> Arc<View> {
        let key = ViewKey {
            agent: client.caller.agent.clone(),
            claims: client.caller.claims.clone().filter(|claims| claims.for_policy().is_some()),
            scope: client.scope,
            kind,
            lists: lists.iter().map(FetchedList::key).collect(),
        };
        if let Some(view) = self.views().by_key.get(&key).and_then(Weak::upgrade) {
            return view;
        }
        let parts: Vec<ServerList<'_>> = lists.iter().map(|list| list.part(rules.pins)).collect();
        let naming = match client.scope {
            Scope::All => naming,
            Scope::One(_) => None,
            Scope::Discovery => Some(&Naming::Address),
        };
        let view = Arc::new(View::new(rules, &client.caller, (kind, naming), &parts));
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

    /// The list as agents may see it: with approved definitions.
    fn part(&self, pins: &Pins) -> ServerList<'_> {
        let server = &self.server;
        let screened = match &self.list {
            Ok(listed) => pins.screen(server, &listed.catalogue),
            Err(why) => Err(why.clone()),
        };
        let list = match (&screened, &self.list) {
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
            (Ok(Some(screened)), _) => Ok(screened.catalogue.clone()),
            (Ok(None), Ok(listed)) => Ok(listed.catalogue.clone()),
        };
        ServerList { server, list, screened: screened.ok().flatten() }
    }
}

/// A client and the views it holds.
#[derive(Debug)]
pub struct Viewer {
    client: Client,
    held: Mutex<HeldViews>,
    /// Signaled when a list that may already be stale is sent.
    sent_stale: Arc<Notify>,
    /// The same client with the scope in which meta tools reach servers for it.
    discovery: OnceLock<Arc<Viewer>>,
    /// The memory of the views that this client and others of its kind hold.
    counter: ViewBytes,
}

/// Counts the memory of the views that clients of one kind hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct ViewBytes(Arc<AtomicUsize>);

impl ViewBytes {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The views of a client, by kind.
#[derive(Debug, Default)]
struct HeldViews {
    current: [Option<HeldView>; 4],
    /// Their memory, as counted.
    bytes: [usize; 4],
    /// The last lists that were sent to the client.
    sent: [Option<Arc<View>>; 4],
}

/// A view, the version it was built from, and its expiry.
#[derive(Debug)]
struct HeldView {
    view: Arc<View>,
    version: ViewVersion,
    fresh_until: Option<Instant>,
    /// When a listing, or a call of an unlisted name, fetches the lists again.
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
        Viewer::counted(client, ViewBytes::default())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let bytes = self.held().bytes.iter().sum();
        self.counter.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Viewer {
    /// A client whose views are counted together with those of others.
    pub(crate) fn counted(client: Client, counter: ViewBytes) -> Viewer {
        let (held, sent_stale, discovery) = Default::default();
        Viewer { client, held, sent_stale, discovery, counter }
    }

    /// The same client with the scope in which meta tools reach servers for it.
    pub(crate) fn discovery(&self) -> Arc<Viewer> {
        let create = || {
            let client = self.client.with_scope(Scope::Discovery);
            Arc::new(Viewer::counted(client, self.counter.clone()))
        };
        self.discovery.get_or_init(create).clone()
    }

    /// The held view, if it is fresh and has the wanted entry or all lists.
    pub(crate) fn held_view(
        &self,
        kind: ListKind,
        version: ViewVersion,
        wanted: Option<&str>,
    ) -> Option<Arc<View>> {
        let held = self.held();
        let held = held.current[kind.index()].as_ref().filter(|held| held.version == version)?;
        let now = Instant::now();
        let fresh = held.fresh_until.is_none_or(|until| now < until);
        let young = held.relist_at.is_none_or(|at| now < at);
        let enough =
            wanted.is_some_and(|name| held.view.has(name)) || (young && held.view.is_complete());
        (fresh && enough).then(|| held.view.clone())
    }

    /// The held view, if it has all lists and none is known to have changed.
    pub(crate) fn complete_view(&self, kind: ListKind, version: ViewVersion) -> Option<Arc<View>> {
        let held = self.held();
        let held = held.current[kind.index()].as_ref().filter(|held| held.version == version)?;
        let fresh = held.fresh_until.is_none_or(|until| Instant::now() < until);
        (fresh && held.view.is_complete()).then(|| held.view.clone())
    }

    /// Holds a view that was built from these lists.
    pub(crate) fn hold(&self, view: &Arc<View>, version: ViewVersion, lists: &[FetchedList]) {
        let listed = lists.iter().filter_map(|one| one.list.as_ref().ok());
        let (kind, bytes) = (view.kind().index(), view.bytes());
        let mut held = self.held();
        held.current[kind] = Some(HeldView {
            view: view.clone(),
            version,
            fresh_until: listed.clone().filter_map(|listed| listed.fresh_until).min(),
            relist_at: listed.filter_map(|listed| listed.relist_at).min(),
        });
        let before = std::mem::replace(&mut held.bytes[kind], bytes);
        self.counter.0.fetch_add(bytes, Ordering::Relaxed);
        self.counter.0.fetch_sub(before, Ordering::Relaxed);
    }

    /// The last list of this kind that was sent to the client.
    pub(crate) fn sent(&self, kind: ListKind) -> Option<Arc<View>> {
        self.held().sent[kind.index()].clone()
    }

    pub(crate) fn set_sent(&self, view: Arc<View>) {
        let kind = view.kind().index();
        self.held().sent[kind] = Some(view);
    }

    /// Makes the follower of changes compare the last lists that were sent with the current ones.
    pub(crate) fn compare_again(&self) {
        self.sent_stale.notify_one();
    }

    /// Signaled by [`compare_again`](Self::compare_again).
    pub(crate) fn sent_stale(&self) -> Arc<Notify> {
        self.sent_stale.clone()
    }

    fn held(&self) -> MutexGuard<'_, HeldViews> {
        self.held.locked()
    }
}
