//! A client on standard input and output, one message per line.

pub(super) mod lines;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use toolward_wire::{ClientCapabilities, Era, Id, Message, MethodRow, Revision, Sender};

use self::lines::{IncomingLine, IncomingLines, write_lines};
use super::timer_keepalive;
use crate::audit::Source;
use crate::budget::{Account, Reservation};
use crate::client::{Caller, Client, ClientStatement, Outlet, Owner, Scope, declared};
use crate::gateway::Gateway;
use crate::in_flight::InFlightRequests;
use crate::methods::initialize;
use crate::methods::request::{Envelope, Request};
use crate::notifications::Notes;
use crate::parse::parse;
use crate::responses::{self, Answer, Body, Outbound};
use crate::validate::{self, Incoming};
use crate::view::cache::Viewer;

/// How long in-flight requests may take once the client has closed its side.
const DRAIN: Duration = Duration::from_secs(5);
/// The same after the client's credential was revoked.
const BRIEFLY: Duration = Duration::from_millis(300);
/// Outgoing messages queued for a client that does not read; senders of further ones wait.
const WAITING: usize = 64;
/// At this number of requests in flight, no further one is read.
const MOST_RUNNING: usize = 1024;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The client closed it.
    Closed,
    /// The server could not be started; the client got an error with the reason.
    NotStarted(String),
}

/// A stdio client. Its agent and scope are set by the operator.
pub struct Connection {
    gateway: Arc<Gateway>,
    caller: Caller,
    scope: Scope,
    /// The legacy session, once it is initialized.
    session: Option<Arc<Viewer>>,
    /// The client of stateless (modern) requests.
    modern: HashMap<ClientCapabilities, Arc<Viewer>>,
    running: InFlightRequests,
    out: mpsc::Sender<Outbound>,
    /// The maximum size of a request, in bytes.
    request_bytes: usize,
    account: Arc<Account>,
    work: JoinSet<()>,
    first: bool,
    /// The task that sends `list_changed` notifications.
    follower: Option<AbortHandle>,
}

/// Serves one client until it closes its side or its credential is revoked. In-flight requests then get
/// [`DRAIN`] or [`BRIEFLY`] to finish.
pub async fn serve(
    gateway: Arc<Gateway>,
    caller: Caller,
    scope: Scope,
    mut revoked: watch::Receiver<bool>,
    request_bytes: usize,
    (mut input, output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
) -> Ended {
    timer_keepalive::keep_time();
    let (out, bodies) = mpsc::channel(WAITING);
    let mut writer = tokio::spawn(write_lines(output, bodies));
    let account = gateway.context.budget.sole_account();
    let mut lines = IncomingLines::new(request_bytes, account.clone());
    let mut connection = Connection {
        gateway,
        request_bytes,
        account,
        caller,
        scope,
        session: None,
        modern: HashMap::new(),
        running: InFlightRequests::default(),
        out,
        work: JoinSet::new(),
        first: true,
        follower: None,
    };
    let mut ended = Ended::Closed;
    'connection: loop {
        while let Some(line) = lines.next() {
            if *revoked.borrow() {
                break 'connection;
            }
            if let Err(why) = connection.received(line).await {
                ended = Ended::NotStarted(why);
                break 'connection;
            }
        }
        let full = connection.work.len() >= MOST_RUNNING;
        tokio::select! {
            biased;
            () = revocation(&mut revoked) => break,
            read = input.read_buf(lines.buffer()), if !full => match read {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            },
            // The client no longer reads the responses.
            _ = &mut writer => return connection.close(ended).await,
            // Finished tasks are collected, so that memory does not grow with the number of calls.
            Some(_) = connection.work.join_next(), if !connection.work.is_empty() => {}
        }
    }
    // Drain: requests received before the end are answered, up to a timeout.
    let drained = async { while connection.work.join_next().await.is_some() {} };
    let was_revoked = *revoked.borrow();
    let drain = if was_revoked { BRIEFLY } else { DRAIN };
    let _ = tokio::time::timeout(drain, drained).await;
    if was_revoked {
        connection.turn_away().await;
    }
    let ended = connection.close(ended).await;
    // A client that does not read must not keep the process alive.
    let _ = tokio::time::timeout(DRAIN, writer).await;
    ended
}

