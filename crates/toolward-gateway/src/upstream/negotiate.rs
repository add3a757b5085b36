//! How a client finds a server: in its own era where the server speaks it, else in the other.
//!
//! A search runs in a task of its own, so that whoever waits for it may stop waiting. It asks in the
//! client's era first. A server that says no is asked in the other; one that is silent may be slow, or
//! may ignore what it does not know, and is asked in the other as well, on a connection of its own. The
//! first answer wins, and what was started for the other ends. Nothing but first words is sent twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use toolward_wire::{Era, Message};

use super::connection::{Busy, Link};
use super::era_cache::Known;
use super::handshake::Opening;
use super::{Key, Reach, Server, Unavailable};
use crate::client::{Client, Owner};
use crate::lock::LockUnpoisoned;

/// In so many ways a server can be asked: two eras, and two transports of the older one.
pub(super) const WAYS: usize = 3;
/// For so long a server may be silent to `server/discover` before it is asked `initialize` too: old
/// servers may ignore what they do not know. They are then still in the client's first list.
const MODERN_FIRST: Duration = Duration::from_millis(1500);
/// For so long it may be silent to `initialize` before it is asked `server/discover` too: there is
/// hardly a server that does not answer that, so that it is slow.
const LEGACY_FIRST: Duration = Duration::from_secs(20);
/// For so long a client waits for its own era where the server is there in the other: most of the time
/// that it would wait, or this.
const OWN_FIRST: Duration = Duration::from_secs(4);
/// Two that start at the same time do not take equally long: the client's own era gets at most so
/// much longer than the other took.
const LONGER: Duration = Duration::from_secs(1);
/// How long a second way waits for room among the processes of a server, while the first one is asked.
const SECOND_ROOM: Duration = Duration::from_secs(3);
/// How often the first in line looks for room.
const LOOK: Duration = Duration::from_millis(25);

/// The searches under way at a server.
#[derive(Default)]
pub(super) struct Searches(Mutex<Running>);

#[derive(Default)]
struct Running {
    all: HashMap<(Purpose, [Key; 2]), Search>,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// Somebody needs the server.
    Find,
    /// Everybody is served; does the server speak the client's own era by now?
    Check,
}

struct Search {
    number: u64,
    began: Instant,
    wants_list: Arc<AtomicBool>,
    found: watch::Receiver<Option<Found>>,
    task: AbortHandle,
}

type Found = Result<Arc<Link>, Unavailable>;

/// How to ask a server in one era.
struct Way {
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

    /// A client is gone: nobody needs what it searched for.
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
    /// A link to the server on which it has answered. `wait` is how long it may take since it was
    /// first looked for, where somebody wants to list; `None`: as long as it takes.
    pub(super) async fn reach(
        self: &Arc<Self>,
        client: &Client,
        keys: &[Key; 2],
        wait: Option<Duration>,
    ) -> Result<Busy, Unavailable> {
        let [own, other] = keys;
        if let Some(link) = self.links.spoken(own) {
            return Ok(link);
        }
        if let Some(link) = self.links.spoken(other) {
            match self.known(own.revision.era()) {
                Known::No => return Ok(link),
                Known::LongAgo => {
                    self.begin(Purpose::Check, client, keys, wait);
                    return Ok(link);
                }
                Known::Nothing | Known::Speaks => {}
            }
        }
        let (began, mut found) = self.begin(Purpose::Find, client, keys, wait);
        let found = async {
            let found = found.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
            found.unwrap_or_else(|| Err(Unavailable::Down("it is not looked for any more".into())))
        };
        let found = match wait {
            None => found.await,
            Some(wait) => {
                let found = tokio::time::timeout_at(began + wait, found).await;
                found.unwrap_or_else(|_| Err(self.links.missing(keys, self.most_links())))
            }
        };
        found.map(|link| link.busy())
    }

    /// What the server says in the client's own era, where it answers at once that it does, or does
    /// not, speak it.
    pub(super) async fn own_greeting(
        self: &Arc<Self>,
        client: &Client,
        [own, _]: &[Key; 2],
    ) -> Option<Result<Message, Unavailable>> {
        if self.known(own.revision.era()) == Known::No {
            return Some(Err(Unavailable::OtherEra));
        }
        let asked = async {
            let link = self.room_for(own, &Opening::new(own, client)).await?;
            link.hello().await
        };
        match timeout(MODERN_FIRST, asked).await {
            Ok(Ok(hello)) => Some(Ok(hello)),
            Ok(Err(why @ Unavailable::OtherEra)) => Some(Err(why)),
            _ => None,
        }
    }

