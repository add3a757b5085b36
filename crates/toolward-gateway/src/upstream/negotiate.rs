//! Protocol version negotiation: the client's own version if the server supports it, otherwise the
//! other.
//!
//! A search runs in its own task, so that a client can stop waiting without ending it. It tries the
//! client's protocol version first. A server that rejects that is tried in the other protocol
//! version. A server that does not respond may be slow, or may ignore requests it does not know:
//! after a while it is tried in the other protocol version as well, and the first response wins. A
//! stdio server is asked on the process that was started first, unless that has ended; if that process
//! then serves the other protocol version only, so does the gateway. Only handshake requests are ever
//! sent twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use toolward_wire::list::ListKind;
use toolward_wire::{Era, Message};

use super::connection::{Busy, ServerConnection};
use super::era_cache::EraSupport;
use super::handshake::Opening;
use super::{Key, Reach, Server, Unavailable};
use crate::client::{Client, Owner};
use crate::lock::LockUnpoisoned;

/// The ways to contact a server: the modern and the legacy protocol, and two transports of the
/// latter.
pub(super) const MAX_ATTEMPTS: usize = 3;
/// How long to wait for a response to `server/discover` before `initialize` is tried too: legacy
/// servers may ignore methods they do not know.
const MODERN_HEAD_START: Duration = Duration::from_millis(1500);
/// How long to wait for a response to `initialize` before `server/discover` is tried too. Almost
/// every server responds to `initialize`, so one that does not is probably slow.
const LEGACY_HEAD_START: Duration = Duration::from_secs(20);
/// The same on stdio, where a server that does not respond is nearly always starting. Some servers
/// of both protocol versions serve the one that was tried last, so the other is tried late.
const STDIO_HEAD_START: Duration = Duration::from_secs(25);
/// On stdio, no other protocol version is tried after `initialize`: some servers exit when they
/// receive an unknown method. This is longer than the handshake may take.
const NO_SECOND_ATTEMPT: Duration = Duration::from_secs(3600);
/// How long a client waits for its own protocol version if the server is already connected in the
/// other one and the client has no timeout of its own.
const OWN_ERA_HEAD_START: Duration = Duration::from_secs(4);
/// Two servers started at the same time do not take equally long: the client's own protocol version
/// gets at most this much longer than the other one took.
const MAX_EXTRA_WAIT: Duration = Duration::from_secs(1);
/// The interval at which the first in the queue checks for a free slot.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The searches in progress for a server.
#[derive(Default)]
pub(super) struct Searches(Mutex<Running>);

#[derive(Default)]
struct Running {
    all: HashMap<(Purpose, [Key; 2]), Search>,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// A client needs the server.
    Find,
    /// Every client is served in the other protocol version; check whether the server supports the
    /// client's own by now.
    Check,
}

struct Search {
    number: u64,
    began: Instant,
    wants_list: Arc<AtomicBool>,
    found: watch::Receiver<Option<SearchResult>>,
    task: AbortHandle,
}

type SearchResult = Result<Arc<ServerConnection>, Unavailable>;

/// How to contact a server in one protocol version.
pub(super) struct Way {
    key: Key,
    opening: Opening,
}

impl Way {
    fn era(&self) -> Era {
        self.key.revision.era()
    }
}

impl Searches {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.locked()
    }

    /// Ends the searches of a client that has disconnected.
    pub(super) fn release(&self, owner: &Owner) {
        self.running().all.retain(|(_, keys), search| {
            let gone = keys.iter().any(|key| key.owner == *owner);
            if gone {
                search.task.abort();
            }
            !gone
        });
    }

    pub(super) fn stop(&self) {
        for (_, search) in self.running().all.drain() {
            search.task.abort();
        }
    }
}

