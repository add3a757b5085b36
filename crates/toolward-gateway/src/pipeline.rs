//! The way of a request, step by step.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use toolward_policy::Policy;
use toolward_wire::error::{code, request_body, result_body};
use toolward_wire::exchange::{Done, Event, cancelled_request};
use toolward_wire::method::PolicySubject;
use toolward_wire::{Era, Id, Kind, Message, MethodRow, Raw, Revision, Sender, meta};

use crate::audit::{Audit, Outcome, digest};
use crate::catalogue::{Catalogue, Offered};
use crate::decide::{Client, Permit, Refused, View};
use crate::listen::Outbox;
use crate::present;
use crate::upstream::{Launch, Log, Opening, Unavailable, Upstream};

/// A list longer than this many pages is not believed.
const MOST_PAGES: usize = 1000;
/// A server that is silent for so long does not know what it was asked.
const SILENCE: Duration = Duration::from_secs(5);

/// One client in front of one server.
pub struct Gateway {
    pub policy: Policy,
    /// The hash of the policy, for the record.
    pub version: String,
    pub client: Client,
    pub launch: Launch,
    pub audit: Arc<Audit>,
    pub log: Log,
    /// How long a call may take.
    pub timeout: Duration,
    state: Mutex<State>,
    /// One fetch of the list at a time.
    view: AsyncMutex<Option<Arc<View>>>,
}

#[derive(Default)]
struct State {
    upstream: Option<Upstream>,
    /// Requests of the client that are under way, and the server's ids for them.
    running: HashMap<Vec<u8>, u64>,
}

/// What follows from a message.
pub enum Next {
    Nothing,
    /// A request to work on while further messages are read.
    Work(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// The server cannot be started, and the client has been told.
    Stop(String),
}

impl Gateway {
    pub fn new(
        policy: Policy,
        version: String,
        client: Client,
        launch: Launch,
        audit: Arc<Audit>,
        log: Log,
    ) -> Gateway {
        Gateway {
            policy,
            version,
            client,
            launch,
            audit,
            log,
            timeout: Duration::from_secs(30),
            state: Mutex::default(),
            view: AsyncMutex::default(),
        }
    }

    /// Takes in one message of the client.
    pub async fn receive(self: Arc<Self>, message: Message, out: &Outbox) -> Next {
        // A modern request says so itself; everything else is of the era with sessions.
        let era = match message.meta(meta::PROTOCOL_VERSION) {
            Some(_) => Era::Modern,
            None => Era::Legacy,
        };
        // Nothing that is not in the table goes any further.
        let row = match message.row(Sender::Client, era) {
            Ok(row) => row,
            Err(malformed) => {
                if message.kind() == Kind::Request {
                    let _ = out.send(present::malformed(&malformed));
                }
                return Next::Nothing;
            }
        };
        let Some(id) = message.id().cloned() else {
            self.notified(&message);
            return Next::Nothing;
        };
        if era == Era::Modern
            && let Err(answer) = modern_terms(&message, &id)
        {
            let _ = out.send(answer);
            return Next::Nothing;
        }
        let out = out.clone();
        match (row.name, row.subject) {
            ("initialize", _) => return self.initialize(&message, &id, &out).await,
            ("ping", _) => {
                let _ = out.send(result_body(&id, b"{}"));
            }
            ("server/discover", _) | (_, PolicySubject::ToolList | PolicySubject::Tool) => {
                if let Err(Unavailable(why)) = self.upstream(era, &out) {
                    let _ = out.send(present::invalid(&id, code::INVALID_REQUEST, &why, None));
                    return Next::Nothing;
                }
                return Next::Work(match row.subject {
                    PolicySubject::Tool => Box::pin(self.call(message, id, era, row, out)),
                    PolicySubject::ToolList => Box::pin(self.list(message, id, era, out)),
                    _ => Box::pin(self.discover(id, out)),
                });
            }
            _ => {
                let message = format!("`{}` is not available through this gateway", row.name);
                let _ = out.send(present::invalid(&id, code::METHOD_NOT_FOUND, &message, None));
            }
        }
        Next::Nothing
    }

