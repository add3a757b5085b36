//! What a client sees at the moment: which servers it may use, what they list, and what of that
//! policy shows.

pub(crate) mod startup;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use toolward_policy::{Policy, Verdict};
use toolward_wire::jsonrpc::request_body;

use crate::audit::redact::Redact;
use crate::client::{Caller, Claims, Client, HeldView, Scope};
use crate::gateway::Gateway;
use crate::guard::Guards;
use crate::methods::meta_tools::Discovery;
use crate::metrics::rule_hits::Hits;
use crate::metrics::unlisted::Unseen;
use crate::responses::Outbound;
use crate::upstream::{All, Link, Listed, Server, Unavailable};
use crate::view::names::Naming;
use crate::view::unlisted::Names;
use crate::view::{Part, View};

/// Changes that come together are told together.
const SETTLE: Duration = Duration::from_millis(20);

/// A policy in force. A request takes one at its start and keeps it to its end.
pub struct Snapshot {
    pub policy: Policy,
    /// The hash of the policy, for the record.
    pub version: String,
    /// What stands in front of calls that the policy allows.
    pub guards: Guards,
    /// False: what the policy refuses is recorded, and passes.
    pub enforced: bool,
    /// The servers that there are.
    pub servers: All,
    /// What is left out of text that is repeated or recorded.
    pub redact: Redact,
    /// How agents find tools.
    pub discovery: Discovery,
    /// How many calls each rule decided.
    pub hits: Hits,
    /// Calls of names that agents do not see.
    pub unseen: Arc<Unseen>,
    /// All tools by the names that clients use, once somebody has used another.
    pub(crate) names: Mutex<Option<Arc<Names>>>,
    /// No two snapshots of a process have the same.
    serial: u64,
    /// Views that someone holds, so that clients who see the same share it.
    views: Mutex<Views>,
}

/// Views by what they depend on.
#[derive(Default)]
struct Views {
    known: HashMap<ViewKey, Weak<View>>,
    /// At this size, views that nobody holds are dropped: looking for them at each new view would cost
    /// more with every client.
    prune_at: usize,
}

impl Views {
    fn insert(&mut self, key: ViewKey, view: &Arc<View>) {
        if self.known.len() >= self.prune_at {
            self.known.retain(|_, view| view.strong_count() > 0);
            self.prune_at = (self.known.len() * 2).max(64);
        }
        self.known.insert(key, Arc::downgrade(view));
    }
}