impl Server {
    /// A connection on which the server has responded. `wait` limits the time since the search
    /// began, for clients that list; `None` waits without a limit.
    pub(super) async fn reach(
        self: &Arc<Self>,
        client: &Client,
        keys: &[Key; 2],
        wait: Option<Duration>,
    ) -> Result<Busy, Unavailable> {
        let [own, other] = keys;
        if let Some(connection) = self.connections.spoken(own) {
            return Ok(connection);
        }
        if let Some(connection) = self.connections.spoken(other) {
            match self.known(own.revision.era()) {
                EraSupport::Unsupported => return Ok(connection),
                EraSupport::Stale => {
                    self.begin(Purpose::Check, client, keys, wait);
                    return Ok(connection);
                }
                EraSupport::Unknown | EraSupport::Supported => {}
            }
        }
        let (began, mut found) = self.begin(Purpose::Find, client, keys, wait);
        let found = async {
            let found = found.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
            found.unwrap_or_else(|| Err(Unavailable::Down("the search for it was stopped".into())))
        };
        let found = match wait {
            None => found.await,
            Some(wait) => {
                let found = tokio::time::timeout_at(began + wait, found).await;
                found
                    .unwrap_or_else(|_| Err(self.connections.missing(keys, self.max_connections())))
            }
        };
        found.map(|connection| connection.busy())
    }

    /// The server's handshake response in the client's own protocol version. A server that does not
    /// respond for long counts as one that does not support it, and keeps its process.
    pub(super) async fn own_greeting(
        self: &Arc<Self>,
        client: &Client,
        [own, _]: &[Key; 2],
    ) -> Result<Message, Unavailable> {
        if self.known(own.revision.era()) == EraSupport::Unsupported {
            return Err(Unavailable::OtherEra);
        }
        let way = Way { key: own.clone(), opening: self.opening(own, client) };
        let asked = timeout(STDIO_HEAD_START, self.ask(&way)).await;
        asked.unwrap_or(Err(Unavailable::OtherEra))?.hello().await
    }

    /// The search of a client, started if necessary.
    fn begin(
        self: &Arc<Self>,
        purpose: Purpose,
        client: &Client,
        keys: &[Key; 2],
        wait: Option<Duration>,
    ) -> (Instant, watch::Receiver<Option<SearchResult>>) {
        let mut running = self.searches.running();
        let id = (purpose, keys.clone());
        if let Some(search) = running.all.get(&id) {
            search.wants_list.fetch_or(wait.is_some(), Ordering::Relaxed);
            return (search.began, search.found.clone());
        }
        running.number += 1;
        let (number, began) = (running.number, Instant::now());
        let (sender, found) = watch::channel(None);
        let wants_list = Arc::new(AtomicBool::new(wait.is_some() || purpose == Purpose::Check));
        let ways = self.ways(client, keys);
        let (server, lists, ended) = (self.clone(), wants_list.clone(), id.clone());
        let task = tokio::spawn(async move {
            let result = match purpose {
                Purpose::Find => server.find(&ways, wait).await,
                Purpose::Check => server.check(&ways).await,
            };
            let mut running = server.searches.running();
            // A client that has disconnected has no connections.
            if running.all.get(&ended).is_none_or(|search| search.number != number) {
                return;
            }
            running.all.remove(&ended);
            if let Ok(connection) = &result {
                server.connections.keep(connection);
            }
            drop(running);
            if let Ok(connection) = &result
                && lists.load(Ordering::Relaxed)
            {
                let _ = connection.begin_list(ListKind::Tools);
            }
            let _ = sender.send(Some(
                result.as_ref().map(|connection| Arc::clone(connection)).map_err(Clone::clone),
            ));
        });
        let (task, waiting) = (task.abort_handle(), found.clone());
        running.all.insert(id, Search { number, began, wants_list, found, task });
        (began, waiting)
    }

