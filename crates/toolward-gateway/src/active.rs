//! The active configuration: policy, guards, servers, names and identities as one immutable value.
//!
//! A request reads the active configuration once, at admission, and keeps it to its end: no request is
//! authenticated under one configuration and decided under another. A reload builds the next value and
//! swaps it in. Counters, connections and tool lists live outside and are shared by both, so that they
//! survive the swap.

mod client_requests;
pub mod reachable;
pub(crate) mod startup;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock, Weak};

use hashbrown::{HashMap, HashSet};
use toolward_policy::reason::About;
use toolward_policy::{Call, Decision, Policy, Step, Subject, Verdict};
use toolward_wire::list::ListKind;

use self::reachable::Reachable;
use crate::audit::redact::{Redact, outside};
use crate::authn::{Identities, Tokens};
use crate::client::{Caller, Client, Scope, ServerId};
use crate::guard::pins::Pins;
use crate::guard::{Guards, approvals};
use crate::lock::RwLockUnpoisoned;
use crate::metrics::rule_hits::Hits;
use crate::metrics::series::OTHER;
use crate::metrics::shadow::ShadowCounts;
use crate::metrics::unlisted::UnlistedCalls;
use crate::permit::{CallDecision, DeniedCall, Explanation, Would};
use crate::upstream::{All, Server};
use crate::view::Rules;
use crate::view::cache::ViewCache;
use crate::view::discovery::Discovery;
use crate::view::names::Naming;
use crate::view::unlisted::NameIndex;

/// The parts of a configuration that admit and decide requests.
pub struct Setup {
    pub policy: Policy,
    /// The policy with its shadow entries and layers, if it has any.
    pub shadow: Option<Policy>,
    /// Approved definitions of tools, prompts and templates.
    pub pins: Pins,
    /// The hash of everything that decides, for the audit log.
    pub version: String,
    /// False: denied calls are recorded and forwarded.
    pub enforced: bool,
    /// Rate limits and hooks in front of allowed calls.
    pub guards: Guards,
    /// How calls wait for a person.
    pub approvals: approvals::Settings,
    /// The tokens of admins; `None`: there are no admins.
    pub admins: Option<Tokens>,
    pub servers: All,
    /// Names of tools for clients of several servers.
    pub naming: Naming,
    /// Credentials of agents.
    pub identities: Identities,
    /// Hosts, origins and proxies of the HTTP endpoint.
    pub reachable: Reachable,
    /// Redaction of text in responses and in the audit log.
    pub redact: Redact,
    /// How agents find tools.
    pub discovery: Discovery,
    /// The configuration was invalid at startup: everything is denied until a valid one is activated.
    pub denies_all: bool,
}

/// The active configuration. Its [`Setup`] is read through `Deref`.
pub struct Active {
    serial: u64,
    setup: Setup,
    /// Calls decided by each rule.
    pub hits: Hits,
    /// Calls of unlisted names.
    pub unlisted: Arc<UnlistedCalls>,
    /// Calls about which shadow rules would have decided otherwise.
    pub shadowed: Arc<ShadowCounts>,
    pub(crate) views: ViewCache,
    /// Positions in `servers`.
    servers_by_name: HashMap<Box<str>, usize>,
    servers_by_id: HashMap<ServerId, usize>,
    names: NameIndex,
    /// Names of prompts for clients of several servers, by the same scheme as tools.
    prompt_naming: Naming,
}

impl Deref for Active {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        &self.setup
    }
}

impl Active {
    /// The first configuration of a process.
    pub fn new(setup: Setup) -> Active {
        let hits = Hits::of(&setup.policy);
        let prompt_naming = setup.naming.empty();
        Active::with(setup, hits, (Arc::default(), Arc::default()), prompt_naming)
    }

