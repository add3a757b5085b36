//! The active configuration: policy, guards, servers, names and identities as one immutable value.
//!
//! A request takes the active configuration once, at admission, and keeps it to its end: no request is
//! authenticated under one configuration and decided under another. A reload builds the next value beside it and
//! swaps the two. Counters, connections and tool lists live outside and are shared by both, so that they survive
//! the swap.

pub mod reachable;
pub(crate) mod startup;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use hashbrown::{HashMap, HashSet};
use toolward_policy::{Policy, Verdict};

use self::reachable::Reachable;
use crate::audit::redact::Redact;
use crate::authn::Identities;
use crate::client::{Caller, Client, Scope, ServerId};
use crate::guard::Guards;
use crate::lock::RwLockUnpoisoned;
use crate::metrics::rule_hits::Hits;
use crate::metrics::unlisted::Unseen;
use crate::permit::{CallDecision, DeniedCall};
use crate::upstream::{All, Server};
use crate::view::Rules;
use crate::view::cache::ViewCache;
use crate::view::discovery::Discovery;
use crate::view::names::Naming;
use crate::view::unlisted::NameIndex;

/// Everything of a configuration that requests are admitted and decided by.
pub struct Setup {
    pub policy: Policy,
    /// The hash of everything that decides, for the audit log.
    pub version: String,
    /// False: denied calls are recorded and forwarded.
    pub enforced: bool,
    /// Rate limits and hooks in front of allowed calls.
    pub guards: Guards,
    pub servers: All,
    /// Names of tools where a client sees several servers.
    pub naming: Naming,
    /// Credentials of agents.
    pub identities: Identities,
    /// Hosts, origins and proxies of the HTTP endpoint.
    pub reachable: Reachable,
    /// What is redacted in text that is repeated or recorded.
    pub redact: Redact,
    /// How agents find tools.
    pub discovery: Discovery,
    /// The configuration was not valid at start, and everything is denied until it is.
    pub denies_all: bool,
}

/// The active configuration.
pub struct Active {
    serial: u64,
    pub policy: Policy,
    pub version: String,
    pub enforced: bool,
    pub guards: Guards,
    pub servers: All,
    pub naming: Naming,
    pub identities: Identities,
    pub reachable: Reachable,
    pub redact: Redact,
    pub discovery: Discovery,
    pub denies_all: bool,
    /// Calls decided by each rule.
    pub hits: Hits,
    /// Calls of names that agents' listings do not contain.
    pub unlisted: Arc<Unseen>,
    pub(crate) views: ViewCache,
    names: NameIndex,
}

impl Active {
    /// The first configuration of a process.
    pub fn new(setup: Setup) -> Active {
        let hits = Hits::of(&setup.policy);
        Active::with(setup, hits, Arc::default())
    }

    /// The configuration that replaces `before`: counters, fetched keys and the owners of flat names carry over.
    pub fn replacing(before: &Active, mut setup: Setup) -> Active {
        let hits = Hits::continuing(&setup.policy, &before.policy, &before.hits);
        if let Some(known) = &before.identities.issuer {
            let issuer = setup.identities.issuer.take();
            setup.identities.issuer = issuer.map(|issuer| issuer.sharing(known));
        }
        if let Naming::Flat(_) = setup.naming {
            let shown = setup.servers.iter().map(|one| (one.id, shown_names(&setup.policy, one)));
            let shown: HashMap<_, _> = shown.collect();
            setup.naming = setup.naming.replacing(&before.naming, |id, name| {
                // A server that stays and has not listed keeps its names.
                let names = shown.get(&id);
                names.is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(name)))
            });
        }
        Active::with(setup, hits, before.unlisted.clone())
    }

    fn with(setup: Setup, hits: Hits, unlisted: Arc<Unseen>) -> Active {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Active {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            policy: setup.policy,
            version: setup.version,
            enforced: setup.enforced,
            guards: setup.guards,
            servers: setup.servers,
            naming: setup.naming,
            identities: setup.identities,
            reachable: setup.reachable,
            redact: setup.redact,
            discovery: setup.discovery,
            denies_all: setup.denies_all,
            hits,
            unlisted,
            views: ViewCache::default(),
            names: NameIndex::default(),
        }
    }

    /// Identifies this value among all of the process.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// What views and decisions are made from.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            policy: &self.policy,
            guards: &self.guards,
            hits: &self.hits,
            discovery: &self.discovery,
            enforced: self.enforced,
        }
    }

    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name() == name)
    }

    pub fn server_by_id(&self, id: ServerId) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.id == id)
    }

    /// Whether the agent may use a server by its address. An agent with progressive discovery has only the gateway's
    /// own server.
    pub fn may_reach(&self, caller: &Caller, server: &Server) -> bool {
        let direct = || !self.discovery.is_progressive(caller.agent.as_deref());
        self.may_use(caller, server.name()) && (server.is_own() || direct())
    }

    /// Whether the agent may use a server at all.
    pub fn may_use(&self, caller: &Caller, server: &str) -> bool {
        let decision = self.policy.decide_server(caller.agent.as_deref(), server);
        decision.verdict != Verdict::Deny || !self.enforced
    }

    /// The servers that a client reaches and may use, in the configuration's order.
    pub(crate) fn usable(&self, client: &Client) -> Vec<Arc<Server>> {
        let caller = &client.caller;
        let usable = self.servers.iter().filter(|server| match client.scope {
            Scope::All => self.may_reach(caller, server),
            Scope::One(id) => server.id == id && self.may_reach(caller, server),
            Scope::Discovery => !server.is_own() && self.may_use(caller, server.name()),
        });
        usable.cloned().collect()
    }

    /// The decision about a call by a name that the agent's listing does not contain, for the audit log.
    pub(crate) fn explain_unlisted(
        &self,
        client: &Client,
        name: &str,
        denied: &DeniedCall,
    ) -> CallDecision {
        let named = (&self.naming, &*self.servers);
        self.names.explain(self.rules(), named, client, name, denied)
    }
}

/// The names under which a server's tools are shown; `None` if its list is not known.
fn shown_names(policy: &Policy, server: &Server) -> Option<HashSet<Box<str>>> {
    let listed = server.listed()?;
    let tools = listed.catalogue.tools().tools().iter();
    Some(match policy.exposure(server.name()) {
        None => tools.map(|tool| tool.name().into()).collect(),
        Some(exposure) => tools.filter_map(|tool| Some(exposure.show(tool.name())?.name)).collect(),
    })
}

/// The one place that holds the active configuration.
pub(crate) struct ActiveSwap(RwLock<Arc<Active>>);

impl ActiveSwap {
    pub(crate) fn new(active: Active) -> ActiveSwap {
        ActiveSwap(RwLock::new(Arc::new(active)))
    }

    pub(crate) fn get(&self) -> Arc<Active> {
        self.0.read_locked().clone()
    }

    /// Replaces the active configuration; gives the one before.
    pub(crate) fn swap(&self, active: Arc<Active>) -> Arc<Active> {
        let mut held = self.0.write_locked();
        std::mem::replace(&mut *held, active)
    }
}
