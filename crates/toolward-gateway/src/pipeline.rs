//! The way of a request, step by step.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;
use toolward_policy::Policy;
use toolward_wire::error::{code, result_body};
use toolward_wire::exchange::{Done, Event, Failure};
use toolward_wire::method::PolicySubject;
use toolward_wire::{Era, Id, Kind, Message, MethodRow, Raw, Revision, Sender, meta};

use crate::audit::{Audit, Outcome};
use crate::decide::{Client, Refused, View};
use crate::listen::Outbox;
use crate::present;
use crate::record::{arguments_digest, outcome};
use crate::upstream::{Launch, Log, Unavailable, Upstream};

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
    pub(crate) state: Mutex<State>,
    /// One fetch of the list at a time.
    pub(crate) view: AsyncMutex<Option<Arc<View>>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) upstream: Option<Upstream>,
    /// Calls of the client that are under way.
    pub(crate) running: HashMap<Vec<u8>, Underway>,
}

/// A call, from its arrival to its end.
#[derive(Default)]
pub(crate) struct Underway {
    /// The server's id for it, once it is forwarded.
    pub(crate) minted: Option<u64>,
    pub(crate) cancelled: bool,
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
        // Tasks, and answers to questions that were never passed on, are not built.
        let unbuilt = ["task", "inputResponses", "requestState"];
        if let Some(member) = unbuilt.iter().find(|member| message.param(member).is_some()) {
            let why = format!("`params.{member}` is not available through this gateway");
            let _ = out.send(present::invalid(&id, code::INVALID_PARAMS, &why, None));
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
                if row.subject == PolicySubject::Tool && !self.begin(&id) {
                    let why = "a request with this id is still under way";
                    let _ = out.send(present::invalid(&id, code::INVALID_REQUEST, why, None));
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
        // From here to its end the call is known under its id, so that it can be cancelled.
        let _underway = Ends { gateway: &self, id: &id };
        // The agent's view of the server: what is hidden is not in it.
        let view = match self.view().await {
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
        if self.is_cancelled(&id) {
            return;
        }
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
        let mut opened = upstream.open(permit, row);
        self.forwarded(&id, opened.minted);
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
        // What came of it, in the record first, then to the client.
        let gone = Done::Failed(Failure::Gone);
        let done = match done.unwrap_or(gone) {
            Done::Answer { message, .. } if present::is_question(&message) => {
                Done::Failed(Failure::Asked)
            }
            done => done,
        };
        match done {
            Done::Answer { message, body } => {
                let body = present::answer(&id, era, &message).unwrap_or(body);
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
        let view = match self.view().await {
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

/// Takes a call off the list of those under way.
struct Ends<'a> {
    gateway: &'a Gateway,
    id: &'a Id,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.gateway.state().running.remove(self.id.raw());
    }
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
