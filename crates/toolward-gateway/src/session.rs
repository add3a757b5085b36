//! The session behind a client: how it begins, what the server offers, and what changes.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use toolward_wire::error::{code, request_body};
use toolward_wire::exchange::{Done, Event, cancelled_request};
use toolward_wire::{Era, Id, Kind, Message, Raw, Revision};

use crate::catalogue::{Catalogue, Offered};
use crate::decide::View;
use crate::listen::Outbox;
use crate::pipeline::{Gateway, Next, State, Underway};
use crate::present;
use crate::upstream::{Opening, Unavailable, Upstream};

/// A list longer than this many pages is not believed.
const MOST_PAGES: usize = 1000;
/// A server that is silent for so long does not know what it was asked.
const SILENCE: Duration = Duration::from_secs(5);

impl Gateway {
    /// `initialize` of a legacy client: the server's own words about itself, cut to what passes.
    pub(crate) async fn initialize(
        self: &Arc<Self>,
        message: &Message,
        id: &Id,
        out: &Outbox,
    ) -> Next {
        // A modern client that found no modern server begins anew.
        let begun = self.state().upstream.as_ref().is_some_and(|one| one.era() == Era::Legacy);
        if begun {
            let why = "the session has already begun";
            let _ = out.send(present::invalid(id, code::INVALID_REQUEST, why, None));
            return Next::Nothing;
        }
        let asked = message.param("protocolVersion").and_then(Raw::as_str).unwrap_or_default();
        let revision = Revision::parse(&asked)
            .filter(|revision| revision.era() == Era::Legacy)
            .unwrap_or(Revision::newest(Era::Legacy));
        let info = match message.param("clientInfo").filter(|raw| raw.is_object()) {
            Some(info) => info.to_json(),
            None => json!({"name": "toolward", "version": env!("CARGO_PKG_VERSION")}),
        };
        // Nothing that a server may ask of a client passes yet, so that no capability is declared.
        let params =
            json!({"protocolVersion": revision.as_str(), "capabilities": {}, "clientInfo": info});
        *self.view.lock().await = None;
        self.connect(Opening::Legacy { params: params.to_string().into() }, out);
        let hello = match self.hello().await {
            Ok(Some(hello)) => hello,
            Ok(None) => return Next::Stop("the server said nothing".into()),
            Err(Unavailable(why)) => {
                let _ = out.send(present::unavailable(id, &self.launch.name, &start_help(&why)));
                return Next::Stop(why);
            }
        };
        let tools =
            hello.result_member("capabilities").and_then(|raw| raw.member("tools")).is_some();
        let mut instructions =
            hello.result_member("instructions").filter(|raw| raw.as_str().is_some());
        if let Some(text) = instructions.and_then(Raw::as_str) {
            let hidden = match self.view().await {
                Ok(view) => view.names().1.iter().any(|name| mentions(&text, name)),
                Err(_) => true,
            };
            instructions = instructions.filter(|_| !hidden);
        }
        // Members that are not known could say anything: only those that are pass.
        let parts = [
            ("protocolVersion", hello.result_member("protocolVersion").map(Raw::bytes)),
            ("capabilities", Some(capabilities(tools))),
            ("serverInfo", hello.result_member("serverInfo").map(Raw::bytes)),
            ("instructions", instructions.map(Raw::bytes)),
        ];
        let _ = out.send(present::object(id, &parts));
        Next::Nothing
    }

    /// `server/discover` of a modern client.
    pub(crate) async fn discover(self: Arc<Self>, id: Id, out: Outbox) {
        let answer = self.ask("server/discover", "{}", SILENCE).await;
        match answer {
            Ok(answer) if answer.kind() == Kind::Response => {
                let tools = answer
                    .result_member("capabilities")
                    .and_then(|raw| raw.member("tools"))
                    .is_some();
                let mut edit = answer.edit().id(&id);
                edit = edit
                    .set_result("capabilities", capabilities(tools))
                    .set_result("cacheScope", &b"\"private\""[..])
                    .set_result("ttlMs", &b"5000"[..])
                    .remove_result("instructions");
                let _ = out.send(edit.finish());
            }
            Ok(answer) => drop(out.send(answer.edit().id(&id).finish())),
            Err(Unavailable(why)) => {
                let _ = out.send(present::unavailable(&id, &self.launch.name, &start_help(&why)));
            }
        }
    }

    /// The server's connection: begun by `initialize`, or by the first modern request.
    pub(crate) fn upstream(
        self: &Arc<Self>,
        era: Era,
        out: &Outbox,
    ) -> Result<Upstream, Unavailable> {
        if let Some(upstream) = &self.state().upstream {
            return match upstream.era() == era {
                true => Ok(upstream.clone()),
                false => Err(Unavailable("the connection began in the other era".into())),
            };
        }
        match era {
            Era::Legacy => Err(Unavailable("the session begins with `initialize`".into())),
            Era::Modern => Ok(self.connect(Opening::Modern, out)),
        }
    }

    fn connect(self: &Arc<Self>, opening: Opening, out: &Outbox) -> Upstream {
        let (changed, mut changes) = mpsc::unbounded_channel();
        let era = opening.era();
        let upstream = Upstream::new(self.launch.clone(), opening, self.log.clone(), changed);
        self.state().upstream = Some(upstream.clone());
        let (gateway, out) = (Arc::downgrade(self), out.downgrade());
        // Follows the server's list: whoever sees something else from now on is told.
        tokio::spawn(async move {
            while changes.recv().await.is_some() {
                while changes.try_recv().is_ok() {}
                let (Some(gateway), Some(out)) = (gateway.upgrade(), out.upgrade()) else { return };
                let before = gateway.view.lock().await.take();
                let after = gateway.view().await.ok();
                let same = match (&before, &after) {
                    (Some(before), Some(after)) => before.array() == after.array(),
                    (before, _) => before.is_none(),
                };
                if !same && era == Era::Legacy {
                    let _ = out.send(request_body(None, "notifications/tools/list_changed", None));
                }
            }
        });
        upstream
    }

