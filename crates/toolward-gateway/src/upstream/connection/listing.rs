//! The lists of a connection (tools, prompts, resources, templates): fetched, cached, and refreshed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use toolward_wire::exchange::{Event, ExchangeEnd, Failure};
use toolward_wire::jsonrpc_error::code;
use toolward_wire::list::ListKind;
use toolward_wire::{Era, Kind, Message, Raw};

use super::super::{GiveUp, Unavailable};
use super::{Busy, ServerConnection, Transport};
use crate::lock::LockUnpoisoned;
use crate::permit::Outgoing;
use crate::upstream::catalogue::{Catalogue, CatalogueBuilder};
use crate::upstream::handshake::own_request;
use crate::upstream::transport::Signal;

/// A list with more pages is rejected as endless.
const MAX_PAGES: usize = 1000;
/// The timeout for one page of the list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bounds on the TTL of a modern list.
const MAX_TTL: Duration = Duration::from_secs(300);
const MIN_TTL: Duration = Duration::from_secs(1);
/// A legacy list that is older than this is fetched again when a client lists: many servers change
/// their tools and never announce it. Calls are still decided on the cached list.
const MAX_LEGACY_AGE: Duration = Duration::from_secs(3);
/// How long a client that lists waits for a refresh that is only due to the list's age. After that
/// it gets the cached list, and `list_changed` if the new one differs: a server that handles one
/// request at a time responds only after its current call.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a stale list still decides about calls, while it is refreshed.
const STALE_GRACE: Duration = Duration::from_secs(4);
/// The minimum time between refreshes if a server keeps announcing changes.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// A server's list of one kind, as this connection last fetched it.
#[derive(Default)]
pub(super) struct CachedList {
    state: Mutex<ListState>,
    /// Counts completed fetches.
    fetched: watch::Sender<u64>,
}

#[derive(Default)]
struct ListState {
    catalogue: Option<Arc<Catalogue>>,
    /// `None`: until the server announces a change.
    fresh_until: Option<Instant>,
    /// When a listing fetches the list again.
    relist_at: Option<Instant>,
    stale: bool,
    /// When the fetch in progress began.
    fetching: Option<Instant>,
    /// The list changed while it was being fetched.
    overtaken: bool,
    failed: Option<Unavailable>,
}

impl ListState {
    fn fresh(&self) -> Option<Listed> {
        let now = Instant::now();
        let young = self.relist_at.is_none_or(|at| now < at);
        self.unchanged().filter(|listed| young && listed.fresh_until.is_none_or(|at| now < at))
    }

    /// The list, unless it is known to have changed.
    fn unchanged(&self) -> Option<Listed> {
        self.listed().filter(|_| !self.stale)
    }

    fn listed(&self) -> Option<Listed> {
        let (fresh_until, relist_at) = (self.fresh_until, self.relist_at);
        Some(Listed { catalogue: self.catalogue.clone()?, fresh_until, relist_at })
    }

    /// The list to fall back on if a refresh takes too long.
    fn spare(&self) -> Option<Listed> {
        self.unchanged().filter(|listed| listed.fresh_until.is_none())
    }
}

/// A server's list, and how long it may be used.
pub struct Listed {
    pub catalogue: Arc<Catalogue>,
    pub fresh_until: Option<Instant>,
    /// When a client that lists must refresh it, even though calls are still decided on it.
    pub relist_at: Option<Instant>,
}

