//! What a client sees at the moment: which servers it may use, what they list, and what of that
//! policy shows.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use toolward_policy::{Policy, Verdict};
use toolward_wire::error::request_body;

use crate::client::{Caller, Client, HeldView, Scope};
use crate::decide::{Part, View};
use crate::pipeline::Gateway;
use crate::present::Body;
use crate::upstream::{Link, Listed, Server, Unavailable};

/// Changes that come together are told together.
const SETTLE: Duration = Duration::from_millis(20);

/// A policy in force. A request takes one at its start and keeps it to its end.
pub struct Snapshot {
    pub policy: Policy,
    /// The hash of the policy, for the record.
    pub version: String,
    /// Views that someone holds, so that clients who see the same share it.
    views: Mutex<HashMap<ViewKey, Weak<View>>>,
}

/// What a view depends on, beside the policy.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    caller: Caller,
    scope: Scope,
    lists: Vec<(usize, Result<[u8; 32], &'static str>)>,
}

impl Snapshot {
    pub fn new(policy: Policy, version: String) -> Snapshot {
        Snapshot { policy, version, views: Mutex::default() }
    }

    /// Whether the agent may use a server at all.
    pub fn may_use(&self, caller: &Caller, server: &str) -> bool {
        let decision = self.policy.decide_server(caller.agent.as_deref(), server);
        decision.verdict != Verdict::Deny
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
        let reached = self.servers.all().iter().filter(|server| match client.scope {
            Scope::All => true,
            Scope::One(index) => server.index == index,
        });
        reached.filter(|server| snapshot.may_use(&client.caller, server.name())).cloned().collect()
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
            let fresh = held.fresh_until.is_none_or(|until| Instant::now() < until);
            let enough = match wanted {
                Some(name) => held.view.has(name) || held.view.is_complete(),
                None => held.view.is_complete(),
            };
            if held.generation == generation && fresh && enough {
                return held.view.clone();
            }
        }
        if let Some(name) = wanted {
            let view = self.view_from(snapshot, client, Link::known);
            if view.has(name) {
                self.refresh(snapshot, client);
                return view;
            }
        }
        let found = self.lists(snapshot, client).await;
        let fresh_until = found.iter().filter_map(|one| one.list.as_ref().ok()?.fresh_until).min();
        let view = self.view_of(snapshot, client, &found);
        client.held().view = Some(HeldView { view: view.clone(), generation, fresh_until });
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

    /// The view of lists that are there already; nothing is started or waited for.
    fn view_from(
        &self,
        snapshot: &Snapshot,
        client: &Client,
        list: impl Fn(&Link) -> Option<Listed>,
    ) -> Arc<View> {
        let known = |server: Arc<Server>| {
            let link = self.servers.existing(&server, client);
            let list = link.and_then(|link| list(&link)).ok_or(Unavailable::Slow);
            Found { server, list }
        };
        let found: Vec<Found> = self.usable(snapshot, client).into_iter().map(known).collect();
        self.view_of(snapshot, client, &found)
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

    fn view_of(&self, snapshot: &Snapshot, client: &Client, found: &[Found]) -> Arc<View> {
        let key = ViewKey {
            caller: client.caller.clone(),
            scope: client.scope,
            lists: found
                .iter()
                .map(|one| {
                    let list = one.list.as_ref();
                    let list = list.map(|listed| *listed.catalogue.hash());
                    (one.server.index, list.map_err(|why| why.word()))
                })
                .collect(),
        };
        let mut views = snapshot.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(&key).and_then(Weak::upgrade) {
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
        let naming = (client.scope == Scope::All).then_some(&self.naming);
        let view = Arc::new(View::new(&snapshot.policy, &client.caller, naming, &parts));
        views = snapshot.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|_, view| view.strong_count() > 0);
        views.insert(key, Arc::downgrade(&view));
        view
    }

    /// Tells a client with a session whenever what it sees has changed, until nobody listens.
    pub fn follow_changes(
        self: &Arc<Self>,
        client: &Arc<Client>,
        notes: mpsc::Sender<Body>,
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
                let snapshot = gateway.snapshot.clone();
                let now = gateway.view_from(&snapshot, &client, Link::remembered);
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