    /// The agent's view of the server, made once and again when the list changes.
    pub(crate) async fn view(&self) -> Result<Arc<View>, Unavailable> {
        let mut view = self.view.lock().await;
        if let Some(view) = &*view {
            return Ok(view.clone());
        }
        let catalogue = self.catalogue().await?;
        let made = View::new(&self.policy, &self.client, &self.launch.name, &catalogue);
        let made = Arc::new(made);
        *view = Some(made.clone());
        Ok(made)
    }

    /// All pages of the server's list.
    async fn catalogue(&self) -> Result<Catalogue, Unavailable> {
        let mut offered = Offered::default();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = match &cursor {
                None => json!({}),
                Some(cursor) => json!({ "cursor": cursor }),
            };
            let answer = self.ask("tools/list", &params.to_string(), self.timeout).await?;
            if answer.kind() == Kind::Error {
                // The server's words could name what the agent must not see.
                let why = answer.error_message().unwrap_or_default().into_owned();
                (self.log)(&format!("{}: it does not list its tools: {why}", self.launch.name));
                return Err(Unavailable("it does not list its tools".into()));
            }
            let next = offered.add_page(&answer).map_err(|why| Unavailable(why.to_string()))?;
            match next {
                None => break,
                Some(next) if cursor.as_ref() == Some(&next) => {
                    return Err(Unavailable("its list does not end".into()));
                }
                Some(next) => cursor = Some(next),
            }
        }
        for entry in &offered.malformed {
            let line = format!(
                "{}: tool {} is left out: {}",
                self.launch.name, entry.index, entry.problem
            );
            (self.log)(&line);
        }
        Ok(offered.finish())
    }

    /// A request of the gateway's own, to its end.
    async fn ask(
        &self,
        method: &'static str,
        params: &str,
        patience: Duration,
    ) -> Result<Message, Unavailable> {
        let gone = || Unavailable("it ended before it answered".into());
        let upstream = self.state().upstream.clone().ok_or_else(gone)?;
        let params = upstream.with_terms(params);
        let mut opened = upstream.ask(method, params.as_bytes()).ok_or_else(gone)?;
        let answer = tokio::time::timeout(patience, async {
            loop {
                match opened.events.recv().await {
                    Some(Event::Done(Done::Answer { message, .. })) => return Ok(message),
                    Some(Event::Done(Done::Failed(_))) | None => return Err(gone()),
                    Some(_) => {}
                }
            }
        });
        match answer.await {
            Ok(answer) => answer,
            Err(_) => {
                upstream.cancel(opened.minted, true);
                Err(Unavailable(format!("it did not answer `{method}` in time")))
            }
        }
    }

    async fn hello(&self) -> Result<Option<Message>, Unavailable> {
        let upstream = self.state().upstream.clone();
        match upstream {
            Some(upstream) => upstream.hello().await,
            None => Err(Unavailable("there is no connection".into())),
        }
    }

    pub(crate) fn notified(&self, message: &Message) {
        let cancelled = message.method().as_deref() == Some("notifications/cancelled");
        if let Some(id) = cancelled_request(message).filter(|_| cancelled) {
            let mut state = self.state();
            let upstream = state.upstream.clone();
            if let Some(underway) = state.running.get_mut(id.raw()) {
                underway.cancelled = true;
                if let (Some(minted), Some(upstream)) = (underway.minted, upstream) {
                    upstream.cancel(minted, false);
                }
            }
        }
    }

    /// A call has arrived; false where its id is still in use.
    pub(crate) fn begin(&self, id: &Id) -> bool {
        let mut state = self.state();
        let free = !state.running.contains_key(id.raw());
        if free {
            state.running.insert(id.raw().to_vec(), Underway::default());
        }
        free
    }

    pub(crate) fn is_cancelled(&self, id: &Id) -> bool {
        self.state().running.get(id.raw()).is_some_and(|underway| underway.cancelled)
    }

    /// A call is on its way to the server. A cancellation that came while it was sent follows it.
    pub(crate) fn forwarded(&self, id: &Id, minted: u64) {
        let mut state = self.state();
        let upstream = state.upstream.clone();
        if let Some(underway) = state.running.get_mut(id.raw()) {
            underway.minted = Some(minted);
            if let Some(upstream) = upstream.filter(|_| underway.cancelled) {
                upstream.cancel(minted, false);
            }
        }
    }

    /// Lets go of the server, and waits until its process has ended.
    pub async fn close(&self) {
        let upstream = self.state().upstream.take();
        let ended = upstream.as_ref().map(Upstream::ended);
        drop(upstream);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a text names a tool, for a reader who looks past case, spaces and hidden characters.
fn mentions(text: &str, name: &str) -> bool {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    text.contains(name) || letters(text).contains(&letters(name))
}

fn capabilities(tools: bool) -> &'static [u8] {
    if tools { b"{\"tools\":{\"listChanged\":true}}" } else { b"{}" }
}

fn start_help(why: &str) -> String {
    format!("{why}. Start the server's command by hand to see what it says")
}
