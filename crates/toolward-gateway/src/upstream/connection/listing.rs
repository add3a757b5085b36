//! The list that a server offers on a link: asked for, kept, and followed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use toolward_wire::exchange::{Event, ExchangeEnd, Failure};
use toolward_wire::{Era, Kind, Message, Raw};

use super::super::{GiveUp, Unavailable};
use super::{Busy, Link, Transport};
use crate::lock::LockUnpoisoned;
use crate::upstream::catalogue::{Catalogue, Offered};
use crate::upstream::handshake::own_request;
use crate::upstream::transport::Signal;

/// A list longer than this many pages is not believed.
const MOST_PAGES: usize = 1000;
/// How long a page of the list may take.
const PAGE: Duration = Duration::from_secs(30);
/// A modern list is asked for again after this time at the latest, and not sooner than that.
const LONGEST_TTL: Duration = Duration::from_secs(300);
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// A legacy list that is older than this is fetched again for whoever lists: many servers change their
/// tools and never announce it. Calls of tools that are in it are decided on it as it is.
const LEGACY_AGE: Duration = Duration::from_secs(3);
/// How long a listing waits for a list that is only fetched again because of its age. After that the
/// client gets the list that is known, and `list_changed` if the new one differs: a server that works
/// on one thing at a time answers after its call.
const REFRESH_WAIT: Duration = Duration::from_secs(2);
/// For so long after its time a list still decides about calls, while it is asked for again.
const TOLERATED: Duration = Duration::from_secs(4);
/// A server that says again and again that its list has changed is asked this often.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct ListState {
    catalogue: Option<Arc<Catalogue>>,
    /// `None`: until the server says otherwise.
    fresh_until: Option<Instant>,
    /// When a listing fetches the list again.
    relist_at: Option<Instant>,
    stale: bool,
    /// When the fetch under way began.
    fetching: Option<Instant>,
    /// The list changed while it was fetched.
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

    /// The list that a listing may use if fetching it again takes too long.
    fn spare(&self) -> Option<Listed> {
        self.unchanged().filter(|listed| listed.fresh_until.is_none())
    }
}

/// A server's list, and how long it may be used.
pub struct Listed {
    pub catalogue: Arc<Catalogue>,
    pub fresh_until: Option<Instant>,
    /// When a listing has to fetch it again, though calls are still decided on it.
    pub relist_at: Option<Instant>,
}

