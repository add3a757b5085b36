//! Stage 5, forward: sends the call to the server or a meta tool, and forwards notifications until the
//! response.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use toolward_wire::exchange::{Event, ExchangeEnd, Failure};
use toolward_wire::method::PolicySubject;
use toolward_wire::{ClientCapabilities, Era, Id, Message, Sender};

use super::contents::Completes;
use super::questions::{Declined, Questions, decline};
use super::record::Forwarded;
use super::{input_state, task_requests, visits};
use crate::audit::NotRecorded;
use crate::budget::Reservation;
use crate::client::Scope;
use crate::context::Context;
use crate::in_flight::Cancel;
use crate::methods::request::Envelope;
use crate::methods::{logins, meta_tools};
use crate::notifications::Notes;
use crate::permit::Permit;
use crate::responses::{Answer, Body};
use crate::upstream::{GiveUp, Opened, Server, Unavailable};
use crate::view::View;

/// Maximum number of times a call is repeated with input from a legacy client.
const MAX_ROUNDS: usize = 8;

/// A call that has ended at its server.
pub(super) struct Done<'s> {
    pub(super) forwarded: Forwarded<'s>,
    /// The name that the client used.
    pub(super) exposed: Box<str>,
    /// The size limit of the result.
    pub(super) max_bytes: usize,
    /// The subject of a completion request.
    pub(super) completes: Option<Completes>,
    /// The server's own name of the tool, if the call may become a task.
    pub(super) task_of: Option<Box<str>>,
    /// The server responded with a stream.
    pub(super) streamed: bool,
    pub(super) end: DoneBy,
}

/// How a call ended, and by whom.
pub(super) enum DoneBy {
    /// A meta tool, with the outcome for the audit log.
    MetaTool(Result<(Answer, &'static str), NotRecorded>),
    /// The server, in this protocol version.
    Server(ExchangeEnd, Era),
    /// Nothing was sent: the server could not be reached.
    Unreachable(Unavailable),
    /// The client cancelled a call of a meta tool.
    Cancelled,
    /// The server asks the client for input, or to visit a URL, before it carries out the call.
    InputRequired(Body),
    /// The server asked the client something that was declined.
    Declined(Declined),
}

pub(super) async fn forward<'s>(
    context: &Context,
    envelope: &Envelope,
    (permit, view): (Permit, &View),
    forwarded: Forwarded<'s>,
    timeout: Option<Duration>,
    notes: &Notes,
) -> Done<'s> {
    let Envelope { client, row, cancel, .. } = envelope;
    let (server, room) = (forwarded.server, &forwarded.room);
    let exposed: Box<str> = permit.exposed().into();
    let tool = permit.tool();
    let (max_bytes, limits) = (server.result_bytes(tool), TimeLimits::new(server, tool, timeout));
    let limits = if row.name == "tasks/result" { limits.patient() } else { limits };
    let knows_tasks = client.declared.contains(ClientCapabilities::TASKS);
    let wants_task = row.subject == PolicySubject::Tool
        && (knows_tasks || permit.message().param("task").is_some());
    let task_of = wants_task.then(|| permit.decision().original.clone());
    let completes = match row.subject {
        PolicySubject::Completion => Completes::of(permit.message()),
        _ => None,
    };
    let mut streamed = false;
    let end = if server.is_own() {
        tokio::select! {
            answer = Box::pin(meta_tools::answer(context, envelope, view, &permit)) => {
                DoneBy::MetaTool(answer)
            }
            () = cancel.cancelled() => DoneBy::Cancelled,
        }
    } else {
        let declared = envelope.active.declared(client, server);
        let permit = match forwarded.trace_parent() {
            Some(parent) => permit.with_trace_parent(&parent),
            None => permit,
        };
        let request = permit.message().body().clone();
        let questions = Questions::new(context, envelope, server, forwarded.id(), notes);
        let permit = match row.name {
            "tasks/update" => Box::pin(task_requests::update(&questions, permit)).await,
            _ => Ok(permit),
        };
        let opened = match permit {
            Ok(permit) => context.servers.open(server, permit, (client, declared), row, room).await,
            Err(declined) => {
                let end = DoneBy::Declined(declined);
                return Done { forwarded, exposed, max_bytes, completes, task_of, streamed, end };
            }
        };
        match opened {
            Ok(mut opened) => {
                let mut call =
                    FollowedCall { questions, cancel, limits, room, streamed: &mut streamed };
                match call.follow(&mut opened).await {
                    Ok(ExchangeEnd::InputRequired(asked)) => {
                        let about = (&*exposed, request);
                        Box::pin(call.input_required(opened, about, asked)).await
                    }
                    Ok(ExchangeEnd::Response { message, .. }) if visits::are_required(&message) => {
                        Box::pin(call.visits_required((&exposed, request), &message)).await
                    }
                    Ok(end) => match task_of_gateway(&opened, &end) {
                        Some(mut result) => {
                            call.limits = call.limits.patient();
                            match Box::pin(call.follow(&mut result)).await {
                                Ok(end) => DoneBy::Server(end, result.era),
                                Err(declined) => DoneBy::Declined(declined),
                            }
                        }
                        None => match end {
                            ExchangeEnd::Response { message, .. }
                                if task_requests::asks(row, &message) =>
                            {
                                let answer =
                                    task_requests::relay(&call.questions, &opened, message);
                                match Box::pin(answer).await {
                                    Ok(end) => DoneBy::Server(end, opened.era),
                                    Err(declined) => DoneBy::Declined(declined),
                                }
                            }
                            end => DoneBy::Server(end, opened.era),
                        },
                    },
                    Err(declined) => DoneBy::Declined(declined),
                }
            }
            Err(why) => DoneBy::Unreachable(why),
        }
    };
    let agent = client.caller.agent.as_deref();
    let end = match end {
        DoneBy::Server(ExchangeEnd::Failed(Failure::Unsent), _)
            if let Some(needs) = server.missing_login_of(agent) =>
        {
            DoneBy::Unreachable(Unavailable::NeedsLogin(needs))
        }
        end => end,
    };
    logins::record(context, server);
    Done { forwarded, exposed, max_bytes, completes, task_of, streamed, end }
}