    /// A call: seen? allowed? recorded? Then it is forwarded, and what comes back is passed on.
    async fn call(
        self: Arc<Self>,
        message: Message,
        id: Id,
        era: Era,
        row: &'static MethodRow,
        out: Outbox,
    ) {
        // The agent's view of the server: what is hidden is not in it.
        let view = match self.view(era).await {
            Ok(view) => view,
            Err(Unavailable(why)) => {
                let _ = out.send(present::unavailable(&id, &self.launch.name, &why));
                return;
            }
        };
        let name = match message.name(row.name_at) {
            Ok(Some(name)) => name.into_owned(),
            // The row says that a call has a name, and was asked before.
            _ => return,
        };
        if self.policy.reads_arguments()
            && let Some((first, second)) = message.arguments().and_then(|given| given.folded_twin())
        {
            let why = format!("the arguments `{first}` and `{second}` differ only in case");
            let _ = out.send(present::invalid(&id, code::INVALID_PARAMS, &why, None));
            return;
        }
        // The decision, and the permit that only it can make.
        let permit = match view.decide(&self.policy, &self.client, &name, message) {
            Ok(permit) => permit,
            Err(refused) => return self.refuse(&view, &id, era, &name, &refused, &out),
        };
        // No effect without a record.
        let intent = match self.audit.intend(self.audit.id(), self.intent(&permit, &id)) {
            Ok(intent) => intent,
            Err(error) => {
                (self.log)(&error.to_string());
                let _ = out.send(present::internal(&id, "not_recorded", &error.to_string(), true));
                return;
            }
        };
        let Ok(upstream) = self.upstream(era, &out) else { return };
        let mut opened = {
            // Under one lock, so that a cancellation finds the call or comes before it.
            let mut state = self.state();
            if state.running.contains_key(id.raw()) {
                let why = "a request with this id is still under way";
                let _ = out.send(present::invalid(&id, code::INVALID_REQUEST, why, None));
                return intent.end(Outcome { name: "not-sent", error_code: None, bytes_out: 0 });
            }
            let opened = upstream.open(permit, row);
            state.running.insert(id.raw().to_vec(), opened.minted);
            opened
        };
        let deadline = tokio::time::sleep(self.timeout);
        tokio::pin!(deadline);
        let mut late = false;
        let done = loop {
            tokio::select! {
                event = opened.events.recv() => match event {
                    Some(Event::Notify(body)) => drop(out.send(body)),
                    Some(Event::Done(done)) => break Some(done),
                    // Questions are refused, so that none comes.
                    Some(Event::Ask(_)) => {}
                    None => break None,
                },
                () = &mut deadline, if !late => {
                    late = true;
                    upstream.cancel(opened.minted, true);
                }
            }
        };
        self.state().running.remove(id.raw());
        // What came of it, in the record first, then to the client.
        let gone = Done::Failed(toolward_wire::exchange::Failure::Gone);
        match done.unwrap_or(gone) {
            Done::Answer { message, body } => {
                let failed = message.kind() == Kind::Error;
                let is_error =
                    message.result_member("isError").and_then(Raw::as_bool) == Some(true);
                intent.end(Outcome {
                    name: if failed {
                        "error"
                    } else if is_error {
                        "tool-error"
                    } else {
                        "ok"
                    },
                    error_code: message.error_code(),
                    bytes_out: body.len(),
                });
                let _ = out.send(body);
            }
            Done::Failed(failure) => {
                let answer = present::failed(&id, &self.launch.name, failure);
                intent.end(Outcome {
                    name: outcome(failure),
                    error_code: answer.as_ref().map(|_| code::INTERNAL_ERROR.into()),
                    bytes_out: answer.as_ref().map_or(0, |body| body.len()),
                });
                if let Some(answer) = answer {
                    let _ = out.send(answer);
                }
            }
        }
    }

    /// A refusal: recorded, then told.
    fn refuse(&self, view: &View, id: &Id, era: Era, name: &str, refused: &Refused, out: &Outbox) {
        let decision = self.audit.id();
        let mut facts = self.facts(id);
        facts.insert("server".into(), view.server().into());
        facts.insert("exposed_name".into(), name.into());
        facts.insert("action".into(), json!(refused.action));
        facts.insert("verdict".into(), "deny".into());
        facts.insert("listed".into(), refused.listed.into());
        facts.insert("arguments".into(), arguments_digest(&refused.message));
        if let Some(decided) = &refused.decided {
            facts.extend(self.decided(decided));
        }
        if let Err(error) = self.audit.record(&decision, "refusal", facts) {
            (self.log)(&error.to_string());
            let _ = out.send(present::internal(id, "not_recorded", &error.to_string(), true));
            return;
        }
        let _ = out.send(present::refused(id, era, view, name, refused, &decision));
    }

    /// A listing: what the agent may see, and nothing else.
    async fn list(self: Arc<Self>, message: Message, id: Id, era: Era, out: Outbox) {
        if message.param("cursor").is_some() {
            // One page holds everything, so that no cursor was ever given out.
            let why = "the cursor is not known";
            let _ = out.send(present::invalid(&id, code::INVALID_PARAMS, why, None));
            return;
        }
        let view = match self.view(era).await {
            Ok(view) => view,
            Err(Unavailable(why)) => {
                let _ = out.send(present::unavailable(&id, &self.launch.name, &why));
                return;
            }
        };
        let (shown, removed) = view.names();
        let mut facts = self.facts(&id);
        facts.insert("server".into(), view.server().into());
        facts.insert("offered".into(), (shown.len() + removed.len()).into());
        facts.insert("shown".into(), json!(shown));
        facts.insert("removed".into(), json!(removed));
        if let Err(error) = self.audit.record(&self.audit.id(), "list", facts) {
            (self.log)(&error.to_string());
            let _ = out.send(present::internal(&id, "not_recorded", &error.to_string(), true));
            return;
        }
        let _ = out.send(present::tools(&id, era, &view));
    }
}

/// Connections.
impl Gateway {
    /// `initialize` of a legacy client: the server's own words about itself, cut to what passes.
    async fn initialize(self: &Arc<Self>, message: &Message, id: &Id, out: &Outbox) -> Next {
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
        let mut edit = hello.edit().id(id);
        let tools =
            hello.result_member("capabilities").and_then(|raw| raw.member("tools")).is_some();
        edit = edit.set_result("capabilities", capabilities(tools));
        if let Some(text) = hello.result_member("instructions").and_then(Raw::as_str) {
            let hidden = match self.view(Era::Legacy).await {
                Ok(view) => view.names().1.iter().any(|name| text.contains(name.as_str())),
                Err(_) => true,
            };
            if hidden {
                edit = edit.remove_result("instructions");
            }
        }
        let _ = out.send(edit.finish());
        Next::Nothing
    }