    /// The search of a client, begun where there is none.
    fn begin(
        self: &Arc<Self>,
        purpose: Purpose,
        client: &Client,
        keys: &[Key; 2],
        wait: Option<Duration>,
    ) -> (Instant, watch::Receiver<Option<Found>>) {
        let mut running = self.searches.running();
        let id = (purpose, keys.clone());
        if let Some(search) = running.all.get(&id) {
            search.wants_list.fetch_or(wait.is_some(), Ordering::Relaxed);
            return (search.began, search.found.clone());
        }
        running.number += 1;
        let (number, began) = (running.number, Instant::now());
        let (told, found) = watch::channel(None);
        let wants_list = Arc::new(AtomicBool::new(wait.is_some() || purpose == Purpose::Check));
        let ways = keys.clone().map(|key| Way { opening: Opening::new(&key, client), key });
        let (server, lists, ended) = (self.clone(), wants_list.clone(), id.clone());
        let task = tokio::spawn(async move {
            let result = match purpose {
                Purpose::Find => server.find(&ways, wait).await,
                Purpose::Check => server.check(&ways).await,
            };
            let mut running = server.searches.running();
            // Whoever is gone has no links.
            if running.all.get(&ended).is_none_or(|search| search.number != number) {
                return;
            }
            running.all.remove(&ended);
            if let Ok(link) = &result {
                server.links.keep(link);
            }
            drop(running);
            if let Ok(link) = &result
                && lists.load(Ordering::Relaxed)
            {
                let _ = link.begin_list();
            }
            let _ =
                told.send(Some(result.as_ref().map(|link| Arc::clone(link)).map_err(Clone::clone)));
        });
        let (task, waiting) = (task.abort_handle(), found.clone());
        running.all.insert(id, Search { number, began, wants_list, found, task });
        (began, waiting)
    }

    /// Looks for the server in every way that is not known to lead nowhere.
    async fn find(
        self: &Arc<Self>,
        ways: &[Way; 2],
        wait: Option<Duration>,
    ) -> Result<Busy, Unavailable> {
        let [own, other] = ways;
        let mut refused = false;
        for _ in 0..WAYS {
            let found = match (self.known(own.era()), self.known(other.era())) {
                (Known::No, Known::No) => break,
                (Known::No, _) => self.ask(other).await,
                (Known::Speaks, _) | (_, Known::No) => self.ask(own).await,
                _ => {
                    let alone = match own.era() {
                        // What is there already can be used at the last moment.
                        _ if self.links.spoken(&other.key).is_some() => {
                            wait.map_or(OWN_FIRST, |wait| wait * 4 / 5)
                        }
                        Era::Modern => MODERN_FIRST,
                        Era::Legacy => LEGACY_FIRST,
                    };
                    self.race(own, other, alone).await
                }
            };
            match found {
                // More is known now.
                Err(Unavailable::OtherEra) => refused = true,
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

    /// Whether a server that is there in the other era has come to speak a client's own.
    async fn check(self: &Arc<Self>, [own, _]: &[Way; 2]) -> Result<Busy, Unavailable> {
        let found = self.ask(own).await;
        match &found {
            Ok(_) | Err(Unavailable::OtherEra) => return found,
            Err(Unavailable::Unclear) => self.eras().refused(own.era(), Instant::now()),
            Err(_) => self.eras().silent(own.era(), Instant::now()),
        }
        self.links.remove_silent(&own.key);
        found
    }

    /// Asks in the client's own era alone for a while, then in the other too.
    async fn race(
        self: &Arc<Self>,
        own: &Way,
        other: &Way,
        alone: Duration,
    ) -> Result<Busy, Unavailable> {
        // Time in line is not silence of the server.
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
            let room = self.room_within(&other.key, &other.opening, SECOND_ROOM).await?;
            let asked = self.ask(other).await;
            drop(room);
            asked
        };
        tokio::pin!(other_asked);
        let mut other_failed = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut own_asked, if own_failed.is_none() => match answer {
                    Ok(link) => {
                        self.links.remove_silent(&other.key);
                        return Ok(link);
                    }
                    // The process that said so goes on, in the other era.
                    Err(why @ Unavailable::OtherEra) if self.spare.is_there() => {
                        self.links.remove_silent(&other.key);
                        return Err(why);
                    }
                    Err(why) => own_failed = Some(why),
                },
                answer = &mut other_asked, if other_failed.is_none() => match answer {
                    Ok(link) => {
                        let longer = begun.elapsed().min(LONGER);
                        let late = timeout(longer, &mut own_asked);
                        match &own_failed {
                            None => if let Ok(Ok(own)) = late.await {
                                self.links.remove_silent(&other.key);
                                return Ok(own);
                            } else {
                                self.eras().silent(own.era(), Instant::now());
                            },
                            Some(Unavailable::Unclear) => {
                                self.eras().refused(own.era(), Instant::now());
                            }
                            Some(_) => {}
                        }
                        self.links.remove_silent(&own.key);
                        return Ok(link);
                    }
                    // One after the other, where there is no room for both.
                    Err(Unavailable::Full(_)) if own_failed.is_none() => {
                        self.eras().silent(own.era(), Instant::now());
                        self.links.remove_silent(&own.key);
                        return Err(Unavailable::OtherEra);
                    }
                    Err(why) => other_failed = Some(why),
                },
            }
            match (&own_failed, &other_failed) {
                // It ended, and says that the other era is none of its own: perhaps it works now.
                (Some(Unavailable::Unclear), Some(why @ Unavailable::OtherEra)) => {
                    return Err(why.clone());
                }
                (Some(Unavailable::OtherEra), Some(why)) => return Err(why.clone()),
                (Some(why), Some(_)) => return Err(why.clone()),
                _ => {}
            }
        }
    }

