//! The way of a request, step by step.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use toolward_wire::error::{Case, code, result_body};
use toolward_wire::exchange::{Done, Event, Failure};
use toolward_wire::method::PolicySubject;
use toolward_wire::{Id, Kind, Message, MethodRow};

use crate::audit::{Audit, Intent, Outcome};
use crate::builtin::{self, execute::Inner};
use crate::client::{Client, Scope};
use crate::counts::calls::UnderWay;
use crate::decide::{Permit, Refused, View};
use crate::guard::{GuardedCall, Stopped, Unanswered};
use crate::names::Naming;
use crate::notes::Notes;
use crate::present::{self, Answer, Marks};
use crate::record::{self, outcome};
use crate::session::Cancel;
use crate::sight::{Current, Snapshot};
use crate::upstream::{Log, Opened, Server, Servers, Unavailable};

/// Everything that stands between clients and servers.
pub struct Gateway {
    /// What is in force.
    pub current: Current,
    pub servers: Arc<Servers>,
    pub naming: Naming,
    pub audit: Arc<Audit>,
    pub log: Log,
    /// How long a listing waits for a server that is starting.
    pub list_timeout: Duration,
}

/// A client's request, as the listener took it in.
pub struct Request {
    pub client: Arc<Client>,
    pub message: Message,
    pub id: Id,
    pub row: &'static MethodRow,
    pub cancel: Arc<Cancel>,
    /// `Mcp-Param-*` headers in lower case; `None` where there are no headers.
    pub headers: Option<Vec<(String, String)>>,
}

/// The call of the gateway's own tool by which another call is made.
struct Through<'a> {
    permit: &'a Permit,
    /// How long it may take, where the client says so.
    timeout: Option<Duration>,
}

/// A call that is recorded, and on its way to a server.
struct Forwarded<'a> {
    intent: Intent,
    under_way: UnderWay<'a>,
    server: &'a Server,
}

impl Forwarded<'_> {
    /// It has ended: in the record, and in numbers.
    fn end(self, outcome: Outcome) {
        let (at, took) = self.intent.end(outcome);
        // What a client gives up is no fault of the server's.
        let failed = !matches!(outcome.name, "ok" | "cancelled");
        self.under_way.end(at, took, failed);
        if matches!(outcome.name, "server-gone" | "timed-out" | "bad-answer" | "too-large") {
            self.server.life.failed(&format!("a call ended with `{}`", outcome.name));
        }
    }
}

impl Gateway {
    /// Answers a request. `None`: the client gave up, and hears nothing more.
    pub async fn answer(&self, request: Request, notes: &Notes) -> Option<Answer> {
        let (id, era) = (&request.id, request.client.era());
        match (request.row.name, request.row.subject) {
            ("initialize", _) => Some(self.initialize(&request).await),
            ("server/discover", _) => Some(self.discover(&request).await),
            ("ping", _) => Some(result_body(id, b"{}").into()),
            (_, PolicySubject::ToolList) => Some(self.list(&request).await),
            (_, PolicySubject::Tool) => {
                let snapshot = self.current.get();
                self.call(&snapshot, request, None, notes).await
            }
            (method, _) => Some(present::not_available(id, era, method)),
        }
    }

    /// A listing: what the agent may see, and nothing else.
    async fn list(&self, request: &Request) -> Answer {
        let Request { client, message, id, .. } = request;
        let snapshot = self.current.get();
        if message.param("cursor").is_some() {
            // One page holds everything, so that no cursor was ever given out.
            return present::bad_params(id, client.era(), "the cursor is not known");
        }
        if let Err(stopped) = snapshot.guards.list(client.caller.agent.as_deref()).await {
            let decision = self.audit.id();
            let facts = record::list_stopped(&snapshot, client, id, message, &stopped);
            return match self.audit.record(&decision, "refusal", &facts).await {
                Ok(()) => present::list_stopped(id, &stopped, &decision),
                Err(error) => present::not_recorded(id, &error),
            };
        }
        let view = self.view(&snapshot, client, None).await;
        if let (Scope::One(_), Some((server, why))) = (client.scope, view.unavailable()) {
            return present::unavailable(id, server, &why.public());
        }
        // Recorded, then told.
        let facts = record::listing(&snapshot, client, id, message, &view);
        if let Err(error) = self.audit.listing(&view, facts).await {
            return present::not_recorded(id, &error);
        }
        client.held().told = Some(view.clone());
        present::tools(id, client.era(), &view, client.scope == Scope::All)
    }

