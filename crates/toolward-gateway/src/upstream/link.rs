//! One connection to a server, and the list that it offers there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use toolward_wire::error::request_body;
use toolward_wire::exchange::{Done, Event};
use toolward_wire::{Era, Id, Kind, MAX_REQUEST, Message, MethodRow, Raw, Revision, Sender};
use toolward_wire::{meta, method};

use super::{
    Carrier, Changes, Key, Log, Opened, Opening, Outgoing, REMEMBERED, Reach, Server, UNCLEAR,
    Unavailable, child, http,
};
use crate::catalogue::{Catalogue, Offered};
use crate::client::{Client, Owner};
use crate::decide::Permit;

/// A list longer than this many pages is not believed.
const MOST_PAGES: usize = 1000;
/// How long a page of the list may take.
const PAGE: Duration = Duration::from_secs(30);
/// A modern list is asked for again after this time at the latest, and not sooner than that.
const LONGEST_TTL: Duration = Duration::from_secs(300);
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// For so long after its time a list still decides about calls, while it is asked for again.
const TOLERATED: Duration = Duration::from_secs(4);
/// A server that says again and again that its list has changed is asked this often.
const PAUSE: Duration = Duration::from_millis(250);

/// What a carrier reports beside answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The server says that its list has changed.
    ListChanged,
    /// The connection ended after it had worked for a while: what comes next may offer another list.
    Ended,
    /// It ended soon after its start; it is started again when it is needed.
    Failed,
}

pub struct Link {
    server: Weak<Server>,
    name: Box<str>,
    key: Key,
    carrier: Transport,
    list: Mutex<ListState>,
    /// Counts the fetches that came to an end.
    fetched: watch::Sender<u64>,
    changes: Changes,
    log: Log,
    busy: AtomicUsize,
    used: Mutex<Instant>,
}

enum Transport {
    Child(child::Child),
    Http(Arc<http::HttpLink>),
}

#[derive(Default)]
struct ListState {
    catalogue: Option<Arc<Catalogue>>,
    /// `None`: until the server says otherwise.
    fresh_until: Option<Instant>,
    stale: bool,
    /// When the fetch under way began.
    fetching: Option<Instant>,
    /// The list changed while it was fetched.
    overtaken: bool,
    failed: Option<Unavailable>,
}

impl ListState {
    fn fresh(&self) -> Option<Listed> {
        let fresh = !self.stale && self.fresh_until.is_none_or(|until| Instant::now() < until);
        let catalogue = self.catalogue.as_ref().filter(|_| fresh)?;
        Some(Listed { catalogue: catalogue.clone(), fresh_until: self.fresh_until })
    }
}

/// A server's list, and how long it may be used.
pub struct Listed {
    pub catalogue: Arc<Catalogue>,
    pub fresh_until: Option<Instant>,
}