/// The request for the result of a task that the gateway made for a client without tasks.
fn task_of_gateway(opened: &Opened, end: &ExchangeEnd) -> Option<Opened> {
    let ExchangeEnd::Response { message, .. } = end else { return None };
    let id = message.result_member("task")?.member("taskId")?.as_str()?;
    opened.result_of_task(&id)
}

/// Timeouts of a call.
#[derive(Clone, Copy)]
struct TimeLimits {
    /// Without a response or progress.
    idle: Duration,
    /// In total.
    total: Duration,
}

impl TimeLimits {
    fn new(server: &Server, tool: &str, client: Option<Duration>) -> TimeLimits {
        let (timeouts, most) = (&server.definition.timeouts, client.unwrap_or(Duration::MAX));
        TimeLimits { idle: timeouts.idle(tool).min(most), total: timeouts.most(tool).min(most) }
    }

    /// Without a limit on silence: the result of a task may take any time.
    fn patient(self) -> TimeLimits {
        TimeLimits { idle: self.total, ..self }
    }
}

/// A call in flight, with what its messages need.
struct FollowedCall<'a> {
    questions: Questions<'a>,
    cancel: &'a Cancel,
    limits: TimeLimits,
    room: &'a Reservation,
    /// Set if the server responds with a stream.
    streamed: &'a mut bool,
}

/// The event that ends a wait for the server.
enum Next {
    Event(Event),
    /// The client responded to a request of the server, or its session ended.
    Response(Id, Option<Message>),
    Deadline,
    Cancelled,
}