impl ServerConnection {
    fn list_state(&self, kind: ListKind) -> MutexGuard<'_, ListState> {
        self.lists[kind.index()].state.locked()
    }

    /// The latest list, however old it is.
    pub fn remembered(&self, kind: ListKind) -> Option<Listed> {
        self.list_state(kind).listed()
    }

    /// Whether the list is stale and is not being fetched.
    pub(crate) fn is_overdue(&self, kind: ListKind) -> bool {
        let state = self.list_state(kind);
        state.fetching.is_none() && state.fresh_until.is_some_and(|until| Instant::now() >= until)
    }

    /// The list to decide a call on: not known to have changed, and stale by at most a few seconds.
    pub fn known(&self, kind: ListKind) -> Option<Listed> {
        let late = |until: Instant| Instant::now() > until + STALE_GRACE;
        self.list_state(kind).unchanged().filter(|listed| !listed.fresh_until.is_some_and(late))
    }

    /// The server's list. Waits for a fetch in progress until `patience` after its start.
    pub async fn list(
        self: &Arc<Self>,
        kind: ListKind,
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        self.touch();
        let mut fetched = self.lists[kind.index()].fetched.subscribe();
        let began = match self.begin_list(kind) {
            Ok(listed) => return Ok(listed),
            Err(began) => began,
        };
        let has_spare = self.list_state(kind).spare().is_some();
        let wait = if has_spare { patience.min(REFRESH_TIMEOUT) } else { patience };
        if tokio::time::timeout_at(began + wait, fetched.changed()).await.is_err() {
            return self.list_state(kind).spare().ok_or(Unavailable::Slow);
        }
        let state = self.list_state(kind);
        match &state.failed {
            Some(why) => Err(why.clone()),
            None => state.listed().ok_or(Unavailable::Slow),
        }
    }

    /// The list if it is fresh; otherwise the start of the fetch in progress.
    pub(in super::super) fn begin_list(
        self: &Arc<Self>,
        kind: ListKind,
    ) -> Result<Listed, Instant> {
        let mut state = self.list_state(kind);
        match state.fresh() {
            Some(listed) => Ok(listed),
            None => Err(*state.fetching.get_or_insert_with(|| {
                tokio::spawn(fetch(self.busy(), kind));
                Instant::now()
            })),
        }
    }

    /// Fetches all pages of the list, given the handshake response.
    async fn catalogue(
        self: &Arc<Self>,
        kind: ListKind,
        hello: &Message,
    ) -> Result<(Catalogue, Option<Instant>), Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let mut offered = CatalogueBuilder::new(kind);
        let capabilities = hello.result_member("capabilities");
        if capabilities.is_some_and(|raw| raw.member(kind.capability()).is_none()) {
            return Ok((offered.finish(false, None), None));
        }
        let (method, noun) = (kind.method(), kind.noun());
        let mut cursor: Option<String> = None;
        let mut ttl = None;
        for page in 0.. {
            let params = match &cursor {
                None => json!({}),
                Some(cursor) => json!({ "cursor": cursor }),
            };
            let answer = self.ask(method, params, PAGE_TIMEOUT).await?;
            if answer.kind() == Kind::Error {
                // Many servers with resources have no templates, and do not know the method.
                let unknown = answer.error_code() == Some(code::METHOD_NOT_FOUND.into());
                if unknown && kind != ListKind::Tools {
                    break;
                }
                let why = answer.error_message().unwrap_or_default();
                return Err(down(format!("it returned an error for `{method}`: {why}")));
            }
            let said = answer.result_member("ttlMs").and_then(Raw::as_i64);
            ttl = said.and_then(|said| u64::try_from(said).ok());
            let next = offered.add_page(&answer).map_err(|why| down(why.to_string()))?;
            match next {
                None => break,
                Some(next) if cursor.as_ref() == Some(&next) || page >= MAX_PAGES => {
                    return Err(down(format!("its {noun} list has no end")));
                }
                Some(next) => cursor = Some(next),
            }
        }
        let over_http = matches!(self.carrier, Transport::Http(_));
        for entry in &offered.malformed {
            let (at, problem) = (entry.index, &entry.problem);
            tracing::warn!(target: "upstream", server = self.name, "dropped {noun} {at}: {problem}");
        }
        let catalogue = offered.finish(over_http, ttl);
        for (tool, problem) in catalogue.dropped() {
            tracing::warn!(target: "upstream", server = self.name, "dropped tool `{tool}`: {problem}");
        }
        let fresh_until = match self.era() {
            Era::Legacy => None,
            Era::Modern => {
                let said = Duration::from_millis(ttl.unwrap_or(0));
                Some(Instant::now() + said.clamp(MIN_TTL, MAX_TTL))
            }
        };
        Ok((catalogue, fresh_until))
    }

    /// Sends a request of the gateway itself and waits for the response.
    pub(super) async fn ask(
        self: &Arc<Self>,
        method: &'static str,
        params: Value,
        patience: Duration,
    ) -> Result<Message, Unavailable> {
        let gone = || Unavailable::Down("it exited before it responded".into());
        let own = own_request(method, params, self.era()).ok_or_else(gone)?;
        let outgoing = Outgoing { declared: self.key().declared, ..own };
        let mut opened = self.send(outgoing);
        let answer = async {
            loop {
                match opened.next().await {
                    Event::Done(ExchangeEnd::Response { message, .. }) => return Ok(message),
                    Event::Done(ExchangeEnd::Failed(Failure::TooLarge { .. })) => {
                        return Err(Unavailable::Down("its response is too large".into()));
                    }
                    Event::Done(ExchangeEnd::Failed(Failure::Unstartable)) => {
                        return Err(Unavailable::Unstartable("it cannot be started".into()));
                    }
                    Event::Done(ExchangeEnd::Failed(_) | ExchangeEnd::InputRequired(_)) => {
                        return Err(gone());
                    }
                    Event::Notify(_) | Event::ServerRequest(..) | Event::StreamClosed(_) => {}
                }
            }
        };
        let answer = tokio::time::timeout(patience, answer).await;
        answer.unwrap_or_else(|_| {
            opened.give_up(GiveUp::TimedOut);
            Err(Unavailable::Slow)
        })
    }
}

