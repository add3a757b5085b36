//! A client on standard input and output, one message a line.

mod lines;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use toolward_wire::{Era, Id, Message, MethodRow, Revision, Sender};

use self::lines::{IncomingLine, IncomingLines, write_lines};
use super::timer_keepalive;
use crate::audit::Source;
use crate::budget::{Account, Reservation};
use crate::client::{Caller, Client, Owner, Scope, Stated};
use crate::gateway::Gateway;
use crate::in_flight::Running;
use crate::methods::initialize;
use crate::methods::request::{Envelope, Request};
use crate::notifications::Notes;
use crate::parse::parse;
use crate::responses::{self, Answer, Body, Outbound};
use crate::validate::{self, Incoming};
use crate::view::cache::Viewer;

/// How long requests that are under way may take once the client has closed its side.
const DRAIN: Duration = Duration::from_secs(5);
/// The same where the client is not who it was any more.
const BRIEFLY: Duration = Duration::from_millis(300);
/// Messages that wait for a client that does not read; whoever has more waits too.
const WAITING: usize = 64;
/// With so many requests under way, no further one is read.
const MOST_RUNNING: usize = 1024;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The client closed it.
    Closed,
    /// The server could not be started; the client has been told.
    NotStarted(String),
}

/// One client, as the operator set it up.
pub struct Connection {
    gateway: Arc<Gateway>,
    caller: Caller,
    scope: Scope,
    /// The session, once it has begun.
    session: Option<Arc<Viewer>>,
    /// The client of requests without a session.
    modern: Arc<Viewer>,
    running: Running,
    out: mpsc::Sender<Outbound>,
    /// The largest request.
    request_bytes: usize,
    account: Arc<Account>,
    work: JoinSet<()>,
    first: bool,
    /// The task that tells of changes.
    follower: Option<AbortHandle>,
}

/// Serves one client until it closes its side, or is told that it is not who it was. Requests that are
/// under way then get a few seconds, or less than one.
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
    let owner = Owner::Agent(caller.agent.clone());
    let modern = Client::new(caller.clone(), scope, Revision::newest(Era::Modern), owner);
    let account = gateway.context.budget.sole_account();
    let mut lines = IncomingLines::new(request_bytes, account.clone());
    let mut connection = Connection {
        gateway,
        request_bytes,
        account,
        caller,
        scope,
        session: None,
        modern: Arc::new(Viewer::from(modern)),
        running: Running::default(),
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
            // Nobody reads the answers any more.
            _ = &mut writer => return connection.close(ended).await,
            // Finished work is collected, so that memory does not grow with calls.
            Some(_) = connection.work.join_next(), if !connection.work.is_empty() => {}
        }
    }
    // What was asked before the end is answered, within reason.
    let drained = async { while connection.work.join_next().await.is_some() {} };
    let was_revoked = *revoked.borrow();
    let patience = if was_revoked { BRIEFLY } else { DRAIN };
    let _ = tokio::time::timeout(patience, drained).await;
    if was_revoked {
        connection.turn_away().await;
    }
    let ended = connection.close(ended).await;
    // A client that does not read must not keep the process.
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
            Ok(Incoming::Response) => {}
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
            Era::Modern => self.modern.clone(),
            Era::Legacy if begins => match Stated::of(&message) {
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
        let Some(underway) = self.running.begin(&id) else {
            let why = "a request with this id is still under way";
            self.answer(responses::bad_request(&id, era, why)).await;
            return Ok(());
        };
        // A wrapped server that cannot be started is told at once, and there is nothing else to do. If
        // that is not known when `initialize` has to be answered, the next request finds out.
        let ready = match (std::mem::take(&mut self.first), self.scope) {
            (true, Scope::One(_)) if begins => {
                let ready = self.gateway.ready_in_time(&client).await;
                self.first = ready.is_none();
                ready.unwrap_or(Ok(()))
            }
            (true, Scope::One(_)) => self.gateway.ready(&client).await,
            _ => Ok(()),
        };
        if let Err(why) = ready {
            let active = self.gateway.active();
            let server = active.servers.first().map_or("", |server| server.name());
            self.say(why.response(&id, server).body).await;
            // A client that only asks what it speaks to shows nobody the answer, and goes on.
            if row.name == "server/discover" {
                self.first = true;
                return Ok(());
            }
            return Err(format!("{server}: {why}"));
        }
        let cancel = underway.cancel.clone();
        let active = self.gateway.active();
        let envelope = Envelope { active, client, id, row, cancel, headers: None };
        let request = Request { envelope, message, room };
        let (gateway, out, caller) = (self.gateway.clone(), self.out.clone(), self.caller.clone());
        let notes = Notes::Connection(self.out.clone(), self.account.clone());
        let work = async move {
            let answer = gateway.answer(request, &notes).await;
            // From here on the id is free again.
            drop(underway);
            if let Some(answer) = answer {
                caller.count(&gateway, &answer);
                let Answer { body, room, .. } = answer;
                let _ = out.send(Outbound { body, room }).await;
            }
        };
        match begins {
            // What follows belongs to the session that begins here.
            true => work.await,
            false => drop(self.work.spawn(work)),
        }
        Ok(())
    }

    /// A session begins with what the client says of itself.
    fn begin(&mut self, initialize: &Message, stated: Stated) -> Arc<Viewer> {
        let owner = Owner::Session(0);
        let revision = initialize::revision(initialize);
        let mut client = Client::new(self.caller.clone(), self.scope, revision, owner);
        (client.info, client.capabilities) = (stated.info, stated.capabilities);
        let client = Arc::new(Viewer::from(client));
        self.follower = Some(self.gateway.follow_changes(&client, self.out.clone()));
        self.session = Some(client.clone());
        client
    }

    /// Answers what was not taken in.
    async fn answer(&self, answer: Answer) {
        self.caller.count(&self.gateway, &answer);
        self.say(answer.body).await;
    }

    /// Whoever still waits is told why there is no answer.
    async fn turn_away(&mut self) {
        let waiting = self.running.ids();
        self.work.shutdown().await;
        let told = async {
            for id in waiting {
                let why = "the client's token was taken back";
                self.say(responses::internal(&id, "turned_away", why, false).body).await;
            }
        };
        let _ = tokio::time::timeout(BRIEFLY, told).await;
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
    /// Counts a request that was refused, where no record of its own says so.
    fn count(&self, gateway: &Gateway, answer: &Answer) {
        let Some(why) = answer.unrecorded else { return };
        match &self.agent {
            Some(agent) => gateway.context.audit.turn_away(Source::Agent(agent.clone()), why),
            None => gateway.context.audit.turned_away("stdio", why),
        }
    }
}