    /// `server/discover` of a modern client.
    async fn discover(self: Arc<Self>, id: Id, out: Outbox) {
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
    fn upstream(self: &Arc<Self>, era: Era, out: &Outbox) -> Result<Upstream, Unavailable> {
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
                let after = gateway.view(era).await.ok();
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
    async fn view(&self, era: Era) -> Result<Arc<View>, Unavailable> {
        let mut view = self.view.lock().await;
        if let Some(view) = &*view {
            return Ok(view.clone());
        }
        let catalogue = self.catalogue(era).await?;
        let made = View::new(&self.policy, &self.client, &self.launch.name, &catalogue);
        let made = Arc::new(made);
        *view = Some(made.clone());
        Ok(made)
    }

    /// All pages of the server's list.
    async fn catalogue(&self, _era: Era) -> Result<Catalogue, Unavailable> {
        let mut offered = Offered::default();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = match &cursor {
                None => json!({}),
                Some(cursor) => json!({ "cursor": cursor }),
            };
            let answer = self.ask("tools/list", &params.to_string(), self.timeout).await?;
            if answer.kind() == Kind::Error {
                let why = answer.error_message().unwrap_or_default().into_owned();
                return Err(Unavailable(format!("it does not list its tools: {why}")));
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

    fn notified(&self, message: &Message) {
        let cancelled = message.method().as_deref() == Some("notifications/cancelled");
        if let Some(id) = cancelled_request(message).filter(|_| cancelled) {
            let state = self.state();
            if let (Some(minted), Some(upstream)) = (state.running.get(id.raw()), &state.upstream) {
                upstream.cancel(*minted, false);
            }
        }
    }

    /// Lets go of the server; its process ends.
    pub fn close(&self) {
        self.state().upstream = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the record holds.
impl Gateway {
    fn facts(&self, id: &Id) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("agent".into(), json!(self.client.agent));
        facts.insert("identity".into(), self.client.identity.into());
        facts.insert("request_id".into(), String::from_utf8_lossy(id.raw()).into());
        facts.insert("policy".into(), self.version.as_str().into());
        facts
    }

    fn intent(&self, permit: &Permit, id: &Id) -> Map<String, Value> {
        let mut facts = self.facts(id);
        facts.insert("server".into(), self.launch.name.as_str().into());
        facts.insert("exposed_name".into(), permit.exposed().into());
        facts.insert("action".into(), json!(permit.action()));
        facts.extend(self.decided(permit.decided()));
        facts.insert("arguments".into(), arguments_digest(permit.message()));
        facts.insert("bytes_in".into(), permit.message().body().len().into());
        facts
    }

    fn decided(&self, decided: &crate::decide::Decided) -> Map<String, Value> {
        let decision = &decided.decision;
        let facts = json!({
            "tool": decided.original,
            "verdict": decision.verdict.as_str(),
            "layer": decision.layer,
            "step": decision.step.as_str(),
            "rule": self.policy.rule(decision).map(|rule| rule.path),
            "reason": decided.reason,
        });
        facts.as_object().cloned().unwrap_or_default()
    }
}

fn arguments_digest(message: &Message) -> Value {
    json!(message.arguments().map(|arguments| digest(arguments.raw().bytes())))
}

fn outcome(failure: toolward_wire::exchange::Failure) -> &'static str {
    use toolward_wire::exchange::Failure;
    match failure {
        Failure::Cancelled => "cancelled",
        Failure::Gone => "server-gone",
        Failure::TimedOut => "timed-out",
        Failure::BadAnswer => "bad-answer",
        Failure::Asked => "question-refused",
    }
}

fn capabilities(tools: bool) -> &'static [u8] {
    if tools { b"{\"tools\":{\"listChanged\":true}}" } else { b"{}" }
}

fn start_help(why: &str) -> String {
    format!("{why}. Start the server's command by hand to see what it says")
}

/// Checks what a modern request must say of itself.
fn modern_terms(message: &Message, id: &Id) -> Result<(), bytes::Bytes> {
    let terms = message.terms().map_err(|malformed| present::malformed(&malformed))?;
    match Revision::parse(&terms.version) {
        Some(revision) if revision.era() == Era::Modern => Ok(()),
        _ => {
            let data = json!({
                "supported": [Revision::newest(Era::Modern).as_str()],
                "requested": terms.version,
            });
            let message = "unsupported protocol version";
            Err(present::invalid(id, code::UNSUPPORTED_VERSION, message, Some(data)))
        }
    }
}