/// Fetches the list in its own task, so that a client can stop waiting without ending it.
async fn fetch(connection: Busy, kind: ListKind) {
    // If the server cannot be started, the code that starts it logs the reason.
    let fetched = match connection.hello().await {
        Err(why) => Err(why),
        Ok(hello) => connection.catalogue(kind, &hello).await.inspect_err(|why| {
            if *why == Unavailable::Slow && connection.list_state(kind).spare().is_some() {
                return;
            }
            tracing::warn!(target: "upstream", server = connection.name, "{why}");
            if let Some(server) = connection.server.upgrade() {
                server.life.failed(&why.to_string());
            }
        }),
    };
    let mut state = connection.list_state(kind);
    let before = state.catalogue.as_ref().map(|list| *list.hash());
    match fetched {
        Ok((catalogue, fresh_until)) => {
            state.catalogue = Some(Arc::new(catalogue));
            state.fresh_until = fresh_until;
            state.failed = None;
            connection.listed.store(true, Ordering::Release);
        }
        // The server is busy and has not announced a change, so the cached list still applies.
        Err(Unavailable::Slow) if state.spare().is_some() => state.failed = None,
        Err(why) => {
            state.catalogue = None;
            state.failed = Some(why);
        }
    }
    state.relist_at = (connection.era() == Era::Legacy).then(|| Instant::now() + MAX_LEGACY_AGE);
    state.stale = std::mem::take(&mut state.overtaken);
    state.fetching = None;
    let after = state.catalogue.as_ref().map(|list| *list.hash());
    drop(state);
    if before != after {
        connection.changes.bump();
    }
    connection.lists[kind.index()].fetched.send_modify(|count| *count += 1);
}

/// Keeps lists that were fetched once up to date.
pub(super) async fn follow(
    connection: Weak<ServerConnection>,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) {
    while let Some(signal) = signals.recv().await {
        let mut changes = ChangedLists::default();
        let Some(connection) = connection.upgrade() else { return };
        let mut next = Some(signal);
        while let Some(signal) = next {
            match &signal {
                Signal::Updated(uri) => connection.updated(uri),
                Signal::Task(update) => connection.task_changed(update.message()),
                Signal::Renewed | Signal::Ended | Signal::Failed => {
                    connection.resubscribe();
                    connection.forget_log_level();
                }
                Signal::ListChanged(_) => {}
            }
            changes.add(&signal);
            next = signals.try_recv().ok();
        }
        if !changes.any {
            continue;
        }
        let mut outdated = Vec::new();
        for kind in ListKind::ALL {
            let mut state = connection.list_state(kind);
            let changed = match changes.of(kind) {
                Some(Change::Announced) => true,
                // The fetch that began the session gets the new list.
                Some(Change::Renewed) => state.fetching.is_none(),
                None => false,
            };
            if changed {
                state.stale = true;
                state.overtaken = state.fetching.is_some();
                if state.catalogue.is_some() {
                    outdated.push(kind);
                }
            }
        }
        connection.changes.bump();
        if !changes.failed {
            for kind in outdated {
                let _ = connection.list(kind, PAGE_TIMEOUT).await;
            }
        }
        drop(connection);
        tokio::time::sleep(MIN_REFRESH_INTERVAL).await;
    }
}

/// The effect of pending signals on each list.
#[derive(Default)]
struct ChangedLists {
    any: bool,
    announced: [bool; 4],
    renewed: bool,
    /// The connection failed: lists are fetched on the next use.
    failed: bool,
}

enum Change {
    Announced,
    Renewed,
}

impl ChangedLists {
    fn add(&mut self, signal: &Signal) {
        self.any |= !matches!(signal, Signal::Updated(_) | Signal::Task(_));
        match signal {
            Signal::Updated(_) | Signal::Task(_) => return,
            Signal::ListChanged(kind) => {
                for one in ListKind::ALL.iter().filter(|one| one.changed() == kind.changed()) {
                    self.announced[one.index()] = true;
                }
            }
            Signal::Renewed => return self.renewed = true,
            Signal::Ended | Signal::Failed => self.announced = [true; 4],
        }
        self.failed = matches!(signal, Signal::Failed);
    }

    fn of(&self, kind: ListKind) -> Option<Change> {
        match self.announced[kind.index()] {
            true => Some(Change::Announced),
            false => self.renewed.then_some(Change::Renewed),
        }
    }
}
