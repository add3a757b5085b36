//! The way of a request, step by step.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolward_wire::exchange::{Event, ExchangeEnd, Failure};
use toolward_wire::jsonrpc::result_body;
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::method::PolicySubject;
use toolward_wire::{Id, Kind, Message, MethodRow};

use crate::active::{Current, Snapshot};
use crate::audit::{Audit, Intent, Outcome};
use crate::budget::{Budget, RESULT_ROOM, Reservation};
use crate::client::{Client, Scope};
use crate::guard::{GuardedCall, OnDisconnect, Stopped};
use crate::in_flight::Cancel;
use crate::log::Log;
use crate::methods::events::{self, outcome};
use crate::methods::meta_tools;
use crate::methods::meta_tools::execute::Inner;
use crate::metrics::calls::UnderWay;
use crate::notifications::Notes;
use crate::responses::{self, Answer, Marks};
use crate::upstream::{GiveUp, Opened, Server, Servers, Unavailable};
use crate::view::names::Naming;
use crate::view::{Permit, Refused, View};

/// How often a call that waits for a busy server looks whether it is its turn.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Everything that stands between clients and servers.
pub struct Gateway {
    /// What is in force.
    pub current: Current,
    pub servers: Arc<Servers>,
    pub naming: Naming,
    pub audit: Arc<Audit>,
    /// What may be held for clients.
    pub budget: Budget,
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
    /// The memory of the message, reserved until the request is answered.
    pub room: Reservation,
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
        if matches!(
            outcome.name,
            "server-unavailable" | "server-gone" | "timed-out" | "bad-answer" | "too-large"
        ) {
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
            (method, _) => Some(responses::not_available(id, era, method)),
        }
    }

    /// A listing: what the agent may see, and nothing else.
    async fn list(&self, request: &Request) -> Answer {
        let Request { client, message, id, .. } = request;
        let snapshot = self.current.get();
        if message.param("cursor").is_some() {
            // One page holds everything, so that no cursor was ever given out.
            return responses::bad_params(id, client.era(), "the cursor is not known");
        }
        if let Err(stopped) = snapshot.guards.list(client.caller.agent.as_deref()).await {
            let decision = self.audit.ticket(client.caller.agent.as_ref());
            let facts = events::list_stopped(&snapshot, client, id, message, &stopped);
            return match self.audit.record_ticket(&decision, "refusal", "", &facts).await {
                Ok(()) => responses::list_stopped(id, &stopped, &decision.id),
                Err(error) => responses::not_recorded(id, &error),
            };
        }
        let view = self.view_in_line(&snapshot, client, None).await;
        if let (Scope::One(_), Some((server, why))) = (client.scope, view.unavailable()) {
            return responses::unavailable(id, server, &why.public());
        }
        // Recorded, then told.
        let facts = events::listing(&snapshot, client, id, message, &view);
        if let Err(error) = self
            .audit
            .listing(client.caller.agent.as_ref(), view.id(), || events::names(&view), facts)
            .await
        {
            return responses::not_recorded(id, &error);
        }
        client.held().told = Some(view.clone());
        responses::tools(id, client.era(), &view, client.scope == Scope::All)
    }

    /// A call: seen? allowed? recorded? Then it is forwarded, and what comes back is passed on.
    async fn call(
        &self,
        snapshot: &Snapshot,
        request: Request,
        through: Option<Through<'_>>,
        notes: &Notes,
    ) -> Option<Answer> {
        let Request { client, message, id, row, cancel, headers, room } = request;
        let era = client.era();
        // The row says that a call has a name, and was asked before.
        let name = message.name(row.name_at).ok()??.into_owned();
        if (snapshot.policy.reads_arguments() || snapshot.guards.read_arguments())
            && let Some((first, second)) =
                message.arguments().and_then(|given| given.case_collision())
        {
            let why = format!("the arguments `{first}` and `{second}` differ only in case");
            return Some(responses::bad_params(&id, era, &why));
        }

        // The agent's view of its servers: what is hidden is not in it.
        let view = tokio::select! {
            view = self.view_in_line(snapshot, &client, Some(&name)) => view,
            () = cancel.cancelled() => return None,
        };
        if let Some((server, why)) = self.undecidable(&client, &view, &name) {
            let about = (server, why);
            let facts = events::unavailable(snapshot, &client, &id, &message, &name, about);
            let ticket = self.audit.ticket(client.caller.agent.as_ref());
            let recorded = self.audit.record_ticket(&ticket, "unavailable", &name, &facts).await;
            return Some(match recorded {
                Ok(()) => responses::unavailable(&id, server, &why.public()),
                Err(error) => responses::not_recorded(&id, &error),
            });
        }
        if let (Some(sent), Some(marks)) = (&headers, view.headers(&name)) {
            let sent = |wanted: &str| {
                sent.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
            };
            if let Err(mismatch) = marks.check(message.arguments(), sent) {
                let (case, code) = (StatusCase::HeaderMismatch, code::HEADER_MISMATCH);
                return Some(responses::wrong(case, era, &id, code, &mismatch.to_string(), None));
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
        if let Some(Inner { message, timeout }) = meta_tools::execute::inner(&permit) {
            let (client, headers) = (client.discovering(), None);
            let request = Request { client, message, id, row, cancel, headers, room };
            let through = Through { permit: &permit, timeout };
            return self.call_through(snapshot, request, through, notes).await;
        }

        // Limits and hooks. What a call took of its limits goes back unless it is made.
        let to = &permit.server().clone();
        let outer = through.as_ref().map(|through| through.permit);
        let guarded =
            GuardedCall { client: &client, id: &id, permit: &permit, server: to, through: outer };
        let unanswered = OnDisconnect::new(|| {
            let facts = events::left(snapshot, &client, &id, &permit, &self.audit.arguments);
            let agent = client.caller.agent.as_ref();
            self.audit.note_ticket(agent, "refusal", permit.exposed(), &facts);
        });
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

        // Nothing is forwarded without room for its result.
        let Some(result_room) = room.account().try_reserve(RESULT_ROOM).map(Arc::new) else {
            return Some(responses::overloaded(&id));
        };

        // No effect without a record.
        let mut facts = events::intent(snapshot, &client, &id, &permit, &self.audit.arguments);
        passed.facts(&mut facts);
        let intent = match self.audit.intend(self.audit.id(), &facts).await {
            Ok(intent) => intent,
            Err(error) => return Some(responses::not_recorded(&id, &error)),
        };
        passed.commit();
        let call = Forwarded { intent, under_way: to.calls.begin(), server: to };

        // The gateway's own tools are answered here; everything else, by a server.
        if to.is_own() {
            let about = (&*view, &permit);
            let (answer, name) = tokio::select! {
                answer = Box::pin(self.own_answer(snapshot, &client, &id, about)) => match answer {
                    Ok((answer, name)) => (Some(answer), name),
                    Err(error) => (Some(responses::not_recorded(&id, &error)), "error"),
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
        let given = given.unwrap_or(Duration::MAX);
        let timeouts = &to.definition.timeouts;
        let idle = timeouts.idle(original).min(given);
        let limits = TimeLimits { idle, total: timeouts.most(original).min(given) };
        let most = to.result_bytes(original);
        let (done, spoken) = match self.servers.open(permit, &client, row, &result_room).await {
            Ok(mut opened) => {
                let done = follow(&mut opened, notes, &cancel, limits, &result_room).await;
                (done, opened.era)
            }
            // Nothing was forwarded.
            Err(why) => {
                let answer = responses::unavailable(&id, &server, &why.public());
                call.end(Outcome {
                    name: outcome(Failure::Unsent),
                    error_code: Some(code::INTERNAL_ERROR.into()),
                    bytes_out: answer.body.len(),
                });
                return Some(answer);
            }
        };

        // What came of it, in the record first, then to the client.
        let fail = |call: Forwarded<'_>, failure: Failure| {
            let answer = responses::failed(&id, &server, failure);
            call.end(Outcome {
                name: outcome(failure),
                error_code: answer.as_ref().map(|_| code::INTERNAL_ERROR.into()),
                bytes_out: answer.as_ref().map_or(0, |answer| answer.body.len()),
            });
            answer
        };
        match done {
            ExchangeEnd::Response { message, body } => {
                let marks = Marks::of(&message);
                if marks.question {
                    return fail(call, Failure::Asked);
                }
                let changed = responses::answer(&id, era, spoken, &message, marks);
                let body = changed.unwrap_or_else(|| body.into());
                let name = match (message.kind(), marks.is_error) {
                    (Kind::Error, _) => "error",
                    (_, true) => "tool-error",
                    _ => "ok",
                };
                let (error_code, bytes_out) = (message.error_code(), body.len());
                call.end(Outcome { name, error_code, bytes_out });
                result_room.shrink_to(bytes_out);
                let status = responses::status_of(era, &message);
                Some(Answer { status, room: Some(result_room), ..body.into() })
            }
            ExchangeEnd::Failed(failure @ Failure::TooLarge { size }) => {
                let answer = responses::too_large(&id, era, &name, most, size);
                let bytes_out = answer.body.len();
                call.end(Outcome { name: outcome(failure), error_code: None, bytes_out });
                Some(answer)
            }
            ExchangeEnd::Failed(failure) => fail(call, failure),
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
        let decision = self.audit.ticket(client.caller.agent.as_ref());
        let refusal = view.refuse(snapshot, name, refused, &decision.id);
        let about = (name, refused, &refusal);
        let facts = events::refusal(snapshot, client, id, about, &self.audit.arguments);
        if let Err(error) = self.audit.record_ticket(&decision, "refusal", name, &facts).await {
            return responses::not_recorded(id, &error);
        }
        responses::refused(id, client.era(), &refusal)
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
        let ticket = self.audit.ticket(client.caller.agent.as_ref());
        let decision = &ticket.id;
        let limit = view.limit(snapshot, permit, stopped, decision);
        let (about, arguments) = ((permit, stopped, limit.as_ref()), &self.audit.arguments);
        let facts = events::stopped(snapshot, client, id, about, arguments);
        let name = permit.exposed();
        let answer = match self.audit.record_ticket(&ticket, "refusal", name, &facts).await {
            Ok(()) => {
                responses::stopped(id, client.era(), permit, stopped, limit.as_ref(), decision)
            }
            Err(error) => responses::not_recorded(id, &error),
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

    /// What the client may see. If all processes of the server that is wanted are busy, the client waits
    /// in line for one.
    async fn view_in_line(
        &self,
        snapshot: &Snapshot,
        client: &Arc<Client>,
        wanted: Option<&str>,
    ) -> Arc<View> {
        let view = self.view(snapshot, client, wanted).await;
        match self.lacking(client, &view, wanted) {
            Some((server, Unavailable::Full(_))) => {
                let patience = self.patience(snapshot, server, wanted);
                Box::pin(async move {
                    let deadline = Instant::now() + patience;
                    let mut changes = self.servers.changes();
                    loop {
                        let _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
                        let view = self.view(snapshot, client, wanted).await;
                        // Once it has a process, that has to list first.
                        let waits = matches!(
                            self.lacking(client, &view, wanted),
                            Some((_, Unavailable::Full(_) | Unavailable::Slow))
                        );
                        if !waits || Instant::now() >= deadline {
                            return view;
                        }
                    }
                })
                .await
            }
            _ => view,
        }
    }

    /// The server that is wanted, if its list is not known.
    fn lacking<'v>(
        &self,
        client: &Client,
        view: &'v View,
        wanted: Option<&str>,
    ) -> Option<(&'v str, &'v Unavailable)> {
        match (wanted, client.scope) {
            (Some(name), _) => self.undecidable(client, view, name),
            (None, Scope::One(_)) => view.unavailable(),
            (None, Scope::All | Scope::Discovery) => None,
        }
    }

    /// How long to wait in line for a server.
    fn patience(&self, snapshot: &Snapshot, server: &str, wanted: Option<&str>) -> Duration {
        let tool = wanted.map(|name| self.naming.rest(name, server).unwrap_or(name));
        let server = snapshot.server(server);
        server.map_or(Duration::ZERO, |server| {
            server.definition.timeouts.idle(tool.unwrap_or_default())
        })
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
        let unknown = |of: &'v crate::view::OfServer| Some((&*of.name, of.unavailable.as_ref()?));
        view.servers().iter().filter_map(unknown).find(|(server, _)| fits(server))
    }
}

/// How long a call may take.
struct TimeLimits {
    /// Without an answer or progress.
    idle: Duration,
    /// In total.
    total: Duration,
}

/// Passes on what a server sends for a call until it ends, times out, or the client cancels it.
/// Each notification restarts the idle time; nothing extends the total.
///
/// While the result waits for room, or for another result on the same pipe that does, the server has done its
/// part: only the total ends that.
async fn follow(
    opened: &mut Opened,
    notes: &Notes,
    cancel: &Cancel,
    limits: TimeLimits,
    room: &Reservation,
) -> ExchangeEnd {
    let last = Instant::now() + limits.total;
    let next_deadline = || last.min(Instant::now() + limits.idle);
    let deadline = tokio::time::sleep_until(next_deadline());
    tokio::pin!(deadline);
    let (mut late, mut given_up) = (false, false);
    let stalls = opened.stalls();
    let mut stalls_seen = stalls.count();
    loop {
        let event = {
            // Kept over several deadlines: a half-read result would be lost with it.
            let next = opened.next();
            tokio::pin!(next);
            loop {
                tokio::select! {
                    event = &mut next => break Some(event),
                    () = &mut deadline, if !late => {
                        let is_held_up = room.is_short() || stalls.any_since(stalls_seen);
                        stalls_seen = stalls.count();
                        if !is_held_up || Instant::now() >= last {
                            late = true;
                            break None;
                        }
                        deadline.as_mut().reset(next_deadline());
                    }
                    () = cancel.cancelled(), if !given_up => {
                        given_up = true;
                        break None;
                    }
                }
            }
        };
        match event {
            Some(Event::Notify(body)) => {
                notes.send(body).await;
                deadline.as_mut().reset(next_deadline());
            }
            Some(Event::Done(done)) => return done,
            // Questions are refused, so that none comes.
            Some(Event::ServerRequest(_)) => {}
            None if late && !given_up => opened.give_up(GiveUp::TimedOut),
            None => opened.give_up(GiveUp::Cancelled(cancel.reason())),
        }
    }
}