/// Resolves when the client's credential is revoked.
async fn revocation(revoked: &mut watch::Receiver<bool>) {
    if revoked.wait_for(|revoked| *revoked).await.is_err() {
        std::future::pending().await
    }
}

impl Connection {
    /// Handles one line of the client. An error means that the server cannot be started.
    async fn received(&mut self, line: IncomingLine) -> Result<(), String> {
        let (message, room) = match line {
            IncomingLine::Whole(line, room) => {
                (parse(line, self.request_bytes, Sender::Client).await, room)
            }
            IncomingLine::TooLong(id) => {
                self.answer(responses::too_long(id.as_ref(), self.request_bytes)).await;
                return Ok(());
            }
            IncomingLine::NoRoom(id) => {
                self.answer(responses::no_room(id.as_ref())).await;
                return Ok(());
            }
        };
        let message = match message {
            Ok(message) => message,
            Err(malformed) => {
                self.answer(responses::malformed(&malformed, Era::Legacy)).await;
                return Ok(());
            }
        };
        let era = validate::era(&message);
        match validate::admit(&message, era) {
            Ok(Incoming::Request { id, row }) => {
                let Some(room) = room else {
                    self.answer(responses::no_room(Some(&id))).await;
                    return Ok(());
                };
                return self.request((message, room), id, row, era).await;
            }
            Ok(Incoming::Notification) => self.running.notified(&message),
            Ok(Incoming::Response) => {
                let session = self.session.as_ref();
                if let Some(outlet) = session.and_then(|session| session.outlet.as_ref()) {
                    outlet.responded(message, room);
                }
            }
            // A notification is never answered.
            Err(answer) if message.id().is_none() => self.caller.count(&self.gateway, &answer),
            Err(answer) => self.answer(*answer).await,
        }
        Ok(())
    }

    async fn request(
        &mut self,
        (message, room): (Message, Reservation),
        id: Id,
        row: &'static MethodRow,
        era: Era,
    ) -> Result<(), String> {
        let begins = row.name == "initialize";
        if begins && self.session.is_some() {
            let why = "the session has already begun";
            self.answer(responses::bad_request(&id, era, why)).await;
            return Ok(());
        }
        let client = match era {
            Era::Modern => self.stateless(declared(&message)),
            Era::Legacy if begins => match ClientStatement::of(&message) {
                Ok(stated) => self.begin(&message, stated),
                Err(why) => {
                    self.answer(responses::bad_params(&id, era, &why)).await;
                    return Ok(());
                }
            },
            Era::Legacy => match &self.session {
                Some(session) => session.clone(),
                None => {
                    let why = "the session begins with `initialize`";
                    self.answer(responses::bad_request(&id, era, why)).await;
                    return Ok(());
                }
            },
        };
        let Some(in_flight) = self.running.begin(&id) else {
            let why = "a request with this id is still in flight";
            self.answer(responses::bad_request(&id, era, why)).await;
            return Ok(());
        };
        // If a wrapped server cannot be started, that is reported at once and the connection ends. If it
        // is not known yet when `initialize` has to be answered, the next request finds out.
        let ready = match (std::mem::take(&mut self.first), self.scope) {
            (true, Scope::One(_)) if begins => {
                let ready = self.gateway.ready_in_time(&client).await;
                self.first = ready.is_none();
                ready.unwrap_or(Ok(()))
            }
            // A client that probes for the protocol version does not show the error to anyone, and may give up
            // waiting and send `initialize`.
            (true, Scope::One(_)) if row.name == "server/discover" => {
                self.first = true;
                Ok(())
            }
            // The last known list is shown at once; the next request finds out.
            (true, Scope::One(_)) if self.gateway.has_stored_list(&client, row.name) => {
                self.first = true;
                Ok(())
            }
            (true, Scope::One(_)) => self.gateway.ready(&client).await,
            _ => Ok(()),
        };
        if let Err(why) = ready {
            let active = self.gateway.active();
            let server = match self.scope {
                Scope::One(id) => active.server_by_id(id),
                Scope::All | Scope::Discovery => None,
            };
            let server = server.map_or("", |server| server.name());
            self.say(why.response(&id, server).body).await;
            return Err(format!("{server}: {why}"));
        }
        let cancel = in_flight.cancel.clone();
        let active = self.gateway.active();
        let envelope = Envelope {
            active,
            client,
            id,
            row,
            cancel,
            headers: None,
            parking: None,
            approval: None,
        };
        let request = Request { envelope, message, room };
        let (gateway, out, caller) = (self.gateway.clone(), self.out.clone(), self.caller.clone());
        let notes = Notes::Connection(self.out.clone(), self.account.clone());
        let work = async move {
            let answer = match era {
                Era::Modern => gateway.clone().answer_stateless(request, notes).await,
                Era::Legacy => gateway.answer(request, &notes).await,
            };
            // The id may be reused from here on.
            drop(in_flight);
            if let Some(answer) = answer {
                caller.count(&gateway, &answer);
                let Answer { body, room, .. } = answer;
                let _ = out.send(Outbound { body, room }).await;
            }
        };
        match begins {
            // Later requests belong to the session that begins here, so it is awaited.
            true => work.await,
            false => drop(self.work.spawn(work)),
        }
        Ok(())
    }