/// What a view depends on, beside the policy.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    agent: Option<Arc<str>>,
    /// Where rules read them.
    claims: Option<Arc<Claims>>,
    scope: Scope,
    lists: Vec<(usize, Result<[u8; 32], (&'static str, bool)>)>,
}

/// The snapshot that requests begin with.
pub struct Current(RwLock<Arc<Snapshot>>);

impl Current {
    pub fn new(snapshot: Snapshot) -> Current {
        Current(RwLock::new(Arc::new(snapshot)))
    }

    pub fn get(&self) -> Arc<Snapshot> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that begin from now on begin with another one.
    pub fn set(&self, snapshot: Snapshot) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

impl Snapshot {
    pub fn new(policy: Policy, version: String, servers: All) -> Snapshot {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let (guards, views, discovery, unseen, names, redact) = Default::default();
        let (hits, enforced) = (Hits::of(&policy), true);
        Snapshot {
            policy,
            version,
            guards,
            enforced,
            servers,
            redact,
            discovery,
            hits,
            unseen,
            names,
            serial,
            views,
        }
    }

    /// The same, with the counters of the snapshot that it replaces.
    pub fn continuing(mut self, before: &Snapshot) -> Snapshot {
        self.hits = Hits::continuing(&self.policy, &before.policy, &before.hits);
        self.unseen = before.unseen.clone();
        self
    }

    /// The same, with what the gateway's own server needs to know.
    pub fn discovering(self, discovery: Discovery) -> Snapshot {
        Snapshot { discovery, ..self }
    }

    /// The same, with patterns of what is redacted.
    pub fn redacting(self, redact: Redact) -> Snapshot {
        Snapshot { redact, ..self }
    }

    /// The same, with limits and hooks.
    pub fn guarded(self, guards: Guards) -> Snapshot {
        Snapshot { guards, ..self }
    }

    /// The same policy, or one that is only recorded.
    pub fn enforcing(self, enforced: bool) -> Snapshot {
        Snapshot { enforced, ..self }
    }

    /// No two snapshots of a process have the same.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name() == name)
    }

    /// Whether the agent may use a server, and by an address: who finds tools step by step has the
    /// gateway's own alone.
    pub fn may_reach(&self, caller: &Caller, server: &Server) -> bool {
        let direct = || !self.discovery.is_progressive(caller.agent.as_deref());
        self.may_use(caller, server.name()) && (server.is_own() || direct())
    }

    /// Whether the agent may use a server at all.
    pub fn may_use(&self, caller: &Caller, server: &str) -> bool {
        let decision = self.policy.decide_server(caller.agent.as_deref(), server);
        decision.verdict != Verdict::Deny || !self.enforced
    }
}

/// A server's list as a client gets it now.
struct Found {
    server: Arc<Server>,
    list: Result<Listed, Unavailable>,
}

impl Gateway {
    /// The servers that a client reaches and may use, in the configuration's order.
    pub(crate) fn usable(&self, snapshot: &Snapshot, client: &Client) -> Vec<Arc<Server>> {
        let caller = &client.caller;
        let usable = snapshot.servers.iter().filter(|server| match client.scope {
            Scope::All => snapshot.may_reach(caller, server),
            Scope::One(index) => server.index == index && snapshot.may_reach(caller, server),
            Scope::Discovery => !server.is_own() && snapshot.may_use(caller, server.name()),
        });
        usable.cloned().collect()
    }

    /// What the client may see. A view that has the tool that is `wanted` is enough; else the lists
    /// of all its servers are waited for, whatever the name, so that time tells nothing.
    pub(crate) async fn view(
        &self,
        snapshot: &Snapshot,
        client: &Arc<Client>,
        wanted: Option<&str>,
    ) -> Arc<View> {
        let generation = self.servers.generation();
        if let Some(held) = &client.held().view {
            let now = Instant::now();
            let fresh = held.fresh_until.is_none_or(|until| now < until);
            let young = held.relist_at.is_none_or(|at| now < at);
            let enough = wanted.is_some_and(|name| held.view.has(name))
                || (young && held.view.is_complete());
            let same = (held.snapshot, held.generation) == (snapshot.serial, generation);
            if same && fresh && enough {
                return held.view.clone();
            }
        }
        let hold = |found: &[Found], view: &Arc<View>| {
            let listed = found.iter().filter_map(|one| one.list.as_ref().ok());
            client.held().view = Some(HeldView {
                view: view.clone(),
                snapshot: snapshot.serial,
                generation,
                fresh_until: listed.clone().filter_map(|listed| listed.fresh_until).min(),
                relist_at: listed.filter_map(|listed| listed.relist_at).min(),
            });
        };
        if let Some(name) = wanted {
            let found = self.known(snapshot, client, Link::known);
            let view = self.view_of(snapshot, client, &found);
            if view.has(name) {
                self.refresh(snapshot, client);
                hold(&found, &view);
                return view;
            }
        }
        // Rare beside calls, whose futures hold it otherwise.
        let found = Box::pin(self.lists(snapshot, client)).await;
        let view = self.view_of(snapshot, client, &found);
        hold(&found, &view);
        view
    }

    /// Asks for lists whose time is over, without waiting for them.
    fn refresh(&self, snapshot: &Snapshot, client: &Arc<Client>) {
        for server in self.usable(snapshot, client) {
            let overdue = self.servers.existing(&server, client).filter(|link| link.is_overdue());
            if let Some(link) = overdue {
                let patience = self.list_timeout;
                tokio::spawn(async move { link.list(patience).await.map(drop) });
            }
        }
    }

    /// The lists that are there already; nothing is started or waited for.
    fn known(
        &self,
        snapshot: &Snapshot,
        client: &Client,
        list: impl Fn(&Link) -> Option<Listed>,
    ) -> Vec<Found> {
        let known = |server: Arc<Server>| {
            let known = || list(&*self.servers.existing(&server, client)?);
            let list = server.own_list(client.revision).or_else(known).ok_or(Unavailable::Slow);
            Found { server, list }
        };
        self.usable(snapshot, client).into_iter().map(known).collect()
    }

    /// The lists of all servers that the client may use, asked for at the same time.
    async fn lists(&self, snapshot: &Snapshot, client: &Arc<Client>) -> Vec<Found> {
        let mut found: Vec<Found> = self
            .usable(snapshot, client)
            .into_iter()
            .map(|server| Found { server, list: Err(Unavailable::Slow) })
            .collect();
        let mut asked = JoinSet::new();
        for (at, found) in found.iter().enumerate() {
            let (servers, client) = (self.servers.clone(), client.clone());
            let (server, patience) = (found.server.clone(), self.list_timeout);
            asked.spawn(async move { (at, servers.list(&server, &client, patience).await) });
        }
        while let Some(listed) = asked.join_next().await {
            if let Ok((at, list)) = listed
                && let Some(found) = found.get_mut(at)
            {
                found.list = list;
            }
        }
        found
    }

    /// The client's view of a server by the list that any client got last. Nothing is started or waited for.
    pub(crate) fn last_known_view(
        &self,
        snapshot: &Snapshot,
        client: &Client,
        server: &Arc<Server>,
    ) -> Option<Arc<View>> {
        let found = Found { server: server.clone(), list: Ok(server.listed()?) };
        Some(self.view_of(snapshot, client, &[found]))
    }

    fn view_of(&self, snapshot: &Snapshot, client: &Client, found: &[Found]) -> Arc<View> {
        let key = ViewKey {
            agent: client.caller.agent.clone(),
            claims: client.caller.claims.clone().filter(|claims| claims.for_policy().is_some()),
            scope: client.scope,
            lists: found
                .iter()
                .map(|one| {
                    let list = one.list.as_ref();
                    let list = list.map(|listed| *listed.catalogue.hash());
                    (one.server.index, list.map_err(|why| (why.word(), why.is_retryable())))
                })
                .collect(),
        };
        let mut views = snapshot.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.known.get(&key).and_then(Weak::upgrade) {
            return view;
        }
        drop(views);
        let parts: Vec<Part<'_>> = found
            .iter()
            .map(|one| Part {
                server: &one.server,
                list: one
                    .list
                    .as_ref()
                    .map(|listed| listed.catalogue.clone())
                    .map_err(Clone::clone),
            })
            .collect();
        let naming = match client.scope {
            Scope::All => Some(&self.naming),
            Scope::One(_) => None,
            Scope::Discovery => Some(&Naming::Address),
        };
        let view = Arc::new(View::new(snapshot, &client.caller, naming, &parts));
        views = snapshot.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.insert(key, &view);
        view
    }

    /// Tells a client with a session whenever what it sees has changed, until nobody listens.
    pub fn follow_changes(
        self: &Arc<Self>,
        client: &Arc<Client>,
        notes: mpsc::Sender<Outbound>,
    ) -> AbortHandle {
        let (gateway, client) = (Arc::downgrade(self), Arc::downgrade(client));
        let mut changes = self.servers.changes();
        let follower = tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = notes.closed() => return,
                }
                tokio::time::sleep(SETTLE).await;
                let (Some(gateway), Some(client)) = (gateway.upgrade(), client.upgrade()) else {
                    return;
                };
                let snapshot = gateway.current.get();
                let lists = gateway.known(&snapshot, &client, Link::remembered);
                let now = gateway.view_of(&snapshot, &client, &lists);
                let told = client.held().told.clone();
                // Who was never told a list has nothing to forget.
                let Some(told) = told.filter(|told| told.array() != now.array()) else { continue };
                drop(told);
                client.held().told = Some(now);
                let note = request_body(None, "notifications/tools/list_changed", None);
                if notes.send(note.into()).await.is_err() {
                    return;
                }
            }
        });
        follower.abort_handle()
    }
}

impl View {
    /// The first server of which nothing is known.
    pub(crate) fn unavailable(&self) -> Option<(&str, &Unavailable)> {
        self.servers().iter().find_map(|of| Some((&*of.name, of.unavailable.as_ref()?)))
    }
}