    /// Asks the server in one era.
    async fn ask(self: &Arc<Self>, way: &Way) -> Result<Busy, Unavailable> {
        for _ in 0..WAYS {
            let link = self.room_for(&way.key, &way.opening).await?;
            match link.hello().await {
                // It is asked anew, over that one.
                Err(Unavailable::OldTransport) => {}
                hello => return hello.map(|_| link),
            }
        }
        Err(Unavailable::OldTransport)
    }

    /// A link of a key, made if need be. When all processes are busy, sessions wait in line for one, as
    /// long as a call may take.
    pub(super) async fn room_for(
        self: &Arc<Self>,
        key: &Key,
        opening: &Opening,
    ) -> Result<Busy, Unavailable> {
        self.room_within(key, opening, self.definition.timeouts.idle("")).await
    }

    async fn room_within(
        self: &Arc<Self>,
        key: &Key,
        opening: &Opening,
        patience: Duration,
    ) -> Result<Busy, Unavailable> {
        if let Some(link) = self.links.get(key) {
            return Ok(link);
        }
        if self.evicted.contains(&key.owner) {
            return Err(Unavailable::Evicted);
        }
        let most = self.most_links();
        let full = || Unavailable::Full(most.unwrap_or_default());
        let deadline = Instant::now() + patience;
        // Whoever came first is first: others wait until it has found room.
        let turn = tokio::time::timeout_at(deadline, self.line.lock()).await;
        let _turn = turn.map_err(|_| full())?;
        loop {
            let make = || Link::new(self, key.clone(), opening.clone());
            match self.links.get_or_make(key, most, make) {
                Err(Unavailable::Full(_)) if Instant::now() < deadline => sleep(LOOK).await,
                Err(why) => return Err(why),
                Ok((link, None)) => return Ok(link),
                Ok((link, Some(gone))) => {
                    if gone.has_spoken() && gone.key().owner != key.owner {
                        self.evicted.add(gone.key());
                    }
                    return Ok(link);
                }
            }
        }
    }

    /// Whether the server was found not to speak an era.
    pub(super) fn is_foreign(&self, era: Era) -> bool {
        matches!(self.known(era), Known::No | Known::LongAgo)
    }

    pub(super) fn known(&self, era: Era) -> Known {
        match era {
            Era::Modern if self.uses_sse() => Known::No,
            era => self.eras().known(era, Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests;
