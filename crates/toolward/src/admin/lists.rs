//! Lists of the servers (tools, prompts, resources, templates), for the views.
//!
//! Servers are queried concurrently with a short wait. A slow server is shown as pending, and open views refresh
//! when it answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use toolward_gateway::client::ServerId;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::lock::LockUnpoisoned;
use toolward_gateway::upstream::catalogue::Catalogue;
use toolward_gateway::upstream::{Server, Servers, Unavailable};
use toolward_wire::list::ListKind;

/// How long a first view waits for servers that have not responded yet.
const FIRST_VIEW_WAIT: Duration = Duration::from_millis(400);
/// How long a fetched list is considered fresh, unless something has changed.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// How long a failed server is not queried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The kinds of lists besides tools, in the order in which views show them.
const OTHERS: [ListKind; 3] = [ListKind::Prompts, ListKind::Resources, ListKind::ResourceTemplates];

/// The lists of all servers, as far as they are known.
pub(crate) struct Lists {
    /// The runtime that owns the servers' connections, which calls use as well; not the admin UI's runtime.
    asking: Handle,
    timeout: Duration,
    known: Arc<Mutex<HashMap<ServerId, ListState>>>,
    answers: Arc<watch::Sender<u64>>,
}

/// The response of one server.
struct ListState {
    /// The server that responded, which a reload may have replaced.
    server: Arc<Server>,
    list: Option<Result<ServerLists, Unavailable>>,
    asked: Instant,
    /// The number of changes when it was queried.
    generation: u64,
    under_way: bool,
}

impl ListState {
    /// Whether the list is still current.
    fn is_settled(&self, generation: u64) -> bool {
        self.under_way
            || match &self.list {
                None => false,
                Some(Ok(_)) => self.generation == generation && self.asked.elapsed() < FRESH_FOR,
                Some(Err(_)) => self.asked.elapsed() < RETRY_INTERVAL,
            }
    }
}

/// All lists of a server.
#[derive(Clone)]
struct ServerLists {
    tools: Arc<Catalogue>,
    others: OtherLists,
}

/// Lists of prompts, resources and templates, or the errors. A server that does not have a kind has an empty list.
pub(crate) type OtherLists = Vec<OtherList>;
pub(crate) type OtherList = (ListKind, Result<Arc<Catalogue>, Unavailable>);

impl ServerLists {
    async fn fetch(
        servers: &Servers,
        server: &Arc<Server>,
        timeout: Duration,
    ) -> Result<ServerLists, Unavailable> {
        let tools = servers.own_list(server, timeout).await?.catalogue;
        let mut others = Vec::with_capacity(OTHERS.len());
        for kind in OTHERS {
            let listed = servers.own_list_as((server, kind), timeout).await;
            others.push((kind, listed.map(|listed| listed.catalogue)));
        }
        Ok(ServerLists { tools, others })
    }

    fn is_same(&self, other: &ServerLists) -> bool {
        let same = |(one, other): (&OtherList, &OtherList)| match (&one.1, &other.1) {
            (Ok(one), Ok(other)) => one.hash() == other.hash(),
            (Err(one), Err(other)) => one == other,
            _ => false,
        };
        self.tools.hash() == other.tools.hash() && self.others.iter().zip(&other.others).all(same)
    }
}

/// A server and its lists as currently known.
pub(crate) struct List {
    pub(crate) server: Arc<Server>,
    pub(crate) tools: Result<Arc<Catalogue>, Unavailable>,
    pub(crate) others: OtherLists,
}

impl Lists {
    pub(super) fn new(asking: Handle, timeout: Duration) -> Lists {
        let (known, answers) = (Arc::default(), Arc::new(watch::Sender::new(0)));
        Lists { asking, timeout, known, answers }
    }

    /// Notifies about every response.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.answers.subscribe()
    }

    /// A number that grows with each changed list.
    pub(super) fn generation(&self) -> u64 {
        *self.answers.borrow()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ServerId, ListState>> {
        self.known.locked()
    }

    /// The lists of all servers, in the order of the configuration. Waits a moment for those that are not
    /// known yet.
    pub(crate) async fn ask(&self, gateway: &Gateway) -> Vec<List> {
        let mut answers = self.changes();
        let servers = gateway.active().servers.clone();
        self.known().retain(|_, one| servers.iter().any(|server| Arc::ptr_eq(server, &one.server)));
        for server in servers.iter() {
            self.ask_one(gateway, server);
        }
        let pending = || {
            let known = self.known();
            let unknown = |server: &Arc<Server>| {
                known.get(&server.id).is_some_and(|one| one.under_way && one.list.is_none())
            };
            servers.iter().any(unknown)
        };
        let all = async {
            while pending() {
                if answers.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(FIRST_VIEW_WAIT, all).await;
        self.now(gateway)
    }

    /// The lists as currently known, without querying servers.
    pub(crate) fn now(&self, gateway: &Gateway) -> Vec<List> {
        let known = self.known();
        let servers = gateway.active().servers.clone();
        let list = |server: &Arc<Server>| {
            let answered = known.get(&server.id).filter(|one| Arc::ptr_eq(&one.server, server));
            let answered = answered.and_then(|one| one.list.clone());
            let elsewhere = |why: Unavailable| {
                let tools = server.listed().map(|listed| listed.catalogue).ok_or(why);
                let other = |kind| Some((kind, Ok(server.listed_as(kind)?.catalogue)));
                (tools, OTHERS.into_iter().filter_map(other).collect())
            };
            let (tools, others) = match answered {
                Some(Ok(ServerLists { tools, others })) => (Ok(tools), others),
                Some(Err(why)) => elsewhere(why),
                None => elsewhere(Unavailable::Slow),
            };
            List { server: server.clone(), tools, others }
        };
        servers.iter().map(list).collect()
    }

    /// Queries servers that have failed again.
    pub(super) fn retry(&self, gateway: &Gateway) {
        for list in self.now(gateway).iter().filter(|list| list.tools.is_err()) {
            self.ask_one(gateway, &list.server);
        }
    }

    fn ask_one(&self, gateway: &Gateway, server: &Arc<Server>) {
        let generation = gateway.context.servers.generation();
        let mut known = self.known();
        let one = known.get(&server.id).filter(|one| Arc::ptr_eq(&one.server, server));
        if one.is_some_and(|one| one.is_settled(generation)) {
            return;
        }
        let list = one.and_then(|one| one.list.clone());
        let (server, asked) = (server.clone(), Instant::now());
        let one = ListState { server: server.clone(), list, asked, generation, under_way: true };
        known.insert(server.id, one);
        drop(known);
        let (known, answers) = (self.known.clone(), self.answers.clone());
        let (servers, timeout) = (gateway.context.servers.clone(), self.timeout);
        self.asking.spawn(async move {
            let list = ServerLists::fetch(&servers, &server, timeout).await;
            let mut known = known.locked();
            let Some(one) = known.get_mut(&server.id) else { return };
            if !Arc::ptr_eq(&one.server, &server) {
                return;
            }
            let same = match (&one.list, &list) {
                (Some(Ok(old)), Ok(new)) => old.is_same(new),
                (Some(Err(old)), Err(new)) => old == new,
                _ => false,
            };
            (one.list, one.asked, one.under_way) = (Some(list), Instant::now(), false);
            drop(known);
            answers.send_modify(|count| *count += u64::from(!same));
        });
    }
}