    /// Tries every protocol version that is not known to fail.
    async fn find(
        self: &Arc<Self>,
        ways: &[Way; 2],
        wait: Option<Duration>,
    ) -> Result<Busy, Unavailable> {
        let [own, other] = ways;
        let mut refused = false;
        for _ in 0..MAX_ATTEMPTS {
            let found = match (self.known(own.era()), self.known(other.era())) {
                (EraSupport::Unsupported, EraSupport::Unsupported) => break,
                (EraSupport::Unsupported, _) => self.ask(other).await,
                (EraSupport::Supported, _) | (_, EraSupport::Unsupported) => self.ask(own).await,
                _ => {
                    let alone = match own.era() {
                        // The existing connection can still be used at the last moment.
                        _ if self.connections.spoken(&other.key).is_some() => {
                            wait.map_or(OWN_ERA_HEAD_START, |wait| wait * 4 / 5)
                        }
                        Era::Modern if self.is_stdio() => STDIO_HEAD_START,
                        Era::Legacy if self.is_stdio() => NO_SECOND_ATTEMPT,
                        Era::Modern => MODERN_HEAD_START,
                        Era::Legacy => LEGACY_HEAD_START,
                    };
                    self.race(own, other, alone).await
                }
            };
            match found {
                // The cache was updated; try again.
                Err(Unavailable::OtherEra) => refused = true,
                // In another process.
                Err(Unavailable::Taken) => {}
                // The server may have changed since an earlier run of the gateway.
                Err(Unavailable::Unclear | Unavailable::Down(_)) if self.eras().doubt() => {}
                Err(why @ Unavailable::Unclear) => {
                    let help = match &self.definition.reach {
                        Reach::Child(launch) => launch.withheld().map(|help| format!("; {help}")),
                        _ => None,
                    };
                    let why = why.to_string() + &help.unwrap_or_default();
                    let line = self.withheld.log_line(&why);
                    tracing::warn!(target: "upstream", server = self.name(), "{line}");
                    self.life.failed(&why);
                    return Err(Unavailable::Down(why));
                }
                found => return found,
            }
        }
        let why = Unavailable::OtherEra;
        if refused {
            tracing::warn!(target: "upstream", server = self.name(), "{why}");
            self.life.failed(&why.to_string());
        }
        Err(why)
    }

    /// The ways to reach the server for a client.
    pub(super) fn ways(&self, client: &Client, keys: &[Key; 2]) -> [Way; 2] {
        keys.clone().map(|key| Way { opening: self.opening(&key, client), key })
    }

    /// Connects, and fetches the list of tools, while no client waits.
    pub(super) async fn prepare(self: &Arc<Self>, ways: &[Way; 2], timeout: Duration) {
        if let Ok(connection) = self.find(ways, None).await {
            self.connections.keep(&connection);
            let _ = connection.list(ListKind::Tools, timeout).await;
        }
    }

    /// Checks whether a server that is connected in the other protocol version supports the
    /// client's own by now.
    async fn check(self: &Arc<Self>, [own, _]: &[Way; 2]) -> Result<Busy, Unavailable> {
        let found = self.ask(own).await;
        match &found {
            Ok(_) | Err(Unavailable::OtherEra) => return found,
            Err(Unavailable::Unclear) => {}
            Err(_) => self.eras().silent(own.era(), Instant::now()),
        }
        self.connections.remove_silent(&own.key);
        found
    }