impl Link {
    fn list_state(&self) -> MutexGuard<'_, ListState> {
        self.list.locked()
    }

    /// The list that was known last, however old it is.
    pub fn remembered(&self) -> Option<Listed> {
        self.list_state().listed()
    }

    /// Whether the list is past its time, and nobody is asking for it.
    pub(crate) fn is_overdue(&self) -> bool {
        let state = self.list_state();
        state.fetching.is_none() && state.fresh_until.is_some_and(|until| Instant::now() >= until)
    }

    /// The list on which a call may be decided: one that is not known to have changed, and at most
    /// a few seconds past its time.
    pub fn known(&self) -> Option<Listed> {
        let late = |until: Instant| Instant::now() > until + TOLERATED;
        self.list_state().unchanged().filter(|listed| !listed.fresh_until.is_some_and(late))
    }

    /// The server's list. Waits for one that is on its way, `patience` long from its beginning.
    pub async fn list(self: &Arc<Self>, patience: Duration) -> Result<Listed, Unavailable> {
        self.touch();
        let mut fetched = self.fetched.subscribe();
        let began = match self.begin_list() {
            Ok(listed) => return Ok(listed),
            Err(began) => began,
        };
        let has_spare = self.list_state().spare().is_some();
        let wait = if has_spare { patience.min(REFRESH_WAIT) } else { patience };
        if tokio::time::timeout_at(began + wait, fetched.changed()).await.is_err() {
            return self.list_state().spare().ok_or(Unavailable::Slow);
        }
        let state = self.list_state();
        match &state.failed {
            Some(why) => Err(why.clone()),
            None => state.listed().ok_or(Unavailable::Slow),
        }
    }

    /// The list where it is fresh; else when the fetch under way began.
    pub(in super::super) fn begin_list(self: &Arc<Self>) -> Result<Listed, Instant> {
        let mut state = self.list_state();
        match state.fresh() {
            Some(listed) => Ok(listed),
            None => Err(*state.fetching.get_or_insert_with(|| {
                tokio::spawn(fetch(self.busy()));
                Instant::now()
            })),
        }
    }

    /// All pages of the list of a server that said this first.
    async fn catalogue(
        self: &Arc<Self>,
        hello: &Message,
    ) -> Result<(Catalogue, Option<Instant>), Unavailable> {
        let down = |why: String| Unavailable::Down(why);
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
                let why = answer.error_message().unwrap_or_default();
                return Err(down(format!("it answered `tools/list` with an error: {why}")));
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
            tracing::warn!(target: "upstream", server = self.name, "tool {at} is left out: {problem}");
        }
        let catalogue = offered.finish(over_http, ttl);
        for (tool, problem) in catalogue.dropped() {
            tracing::warn!(target: "upstream", server = self.name, "tool `{tool}` is left out: {problem}");
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
                    Event::Done(ExchangeEnd::Response { message, .. }) => return Ok(message),
                    Event::Done(ExchangeEnd::Failed(Failure::TooLarge { .. })) => {
                        return Err(Unavailable::Down("its answer is too large".into()));
                    }
                    Event::Done(ExchangeEnd::Failed(Failure::Unstartable)) => {
                        return Err(Unavailable::Unstartable("it cannot be started".into()));
                    }
                    Event::Done(ExchangeEnd::Failed(_)) => return Err(gone()),
                    Event::Notify(_) | Event::ServerRequest(_) => {}
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

/// Asks for the list, in a task of its own: whoever waits may stop waiting.
async fn fetch(link: Busy) {
    // Whoever starts the server says why it cannot be.
    let fetched = match link.hello().await {
        Err(why) => Err(why),
        Ok(hello) => link.catalogue(&hello).await.inspect_err(|why| {
            if *why == Unavailable::Slow && link.list_state().spare().is_some() {
                return;
            }
            tracing::warn!(target: "upstream", server = link.name, "{why}");
            if let Some(server) = link.server.upgrade() {
                server.life.failed(&why.to_string());
            }
        }),
    };
    let mut state = link.list_state();
    let before = state.catalogue.as_ref().map(|list| *list.hash());
    match fetched {
        Ok((catalogue, fresh_until)) => {
            state.catalogue = Some(Arc::new(catalogue));
            state.fresh_until = fresh_until;
            state.failed = None;
            link.listed.store(true, Ordering::Release);
        }
        // It is busy, and has not announced a change: what it listed before still holds.
        Err(Unavailable::Slow) if state.spare().is_some() => state.failed = None,
        Err(why) => {
            state.catalogue = None;
            state.failed = Some(why);
        }
    }
    state.relist_at = (link.era() == Era::Legacy).then(|| Instant::now() + LEGACY_AGE);
    state.stale = std::mem::take(&mut state.overtaken);
    state.fetching = None;
    let after = state.catalogue.as_ref().map(|list| *list.hash());
    drop(state);
    if before != after {
        link.changes.bump();
    }
    link.fetched.send_modify(|count| *count += 1);
}

/// Keeps a list that was asked for once up to date.
pub(super) async fn follow(link: Weak<Link>, mut signals: mpsc::UnboundedReceiver<Signal>) {
    while let Some(mut signal) = signals.recv().await {
        while let Ok(next) = signals.try_recv() {
            // It adds nothing to what is known already.
            if next != Signal::Renewed {
                signal = next;
            }
        }
        let Some(link) = link.upgrade() else { return };
        let listed = {
            let mut state = link.list_state();
            // The fetch that began the session gets its list.
            if signal == Signal::Renewed && state.fetching.is_some() {
                continue;
            }
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