    /// A call: seen? allowed? recorded? Then it is forwarded, and what comes back is passed on.
    async fn call(
        &self,
        snapshot: &Snapshot,
        request: Request,
        through: Option<Through<'_>>,
        notes: &Notes,
    ) -> Option<Answer> {
        let Request { client, message, id, row, cancel, headers } = request;
        let era = client.era();
        // The row says that a call has a name, and was asked before.
        let name = message.name(row.name_at).ok()??.into_owned();
        if (snapshot.policy.reads_arguments() || snapshot.guards.read_arguments())
            && let Some((first, second)) = message.arguments().and_then(|given| given.folded_twin())
        {
            let why = format!("the arguments `{first}` and `{second}` differ only in case");
            return Some(present::bad_params(&id, era, &why));
        }

        // The agent's view of its servers: what is hidden is not in it.
        let view = tokio::select! {
            view = self.view(snapshot, &client, Some(&name)) => view,
            () = cancel.cancelled() => return None,
        };
        if let Some((server, why)) = self.undecidable(&client, &view, &name) {
            let about = (server, why);
            let facts = record::unavailable(snapshot, &client, &id, &message, &name, about);
            return Some(match self.audit.record(&self.audit.id(), "unavailable", &facts).await {
                Ok(()) => present::unavailable(&id, server, &why.public()),
                Err(error) => present::not_recorded(&id, &error),
            });
        }
        if let (Some(sent), Some(marks)) = (&headers, view.headers(&name)) {
            let sent = |wanted: &str| {
                sent.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
            };
            if let Err(mismatch) = marks.check(message.arguments(), sent) {
                let (case, code) = (Case::HeaderMismatch, code::HEADER_MISMATCH);
                return Some(present::wrong(case, era, &id, code, &mismatch.to_string(), None));
            }
        }

        // The decision, and the permit that only it can make.
        let permit = match view.decide(snapshot, &client.caller, &name, message) {
            Ok(permit) => {
                snapshot.hits.count(permit.decided().words.hit);
                permit
            }
            Err(mut refused) => {
                match &refused.decided {
                    Some(decided) => snapshot.hits.count(decided.words.hit),
                    None => {
                        let decided = self.unseen(snapshot, &client, &name, &refused);
                        snapshot.hits.count_unseen(decided.words.hit);
                        refused.decided = Some(decided);
                        let agent = client.caller.agent.as_ref();
                        snapshot.unseen.count(agent, client.scope, &name);
                    }
                }
                let answer = self.refuse(snapshot, &client, &view, &id, &name, &refused).await;
                return self.delayed(snapshot, &client, &cancel, answer).await;
            }
        };
        if cancel.is_cancelled() {
            return None;
        }

        // A call inside a call comes the same way, from its beginning.
        if let Some(Inner { message, timeout }) = builtin::execute::inner(&permit) {
            let (client, headers) = (client.discovering(), None);
            let request = Request { client, message, id, row, cancel, headers };
            let through = Through { permit: &permit, timeout };
            return self.call_through(snapshot, request, through, notes).await;
        }

        // Limits and hooks. What a call took of its limits goes back unless it is made.
        let to = &permit.server().clone();
        let outer = through.as_ref().map(|through| through.permit);
        let guarded =
            GuardedCall { client: &client, id: &id, permit: &permit, server: to, through: outer };
        let (audit, call) = (&self.audit, guarded);
        let unanswered = Unanswered { audit, snapshot, call, answered: false };
        let passed = tokio::select! {
            biased;
            passed = snapshot.guards.pass(&guarded) => passed,
            () = cancel.cancelled() => return None,
        };
        unanswered.answered();
        let passed = match passed {
            Ok(passed) => passed,
            Err(stopped) => {
                return self.stop(snapshot, &view, &guarded, &stopped, &cancel).await;
            }
        };

        // No effect without a record.
        let mut facts = record::intent(snapshot, &client, &id, &permit, &self.audit.arguments);
        passed.facts(&mut facts);
        let intent = match self.audit.intend(self.audit.id(), &facts).await {
            Ok(intent) => intent,
            Err(error) => return Some(present::not_recorded(&id, &error)),
        };
        passed.commit();
        let call = Forwarded { intent, under_way: to.calls.begin(), server: to };

        // The gateway's own tools are answered here; everything else, by a server.
        if to.is_own() {
            let about = (&*view, &permit);
            let (answer, name) = tokio::select! {
                answer = Box::pin(self.own_answer(snapshot, &client, &id, about)) => match answer {
                    Ok((answer, name)) => (Some(answer), name),
                    Err(error) => (Some(present::not_recorded(&id, &error)), "error"),
                },
                () = cancel.cancelled() => (None, outcome(Failure::Cancelled)),
            };
            let bytes_out = answer.as_ref().map_or(0, |answer| answer.body.len());
            call.end(Outcome { name, error_code: None, bytes_out });
            return answer;
        }
        let server = permit.decided().server.clone();
        let original = &permit.decided().original;
        let given = through.and_then(|through| through.timeout);
        let patience = to.timeout(original).min(given.unwrap_or(Duration::MAX));
        let most = to.result_bytes(original);
        let (done, spoken) = match self.servers.open(permit, &client, row).await {
            Ok(mut opened) => (follow(&mut opened, notes, &cancel, patience).await, opened.era),
            // Nothing was forwarded.
            Err(why) => {
                let answer = present::unavailable(&id, &server, &why.public());
                call.end(Outcome {
                    name: outcome(Failure::Gone),
                    error_code: Some(code::INTERNAL_ERROR.into()),
                    bytes_out: answer.body.len(),
                });
                return Some(answer);
            }
        };

        // What came of it, in the record first, then to the client.
        let fail = |call: Forwarded<'_>, failure: Failure| {
            let answer = present::failed(&id, &server, failure);
            call.end(Outcome {
                name: outcome(failure),
                error_code: answer.as_ref().map(|_| code::INTERNAL_ERROR.into()),
                bytes_out: answer.as_ref().map_or(0, |answer| answer.body.len()),
            });
            answer
        };
        match done {
            Done::Answer { message, body } => {
                let marks = Marks::of(&message);
                if marks.question {
                    return fail(call, Failure::Asked);
                }
                let body = present::answer(&id, era, spoken, &message, marks).unwrap_or(body);
                let name = match (message.kind(), marks.is_error) {
                    (Kind::Error, _) => "error",
                    (_, true) => "tool-error",
                    _ => "ok",
                };
                let (error_code, bytes_out) = (message.error_code(), body.len());
                call.end(Outcome { name, error_code, bytes_out });
                Some(body.into())
            }
            Done::Failed(failure @ Failure::TooLarge { size }) => {
                let answer = present::too_large(&id, era, &name, most, size);
                let bytes_out = answer.body.len();
                call.end(Outcome { name: outcome(failure), error_code: None, bytes_out });
                Some(answer)
            }
            Done::Failed(failure) => fail(call, failure),
        }
    }

    /// A call inside a call. It has none inside: the gateway's own tools are not called through it.
    fn call_through<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        request: Request,
        through: Through<'a>,
        notes: &'a Notes,
    ) -> Pin<Box<dyn Future<Output = Option<Answer>> + Send + 'a>> {
        Box::pin(self.call(snapshot, request, Some(through), notes))
    }

    /// A refusal: recorded, then told.
    async fn refuse(
        &self,
        snapshot: &Snapshot,
        client: &Client,
        view: &View,
        id: &Id,
        name: &str,
        refused: &Refused,
    ) -> Answer {
        let decision = self.audit.id();
        let facts = record::refusal(snapshot, client, id, name, refused, &self.audit.arguments);
        if let Err(error) = self.audit.record(&decision, "refusal", &facts).await {
            return present::not_recorded(id, &error);
        }
        present::refused(id, client.era(), view, name, refused, &decision)
    }

    /// A refusal of a limit or a hook: recorded, then told.
    async fn stop(
        &self,
        snapshot: &Snapshot,
        view: &View,
        call: &GuardedCall<'_>,
        stopped: &Stopped,
        cancel: &Cancel,
    ) -> Option<Answer> {
        let (client, id, permit) = (call.client, call.id, call.permit);
        let decision = self.audit.id();
        let facts = record::stopped(snapshot, client, id, permit, stopped, &self.audit.arguments);
        let answer = match self.audit.record(&decision, "refusal", &facts).await {
            Ok(()) => present::stopped(id, client.era(), view, permit, stopped, &decision),
            Err(error) => present::not_recorded(id, &error),
        };
        self.delayed(snapshot, client, cancel, answer).await
    }

    /// The answer to a refused call, after the time that too many of them have to wait.
    async fn delayed(
        &self,
        snapshot: &Snapshot,
        client: &Client,
        cancel: &Cancel,
        answer: Answer,
    ) -> Option<Answer> {
        tokio::select! {
            () = snapshot.guards.delay(client.caller.agent.as_deref()) => Some(answer),
            () = cancel.cancelled() => None,
        }
    }

    /// A server whose list is not known and that could have the tool: whether a call is allowed
    /// cannot be said, for this name or any other.
    fn undecidable<'v>(
        &self,
        client: &Client,
        view: &'v View,
        name: &str,
    ) -> Option<(&'v str, &'v Unavailable)> {
        if view.has(name) {
            return None;
        }
        let fits = |server: &str| match client.scope {
            Scope::One(_) => true,
            Scope::All => self.naming.could_be(name, server),
            Scope::Discovery => Naming::Address.could_be(name, server),
        };
        let unknown = |of: &'v crate::decide::OfServer| Some((&*of.name, of.unavailable.as_ref()?));
        view.servers().iter().filter_map(unknown).find(|(server, _)| fits(server))
    }
}

/// Passes on what a server says of a call, until it ends, takes too long, or nobody waits any more.
async fn follow(opened: &mut Opened, notes: &Notes, cancel: &Cancel, patience: Duration) -> Done {
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    let (mut late, mut given_up) = (false, false);
    loop {
        tokio::select! {
            event = opened.next() => match event {
                Event::Notify(body) => notes.send(body).await,
                Event::Done(done) => return done,
                // Questions are refused, so that none comes.
                Event::Ask(_) => {}
            },
            () = &mut deadline, if !late => {
                late = true;
                opened.give_up(true);
            }
            () = cancel.cancelled(), if !given_up => {
                given_up = true;
                opened.give_up(false);
            }
        }
    }
}