impl FollowedCall<'_> {
    /// Forwards a server's messages for a call until it ends, times out, or the client cancels it. Each
    /// notification restarts the idle timeout; nothing extends the total. The error is a declined request of the
    /// server, which ends the call.
    ///
    /// While the result waits for memory, or behind another such result on the same pipe, the server has done
    /// its part: only the total timeout applies. So it is while a person is being asked.
    async fn follow(&mut self, opened: &mut Opened) -> Result<ExchangeEnd, Declined> {
        let FollowedCall { questions, cancel, limits, room, streamed } = self;
        let last = Instant::now() + limits.total;
        let next_deadline = || last.min(Instant::now() + limits.idle);
        let deadline = tokio::time::sleep_until(next_deadline());
        tokio::pin!(deadline);
        let (mut late, mut given_up, mut declined) = (false, false, None);
        let stalls = opened.stalls();
        let mut stalls_seen = stalls.count();
        loop {
            let next = {
                // Kept across deadlines: dropping it would lose a partly read result.
                let event = opened.next();
                tokio::pin!(event);
                loop {
                    tokio::select! {
                        event = &mut event => break Next::Event(event),
                        (id, response) = questions.response(), if !questions.is_empty() => {
                            break Next::Response(id, response);
                        }
                        () = &mut deadline, if !late => {
                            let is_held_up = room.is_short()
                                || stalls.any_since(stalls_seen)
                                || !questions.is_empty();
                            stalls_seen = stalls.count();
                            if !is_held_up || Instant::now() >= last {
                                late = true;
                                break Next::Deadline;
                            }
                            deadline.as_mut().reset(next_deadline());
                        }
                        () = cancel.cancelled(), if !given_up => {
                            given_up = true;
                            break Next::Cancelled;
                        }
                    }
                }
            };
            match next {
                Next::Event(Event::Notify(body)) => {
                    questions.notes.send(body).await;
                    deadline.as_mut().reset(next_deadline());
                }
                Next::Event(Event::StreamClosed(retry)) => {
                    questions.notes.close_stream(retry);
                    deadline.as_mut().reset(next_deadline());
                }
                Next::Event(Event::Done(done)) => {
                    **streamed = opened.is_streamed();
                    if !questions.is_empty() {
                        Box::pin(questions.finish()).await;
                    }
                    return declined.map_or(Ok(done), Err);
                }
                Next::Event(Event::ServerRequest(id, message)) => {
                    if let Err(refused) = Box::pin(questions.ask(id.clone(), &message)).await {
                        if let Some(response) = decline(&id, &message) {
                            opened.respond(id, response);
                        }
                        declined.get_or_insert(refused);
                        given_up = true;
                        opened.give_up(GiveUp::LEFT);
                    }
                    deadline.as_mut().reset(next_deadline());
                }
                Next::Response(id, Some(response)) => {
                    opened.respond(id, response);
                    deadline.as_mut().reset(next_deadline());
                }
                Next::Response(_, None) => {
                    declined.get_or_insert(Declined("the client disconnected"));
                    given_up = true;
                    opened.give_up(GiveUp::LEFT);
                }
                Next::Deadline if !given_up => opened.give_up(GiveUp::TimedOut),
                Next::Deadline => {}
                Next::Cancelled => opened.give_up(GiveUp::Cancelled(cancel.reason())),
            }
        }
    }

    /// A modern server needs input. Requests that the configuration answers are answered by the gateway itself, in a
    /// repeated call. The rest is relayed to a modern client; a legacy client is asked, and the call repeated with its
    /// responses.
    async fn input_required(
        &mut self,
        mut opened: Opened,
        about: (&str, Bytes),
        mut asked: Message,
    ) -> DoneBy {
        let is_modern = self.questions.envelope.client.era() == Era::Modern;
        for _ in 0..MAX_ROUNDS {
            if is_modern && !self.questions.has_own_answer(&asked) {
                return self.relay(about, &asked).await;
            }
            let responses = tokio::select! {
                responses = self.questions.gather(&asked) => responses,
                () = self.cancel.cancelled() => return DoneBy::Cancelled,
                () = tokio::time::sleep(self.limits.total) => {
                    return DoneBy::Server(ExchangeEnd::Failed(Failure::TimedOut), opened.era);
                }
            };
            let responses = match responses {
                Ok(responses) => responses,
                Err(declined) => return DoneBy::Declined(declined),
            };
            let state = asked.result_member("requestState").map(|raw| raw.bytes().to_vec());
            let repeated = opened.repeat(|edit| {
                let edit = edit.set_param("inputResponses", responses);
                match state {
                    Some(state) => edit.set_param("requestState", state),
                    None => edit,
                }
            });
            let Some(repeated) = repeated else { break };
            opened = repeated;
            match self.follow(&mut opened).await {
                Ok(ExchangeEnd::InputRequired(again)) => asked = again,
                Ok(end) => return DoneBy::Server(end, opened.era),
                Err(declined) => return DoneBy::Declined(declined),
            }
        }
        DoneBy::Declined(Declined("the server asks too often"))
    }

    /// Relays what a server asks to a modern client.
    async fn relay(&self, about: (&str, Bytes), asked: &Message) -> DoneBy {
        let (context, envelope) = (self.questions.context, self.questions.envelope);
        let server = self.questions.server.name();
        let relayed = self
            .digest(about)
            .and_then(|call| input_state::relay(context, envelope, (server, call), asked));
        self.questions.record_relayed(asked, relayed.as_ref().err().copied()).await;
        relayed.map_or_else(DoneBy::Declined, DoneBy::InputRequired)
    }

    /// The server requires the user to visit URLs first.
    async fn visits_required(&self, about: (&str, Bytes), error: &Message) -> DoneBy {
        let (context, envelope) = (self.questions.context, self.questions.envelope);
        let server = self.questions.server.name();
        let call = match envelope.client.era() {
            _ if !envelope.row.may_request_input => Err(Declined("it may not ask anything here")),
            Era::Modern => self.digest(about).map(Some),
            // It needs no state to call again.
            Era::Legacy => Ok(None),
        };
        let translate = |call| visits::translate(context, envelope, (server, call), error);
        let relayed = call.and_then(translate);
        let count = visits::entries(error).map_or(1, |entries| entries.len());
        self.questions.record_visits(count, relayed.as_ref().err().copied()).await;
        relayed.map_or_else(DoneBy::Declined, DoneBy::InputRequired)
    }

    /// The digest that the state of a call is bound to.
    fn digest(&self, (exposed, request): (&str, Bytes)) -> Result<[u8; 32], Declined> {
        let envelope = self.questions.envelope;
        // A call inside `execute_tool` is repeated under another name, which its state could not be bound to.
        if envelope.client.scope == Scope::Discovery {
            return Err(Declined("a call through `execute_tool` cannot be repeated"));
        }
        let request = Message::parse(request, usize::MAX, Sender::Client)
            .map_err(|_| Declined("the call cannot be repeated"))?;
        Ok(input_state::digest(envelope.row.name, exposed, &request))
    }
}