    /// The client of requests without a session.
    fn stateless(&mut self, declared: ClientCapabilities) -> Arc<Viewer> {
        let new = || {
            let owner = Owner::Agent(self.caller.holder());
            let revision = Revision::newest(Era::Modern);
            let mut client = Client::new(self.caller.clone(), self.scope, revision, owner);
            client.declared = declared;
            Arc::new(Viewer::from(client))
        };
        self.modern.entry(declared).or_insert_with(new).clone()
    }

    /// Begins a session with the client info and capabilities of `initialize`.
    fn begin(&mut self, initialize: &Message, stated: ClientStatement) -> Arc<Viewer> {
        let owner = Owner::Session(0);
        let revision = initialize::revision(initialize);
        let mut client = Client::new(self.caller.clone(), self.scope, revision, owner);
        client.state(stated);
        let gate = self.gateway.client_gate(&client);
        client.outlet = Some(Outlet::new(&self.out, gate));
        let client = Arc::new(Viewer::from(client));
        self.follower = Some(self.gateway.follow_changes(&client, self.out.clone()));
        self.session = Some(client.clone());
        client
    }

    /// Answers a message that was rejected before dispatch.
    async fn answer(&self, answer: Answer) {
        self.caller.count(&self.gateway, &answer);
        self.say(answer.body).await;
    }

    /// Cancels in-flight requests after a revocation, and answers each with the reason.
    async fn turn_away(&mut self) {
        let waiting = self.running.ids();
        self.work.shutdown().await;
        let answered = async {
            for id in waiting {
                let why = "the client's token was revoked";
                self.say(responses::internal(&id, "turned_away", why, false).body).await;
            }
        };
        let _ = tokio::time::timeout(BRIEFLY, answered).await;
    }

    async fn say(&self, body: Body) {
        let _ = self.out.send(body.into()).await;
    }

    async fn close(mut self, ended: Ended) -> Ended {
        self.work.shutdown().await;
        if let Some(follower) = &self.follower {
            follower.abort();
        }
        let servers = self.gateway.active().servers.clone();
        self.gateway.context.servers.close(&servers).await;
        ended
    }
}

impl Caller {
    /// Counts a rejected request that has no audit record of its own.
    fn count(&self, gateway: &Gateway, answer: &Answer) {
        let Some(why) = answer.unrecorded else { return };
        match &self.agent {
            Some(agent) => gateway.context.audit.turn_away(Source::Agent(agent.clone()), why),
            None => gateway.context.audit.turned_away("stdio", why),
        }
    }
}