    /// Tries the client's own protocol version alone for a while, then the other one in parallel.
    async fn race(
        self: &Arc<Self>,
        own: &Way,
        other: &Way,
        alone: Duration,
    ) -> Result<Busy, Unavailable> {
        // Time in the queue must not count as the server's silence.
        let _own = self.room_for(&own.key, &own.opening).await?;
        let own_asked = self.ask(own);
        tokio::pin!(own_asked);
        let mut own_failed = match timeout(alone, &mut own_asked).await {
            Ok(Err(why @ Unavailable::Unclear)) => Some(why),
            Ok(answered) => return answered,
            Err(_) => None,
        };
        let begun = Instant::now();
        let other_asked = async {
            // On stdio, it is asked on the process of the first attempt, so no slot is needed.
            let _second = self.connection_beyond(&other.key, &other.opening);
            self.ask(other).await
        };
        tokio::pin!(other_asked);
        let mut other_failed = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut own_asked, if own_failed.is_none() => match answer {
                    Ok(connection) => {
                        self.connections.remove_silent(&other.key);
                        return Ok(connection);
                    }
                    Err(why) => own_failed = Some(why),
                },
                answer = &mut other_asked, if other_failed.is_none() => match answer {
                    Ok(connection) => {
                        if own_failed == Some(Unavailable::Taken) {
                            self.eras().displaced(own.era(), Instant::now());
                        }
                        if own_failed.is_none() {
                            let longer = begun.elapsed().min(MAX_EXTRA_WAIT);
                            match timeout(longer, &mut own_asked).await {
                                Ok(Ok(own)) => {
                                    self.connections.remove_silent(&other.key);
                                    return Ok(own);
                                }
                                Ok(Err(Unavailable::Taken)) => {
                                    self.eras().displaced(own.era(), Instant::now());
                                }
                                // Its process is still starting, and serves later requests.
                                Err(_) if self.is_stdio() => return Ok(connection),
                                _ => self.eras().silent(own.era(), Instant::now()),
                            }
                        }
                        self.connections.remove_silent(&own.key);
                        return Ok(connection);
                    }
                    Err(why) => other_failed = Some(why),
                },
            }
            match (&own_failed, &other_failed) {
                // The process ended in one protocol version and rejected the other: it may work
                // now.
                (Some(Unavailable::Unclear), Some(why @ Unavailable::OtherEra)) => {
                    return Err(why.clone());
                }
                (Some(Unavailable::OtherEra), Some(why)) => return Err(why.clone()),
                (Some(why), Some(_)) => return Err(why.clone()),
                _ => {}
            }
        }
    }

    /// Contacts the server in one protocol version.
    async fn ask(self: &Arc<Self>, way: &Way) -> Result<Busy, Unavailable> {
        for _ in 0..MAX_ATTEMPTS {
            let connection = self.room_for(&way.key, &way.opening).await?;
            match connection.hello().await {
                // It is tried again, over the legacy transport.
                Err(Unavailable::OldTransport) => {}
                hello => return hello.map(|_| connection),
            }
        }
        Err(Unavailable::OldTransport)
    }

    /// A connection that no other call uses. Beyond `max_children`, calls wait in line for one.
    pub(super) async fn free_lane(
        self: &Arc<Self>,
        key: &Key,
        client: &Client,
    ) -> Result<Busy, Unavailable> {
        let last = self.max_connections().unwrap_or(1);
        for lane in 1..=last {
            let key = Key { lane, ..key.clone() };
            let connection = self.room_for(&key, &self.opening(&key, client)).await?;
            if !connection.is_used_by_others() {
                return Ok(connection);
            }
        }
        Err(Unavailable::Full(last))
    }

    /// The connection of a key, created if necessary. If all processes are busy, sessions queue for
    /// one, for as long as a call may take.
    pub(super) async fn room_for(
        self: &Arc<Self>,
        key: &Key,
        opening: &Opening,
    ) -> Result<Busy, Unavailable> {
        if let Some(connection) = self.connections.get(key) {
            return Ok(connection);
        }
        if self.evicted.contains(&key.owner) {
            return Err(Unavailable::Evicted);
        }
        let most = self.max_connections();
        let full = || Unavailable::Full(most.unwrap_or_default());
        let deadline = Instant::now() + self.definition.timeouts.idle("");
        // First come, first served: others wait until the first one has a slot.
        let turn = tokio::time::timeout_at(deadline, self.line.lock()).await;
        let _turn = turn.map_err(|_| full())?;
        loop {
            let make = |sharing: Option<&_>| {
                ServerConnection::new(self, key.clone(), opening.clone(), sharing)
            };
            match self.connections.get_or_make(key, most, make) {
                Err(Unavailable::Full(_)) if Instant::now() < deadline => {
                    sleep(POLL_INTERVAL).await
                }
                Err(why) => return Err(why),
                Ok((connection, evicted)) => {
                    for gone in evicted {
                        if gone.has_spoken() && gone.key().owner != key.owner {
                            self.evicted.add(gone.key());
                        }
                    }
                    return Ok(connection);
                }
            }
        }
    }

    /// The connection of a key, created if necessary, without regard to the maximum.
    fn connection_beyond(self: &Arc<Self>, key: &Key, opening: &Opening) -> Option<Busy> {
        let make = |sharing: Option<&_>| {
            ServerConnection::new(self, key.clone(), opening.clone(), sharing)
        };
        let made = self.connections.get_or_make(key, None, make);
        made.ok().map(|(connection, _)| connection)
    }

    /// Whether the server is known not to support a protocol version.
    pub(super) fn is_foreign(&self, era: Era) -> bool {
        matches!(self.known(era), EraSupport::Unsupported | EraSupport::Stale)
    }

    pub(super) fn known(&self, era: Era) -> EraSupport {
        match era {
            Era::Modern if self.uses_sse() => EraSupport::Unsupported,
            era => self.eras().known(era, Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests;