/// Counts a request under way for as long as it lives.
pub(crate) struct Busy(Arc<Link>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

impl Link {
    pub(super) fn new(
        server: &Arc<Server>,
        key: Key,
        client: &Client,
        changes: Changes,
        log: Log,
    ) -> Arc<Link> {
        let opening = match key.revision.era() {
            Era::Modern => Opening::Modern,
            Era::Legacy => Opening::Legacy { params: hello_params(&key, client).into() },
        };
        let (signal, signals) = mpsc::unbounded_channel();
        let longest = server.definition.answer_bytes;
        let carrier = match &server.definition.reach {
            Reach::Child(launch) => {
                let source = child::Source::Program(launch.clone());
                Transport::Child(child::Child::new(source, opening, longest, log.clone(), signal))
            }
            Reach::Http(remote) if server.uses_sse() => {
                let source = child::Source::Sse(server.name().into(), remote.clone());
                Transport::Child(child::Child::new(source, opening, longest, log.clone(), signal))
            }
            Reach::Http(remote) => Transport::Http(http::HttpLink::new(
                server.name(),
                remote.clone(),
                opening,
                key.revision,
                longest,
                signal,
                log.clone(),
            )),
        };
        let link = Arc::new(Link {
            server: Arc::downgrade(server),
            name: server.name().into(),
            key,
            carrier,
            list: Mutex::default(),
            fetched: watch::Sender::new(0),
            changes,
            log,
            busy: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
        });
        tokio::spawn(follow(Arc::downgrade(&link), signals));
        link
    }

    pub fn era(&self) -> Era {
        self.key.revision.era()
    }

    fn list_state(&self) -> MutexGuard<'_, ListState> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn idle(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Resolves once the process behind the link has ended, which it does when nobody holds it.
    pub(crate) fn ended(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        match &self.carrier {
            Transport::Child(child) => Some(child.ended()),
            Transport::Http(_) => None,
        }
    }

    /// Starts the server if need be; gives its answer to `initialize` or `server/discover`.
    pub async fn hello(self: &Arc<Self>) -> Result<Message, Unavailable> {
        let _busy = self.busy();
        let answer = match &self.carrier {
            Transport::Child(child) => child.hello().await,
            Transport::Http(link) => link.hello().await,
        };
        // Whatever was started to find out is not needed.
        if let (Err(why), Some(server)) = (&answer, self.server.upgrade())
            && why.is_otherwise()
        {
            match why {
                Unavailable::OldTransport => server.is_sse(),
                Unavailable::Unclear => server.is_foreign(self.era(), UNCLEAR),
                _ => server.is_foreign(self.era(), REMEMBERED),
            }
            server.links().remove(&self.key);
        }
        answer
    }

    /// Forwards a permitted call.
    pub(crate) fn open(self: &Arc<Self>, permit: Permit, row: &'static MethodRow) -> Opened {
        self.send(permit.spend(row))
    }

    fn send(self: &Arc<Self>, outgoing: Outgoing) -> Opened {
        let carrier = match &self.carrier {
            Transport::Child(child) => Carrier::Child(child.send(&outgoing)),
            Transport::Http(link) => Carrier::Http(Box::new(link.send(outgoing))),
        };
        Opened { era: self.era(), _busy: self.busy(), carrier }
    }

    /// The list that was known last, however old it is.
    pub fn remembered(&self) -> Option<Listed> {
        let state = self.list_state();
        let catalogue = state.catalogue.clone()?;
        Some(Listed { catalogue, fresh_until: state.fresh_until })
    }

    /// Whether the list is past its time, and nobody is asking for it.
    pub(crate) fn is_overdue(&self) -> bool {
        let state = self.list_state();
        state.fetching.is_none() && state.fresh_until.is_some_and(|until| Instant::now() >= until)
    }

    /// The list on which a call may be decided: one that is not known to have changed, and at most
    /// a few seconds past its time.
    pub fn known(&self) -> Option<Listed> {
        let state = self.list_state();
        let late = |until: Instant| Instant::now() > until + TOLERATED;
        if state.stale || state.fresh_until.is_some_and(late) {
            return None;
        }
        drop(state);
        self.remembered()
    }

    /// The server's list. Waits for one that is on its way, `patience` long from its beginning.
    pub async fn list(self: &Arc<Self>, patience: Duration) -> Result<Listed, Unavailable> {
        self.touch();
        let mut fetched = self.fetched.subscribe();
        let began = {
            let mut state = self.list_state();
            if let Some(listed) = state.fresh() {
                return Ok(listed);
            }
            *state.fetching.get_or_insert_with(|| {
                tokio::spawn(self.clone().fetch());
                Instant::now()
            })
        };
        let deadline = tokio::time::Instant::from_std(began + patience);
        if tokio::time::timeout_at(deadline, fetched.changed()).await.is_err() {
            return Err(Unavailable::Slow);
        }
        let state = self.list_state();
        match (&state.failed, &state.catalogue) {
            (None, Some(catalogue)) => {
                Ok(Listed { catalogue: catalogue.clone(), fresh_until: state.fresh_until })
            }
            (Some(why), _) => Err(why.clone()),
            (None, None) => Err(Unavailable::Slow),
        }
    }

    /// Asks for the list, in a task of its own: whoever waits may stop waiting.
    async fn fetch(self: Arc<Self>) {
        let fetched = self.catalogue().await;
        let mut state = self.list_state();
        let before = state.catalogue.as_ref().map(|list| *list.hash());
        match fetched {
            Ok((catalogue, fresh_until)) => {
                state.catalogue = Some(Arc::new(catalogue));
                state.fresh_until = fresh_until;
                state.failed = None;
            }
            Err(why) => {
                if let Unavailable::Down(why) = &why {
                    (self.log)(&format!("{}: {why}", self.name));
                }
                state.catalogue = None;
                state.failed = Some(why);
            }
        }
        state.stale = std::mem::take(&mut state.overtaken);
        state.fetching = None;
        let after = state.catalogue.as_ref().map(|list| *list.hash());
        drop(state);
        if before != after {
            self.changes.bump();
        }
        self.fetched.send_modify(|count| *count += 1);
    }

    /// All pages of the server's list.
    async fn catalogue(self: &Arc<Self>) -> Result<(Catalogue, Option<Instant>), Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let hello = self.hello().await?;
        let mut offered = Offered::default();
        let capabilities = hello.result_member("capabilities");
        if capabilities.is_some_and(|raw| raw.member("tools").is_none()) {
            return Ok((offered.finish(false, None), None));
        }
        let mut cursor: Option<String> = None;
        let mut ttl = None;
        for page in 0.. {
            let params = match &cursor {
                None => json!({}),
                Some(cursor) => json!({ "cursor": cursor }),
            };
            let answer = self.ask("tools/list", params, PAGE).await?;
            if answer.kind() == Kind::Error {
                // The server's words could name what the agent must not see.
                let why = answer.error_message().unwrap_or_default().into_owned();
                (self.log)(&format!("{}: it does not list its tools: {why}", self.name));
                return Err(down("it does not list its tools".into()));
            }
            let said = answer.result_member("ttlMs").and_then(Raw::as_i64);
            ttl = said.and_then(|said| u64::try_from(said).ok());
            let next = offered.add_page(&answer).map_err(|why| down(why.to_string()))?;
            match next {
                None => break,
                Some(next) if cursor.as_ref() == Some(&next) || page >= MOST_PAGES => {
                    return Err(down("its list does not end".into()));
                }
                Some(next) => cursor = Some(next),
            }
        }
        let over_http = matches!(self.carrier, Transport::Http(_));
        for entry in &offered.malformed {
            let (at, problem) = (entry.index, &entry.problem);
            (self.log)(&format!("{}: tool {at} is left out: {problem}", self.name));
        }
        let catalogue = offered.finish(over_http, ttl);
        for (name, problem) in catalogue.dropped() {
            (self.log)(&format!("{}: tool `{name}` is left out: {problem}", self.name));
        }
        let fresh_until = match self.era() {
            Era::Legacy => None,
            Era::Modern => {
                let said = Duration::from_millis(ttl.unwrap_or(0));
                Some(Instant::now() + said.clamp(SHORTEST_TTL, LONGEST_TTL))
            }
        };
        Ok((catalogue, fresh_until))
    }

    /// A request of the gateway's own, to its end.
    async fn ask(
        self: &Arc<Self>,
        method: &'static str,
        params: Value,
        patience: Duration,
    ) -> Result<Message, Unavailable> {
        let gone = || Unavailable::Down("it ended before it answered".into());
        let outgoing = own_request(method, params, self.era()).ok_or_else(gone)?;
        let mut opened = self.send(outgoing);
        let answer = async {
            loop {
                match opened.next().await {
                    Event::Done(Done::Answer { message, .. }) => return Ok(message),
                    Event::Done(Done::Failed(_)) => return Err(gone()),
                    Event::Notify(_) | Event::Ask(_) => {}
                }
            }
        };
        let answer = tokio::time::timeout(patience, answer).await;
        answer.unwrap_or_else(|_| {
            opened.give_up(true);
            Err(Unavailable::Down(format!("it did not answer `{method}` in time")))
        })
    }
}