    /// The configuration that replaces `before`: counters, fetched keys and the owners of flat names carry over.
    pub fn replacing(before: &Active, mut setup: Setup) -> Active {
        let hits = Hits::continuing(&setup.policy, &before.policy, &before.hits);
        setup.identities.share_keys(&before.identities);
        if let Naming::Flat(_) = setup.naming {
            let shown = setup.servers.iter().map(|one| (one.id, shown_names(&setup.policy, one)));
            let shown: HashMap<_, _> = shown.collect();
            setup.naming = setup.naming.replacing(&before.naming, |id, name| {
                // A server that stays and has not sent its list yet keeps its names.
                let names = shown.get(&id);
                names.is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(name)))
            });
        }
        let stays = |id, _: &str| setup.servers.iter().any(|server| server.id == id);
        let prompt_naming = setup.naming.empty().replacing(&before.prompt_naming, stays);
        // Counts of other rules would be misleading.
        let same = setup.version == before.version;
        let shadowed = if same { before.shadowed.clone() } else { Arc::default() };
        Active::with(setup, hits, (before.unlisted.clone(), shadowed), prompt_naming)
    }

    fn with(
        setup: Setup,
        hits: Hits,
        (unlisted, shadowed): (Arc<UnlistedCalls>, Arc<ShadowCounts>),
        prompt_naming: Naming,
    ) -> Active {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let servers = || setup.servers.iter().enumerate();
        Active {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            servers_by_name: servers().map(|(at, server)| (server.name().into(), at)).collect(),
            servers_by_id: servers().map(|(at, server)| (server.id, at)).collect(),
            setup,
            hits,
            unlisted,
            shadowed,
            views: ViewCache::default(),
            names: NameIndex::default(),
            prompt_naming,
        }
    }

    /// How entries of a kind are named for clients of several servers; `None` if they keep their names.
    pub(crate) fn naming_of(&self, kind: ListKind) -> Option<&Naming> {
        match kind {
            ListKind::Tools => Some(&self.naming),
            ListKind::Prompts => Some(&self.prompt_naming),
            ListKind::Resources | ListKind::ResourceTemplates => None,
        }
    }

    /// A number that is unique within the process.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The part that views and decisions depend on.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            policy: &self.policy,
            shadow: self.shadow.as_ref(),
            pins: &self.pins,
            guards: &self.guards,
            hits: &self.hits,
            discovery: &self.discovery,
            enforced: self.enforced,
        }
    }

    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.get(*self.servers_by_name.get(name)?)
    }

    pub(crate) fn server_by_id(&self, id: ServerId) -> Option<&Arc<Server>> {
        self.servers.get(*self.servers_by_id.get(&id)?)
    }

    /// Whether the agent may use a server at its address. With progressive discovery, an agent has only
    /// the built-in server.
    pub(crate) fn may_reach(&self, caller: &Caller, server: &Server) -> bool {
        let direct = || !self.discovery.is_progressive(caller.agent.as_deref());
        self.may_use(caller, server.name()) && (server.is_own() || direct())
    }

    /// Whether the agent may use a server at all.
    pub(crate) fn may_use(&self, caller: &Caller, server: &str) -> bool {
        let decision = self.policy.decide_server(caller.agent.as_deref(), server);
        decision.verdict != Verdict::Deny || !self.enforced
    }

    /// The servers in a client's scope that it may use, in configuration order.
    pub(crate) fn usable(&self, client: &Client) -> Vec<Arc<Server>> {
        let caller = &client.caller;
        let reachable = |server: &&Arc<Server>| self.may_reach(caller, server);
        let usable =
            |server: &&Arc<Server>| !server.is_own() && self.may_use(caller, server.name());
        match client.scope {
            Scope::All => self.servers.iter().filter(reachable).cloned().collect(),
            Scope::One(id) => {
                self.server_by_id(id).filter(reachable).cloned().into_iter().collect()
            }
            Scope::Discovery => self.servers.iter().filter(usable).cloned().collect(),
        }
    }

    /// Whether an agent may read a resource of a server.
    pub(crate) fn may_read(&self, caller: &Caller, server: &str, uri: &str) -> bool {
        let cell = self.policy.cell(caller.agent.as_deref(), server, Subject::Resource(uri));
        !self.enforced || cell.decide(caller.policy(), &Call::default()).is_allowed()
    }

    /// The decision about a call of an unlisted name, for the audit log.
    pub(crate) fn explain_unlisted(
        &self,
        client: &Client,
        name: &str,
        denied: &DeniedCall,
    ) -> CallDecision {
        let named = (&self.naming, &*self.servers);
        self.names.explain(self.rules(), named, client, name, denied)
    }

    /// The agent as metrics name it: its key in the policy, so that callers cannot choose it. Unnamed callers have an
    /// empty one.
    pub(crate) fn agent_label(&self, agent: Option<&Arc<str>>) -> Arc<str> {
        let Some(agent) = agent else { return "".into() };
        match self.policy.agent_key(agent) {
            Some(key) if key == &**agent => agent.clone(),
            key => key.unwrap_or(OTHER).into(),
        }
    }

    /// The decision about an unlisted prompt, for the audit log.
    pub(crate) fn explain_prompt(&self, client: &Client, name: &str) -> CallDecision {
        let servers = self.servers.iter().filter_map(|server| match client.scope {
            Scope::One(id) => (server.id == id).then_some((server.name(), name)),
            _ => Some((server.name(), self.prompt_naming.rest(name, server.name())?)),
        });
        // The server that the name refers to: the longest one that matches as a prefix.
        match servers.min_by_key(|(_, rest)| rest.len()) {
            Some((server, name)) => {
                let exposure = self.policy.prompt_exposure(server);
                let original = exposure.and_then(|exposure| exposure.renamed_from(name));
                let name = original.unwrap_or(name);
                let explained = self.explain_other(client, server, Subject::Prompt(name));
                self.explain_pinned(explained, ListKind::Prompts)
            }
            None => self.explain_other(client, "", Subject::Prompt(name)),
        }
    }

    /// The decision about a resource that the agent may not see, for the audit log. `owner` is the server that owns it.
    pub(crate) fn explain_resource(
        &self,
        client: &Client,
        owner: Option<&str>,
        uri: &str,
    ) -> CallDecision {
        let lists = |server: &&Arc<Server>| {
            let listed = server.listed_as(ListKind::Resources);
            listed.is_some_and(|list| list.catalogue.entries().iter().any(|one| one.name() == uri))
        };
        let server = owner.or_else(|| self.servers.iter().find(lists).map(|server| server.name()));
        self.explain_other(client, server.unwrap_or_default(), Subject::Resource(uri))
    }

    /// The same, if the only reason is that the entry is quarantined.
    fn explain_pinned(&self, explained: CallDecision, kind: ListKind) -> CallDecision {
        let is_unknown = explained.decision.step == Step::NoSuchTool;
        let quarantined = self.pins.quarantined(&explained.server, kind, &explained.original);
        match quarantined.filter(|_| is_unknown) {
            Some(changed) => {
                let decision = Decision { step: Step::Pin, ..explained.decision };
                let why = format!("it is quarantined: {}", changed.summary());
                let explanation = explained.explanation.because(&outside(&why));
                CallDecision { decision, explanation, ..explained }
            }
            None => explained,
        }
    }

    fn explain_other(&self, client: &Client, server: &str, subject: Subject<'_>) -> CallDecision {
        let agent = client.caller.agent.as_deref();
        let name = match subject {
            Subject::Prompt(name) | Subject::Resource(name) => outside(name),
            _ => "".into(),
        };
        let cell = self.policy.cell(agent, server, subject);
        let mut decision = cell.list(client.caller.policy()).decision;
        let would = self.shadow.as_ref().filter(|_| !server.is_empty()).and_then(|shadow| {
            let would = shadow.cell(agent, server, subject).list(client.caller.policy()).decision;
            Would::instead_of(&decision, shadow, would)
        });
        if server.is_empty() || decision.verdict != Verdict::Deny {
            let (verdict, step) = (Verdict::Deny, Step::NoSuchTool);
            decision = Decision { verdict, step, layer: None, rule: None };
        }
        let about = About { agent, server, subject: &name, action: None };
        let explanation = Explanation::new(&self.policy, &self.hits, &decision, about);
        let explanation = match decision.step {
            Step::NoSuchTool => {
                explanation.because("no server has this, as far as the agent can see")
            }
            _ => explanation,
        };
        let original = (&*name).into();
        CallDecision { server: server.into(), original, decision, explanation, would }
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

/// The active configuration at any moment, for what outlives a request: held calls, subscriptions.
#[derive(Clone, Default)]
pub struct CurrentActive(Arc<OnceLock<Weak<ActiveSwap>>>);

impl CurrentActive {
    pub(crate) fn set(&self, swap: &Arc<ActiveSwap>) {
        let _ = self.0.set(Arc::downgrade(swap));
    }

    /// `None` when the gateway has ended.
    pub(crate) fn get(&self) -> Option<Arc<Active>> {
        Some(self.0.get()?.upgrade()?.get())
    }
}

/// Holds the active configuration.
pub(crate) struct ActiveSwap(RwLock<Arc<Active>>);

impl ActiveSwap {
    pub(crate) fn new(active: Active) -> ActiveSwap {
        ActiveSwap(RwLock::new(Arc::new(active)))
    }

    pub(crate) fn get(&self) -> Arc<Active> {
        self.0.read_locked().clone()
    }

    /// Replaces the active configuration and returns the previous one.
    pub(crate) fn swap(&self, active: Arc<Active>) -> Arc<Active> {
        let mut held = self.0.write_locked();
        std::mem::replace(&mut *held, active)
    }
}