/// A request that the gateway itself makes, with what a modern server wants to know.
pub(super) fn own_request(method: &'static str, mut params: Value, era: Era) -> Option<Outgoing> {
    if era == Era::Modern {
        params["_meta"] = json!({
            meta::PROTOCOL_VERSION: Revision::newest(Era::Modern).as_str(),
            meta::CLIENT_INFO: {"name": "toolward", "version": env!("CARGO_PKG_VERSION")},
            meta::CLIENT_CAPABILITIES: {},
        });
    }
    let row = method::lookup(method, Sender::Client, era)?;
    let body = request_body(Some(&Id::number(0)), method, Some(params.to_string().as_bytes()));
    let message = Message::parse(body, MAX_REQUEST, Sender::Client).ok()?;
    Some(Outgoing { message, row, name: None, headers: Vec::new() })
}

/// What a legacy server is told first. Nothing that a server may ask of a client passes yet, so that
/// no capability is declared.
fn hello_params(key: &Key, client: &Client) -> String {
    let own = || json!({"name": "toolward", "version": env!("CARGO_PKG_VERSION")});
    // Whoever shares a link does not speak for the others.
    let info = client.info.as_ref().filter(|_| key.owner != Owner::Everyone);
    let info = info.and_then(|info| serde_json::from_slice(info).ok()).unwrap_or_else(own);
    let revision = key.revision.as_str();
    json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": info}).to_string()
}

/// Keeps a list that was asked for once up to date.
async fn follow(link: Weak<Link>, mut signals: mpsc::UnboundedReceiver<Signal>) {
    while let Some(mut signal) = signals.recv().await {
        while let Ok(next) = signals.try_recv() {
            signal = next;
        }
        let Some(link) = link.upgrade() else { return };
        let listed = {
            let mut state = link.list_state();
            state.stale = true;
            state.overtaken = state.fetching.is_some();
            state.catalogue.is_some()
        };
        link.changes.bump();
        if listed && signal != Signal::Failed {
            let _ = link.list(PAGE).await;
        }
        drop(link);
        tokio::time::sleep(PAUSE).await;
    }
}
