//! Approvals: calls that wait for a person, and the grants that people give.
//!
//! | module | contains |
//! |---|---|
//! | `ticket` | tickets and grants, and what they are bound to |
//! | `tables` | the rules: what may be asked, approved and redeemed, and when |
//! | `store` | where they are kept: memory, the state directory, or a shared store |
//! | `remote` | stores that several gateways share: PostgreSQL, Redis |
//! | `record` | their format in the store |
//! | `canonical` | the canonical form of a call's parameters |
//! | `keys` | the keys that recognize calls and seal arguments |
//! | `notify` | notifications for approvers |
//! | `settings` | the part of the configuration that is about approvals |
//!
//! A grant is bound to the caller, the tool with its definition, the entries that ask, and the parameters. It is
//! redeemed before the call is forwarded, and a grant for one call exists no longer then: nothing is executed twice
//! on one approval, not even after a crash.

mod canonical;
mod keys;
#[cfg(test)]
mod model;
mod notify;
mod record;
mod remote;
#[cfg(test)]
mod scale;
mod settings;
mod store;
mod tables;
mod ticket;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;
use toolward_wire::{Message, Raw};

use self::keys::Keys;
use self::remote::RemoteStore;
use self::store::{LocalStore, Store};
use self::tables::{CALL_GRANT, NewTicket, Tables};
use crate::audit::line::hex;
use crate::clock::micros;
use crate::lock::LockUnpoisoned;
use crate::opaque_id::Sealer;
use crate::random;

pub use self::notify::{Notifier, NotifyFormat};
pub use self::settings::Settings;
pub(crate) use self::settings::{AskingEntries, AskingEntry};
pub use self::tables::NotDecided;
pub(crate) use self::tables::{NotAsked, Redeemed};
pub use self::ticket::{AskedBy, Binding, Grant, Subject, Ticket, TicketState};

/// The bytes of a call's parameters that approvers see.
const MAX_SHOWN_BYTES: usize = 16 << 10;
/// The number of arguments to which a grant can be limited.
const MAX_ARGUMENTS: usize = 64;
/// The interval at which other processes' decisions are looked for while a call waits.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(40);
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A random number that identifies a continuation.
pub(crate) type Nonce = [u8; 16];

/// All tickets and grants, and the calls that wait.
pub struct Approvals {
    store: Store,
    keys: Keys,
    /// Changes with every ticket, decision and grant.
    changed: watch::Sender<u64>,
    /// The number of calls that wait for each ticket in this process.
    waiting: Mutex<HashMap<String, usize>>,
    /// Tickets that no one decided, until they are recorded.
    expired: Mutex<Vec<Ticket>>,
    /// The same moment on two clocks.
    begun: (u64, Instant),
}

/// A call about which a person is to be asked.
pub(crate) struct Question {
    pub(crate) exposed: String,
    pub(crate) holder_name: Option<String>,
    pub(crate) rules: Vec<AskedBy>,
    pub(crate) ttl: Duration,
}

/// A ticket that a call waits for.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) ticket: String,
    pub(crate) reference: String,
    /// How long it still waits for a person.
    pub(crate) left: Duration,
    /// Approvers have not been notified yet.
    pub(crate) notify: bool,
}

/// The outcome of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    Approved,
    Denied(Option<String>),
    /// It has expired, or is void.
    Gone,
}

/// The scope that an approver chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// This call, once.
    Call,
    /// Calls with the same values of these arguments, for a time.
    Arguments(Vec<String>, Duration),
    /// All calls of the tool, for a time.
    Tool(Duration),
}

/// Why an approval is not given.
#[derive(Debug)]
pub enum Failed {
    NotDecided(NotDecided),
    Store(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Store(error)
    }
}

impl From<NotDecided> for Failed {
    fn from(why: NotDecided) -> Failed {
        Failed::NotDecided(why)
    }
}

impl Approvals {
    /// Tickets and grants that are lost when the process exits.
    pub fn in_memory() -> io::Result<Approvals> {
        Ok(Approvals::new(
            Store::Local(Box::new(Mutex::new(LocalStore::in_memory()))),
            Keys::random()?,
        ))
    }

    /// Tickets and grants in a state directory. `configuration` names the configuration that they belong to: gateways
    /// with another one have other rules.
    pub fn in_state(state: &Path, configuration: &str) -> io::Result<Approvals> {
        let keys = Keys::in_state(state)?;
        let folder: String = hex(&Sha256::digest(configuration)).chars().take(16).collect();
        let store = LocalStore::in_directory(&state.join("approvals").join(folder))?;
        Ok(Approvals::new(Store::Local(Box::new(Mutex::new(store))), keys))
    }

    /// Tickets and grants in a store that gateways with the same keys share: `postgres://…`, or `redis://…`. `ca` has
    /// the certificates that `sslrootcert` names.
    pub fn shared(url: &str, ca: Option<&[u8]>, sealer: Arc<Sealer>) -> io::Result<Approvals> {
        let changed = watch::Sender::new(0);
        let (store, secret) = RemoteStore::open(url, ca, sealer, changed.clone())?;
        Ok(Approvals { changed, ..Approvals::new(Store::Remote(store), Keys::of_secret(&secret)?) })
    }

    fn new(store: Store, keys: Keys) -> Approvals {
        Approvals {
            store,
            keys,
            changed: watch::Sender::new(0),
            waiting: Mutex::default(),
            expired: Mutex::default(),
            begun: (micros(), Instant::now()),
        }
    }

    /// The time. If the two clocks disagree, the later one counts: a grant never lives longer than it should, whether
    /// the machine slept or its clock was turned back.
    pub fn now(&self) -> u64 {
        let (wall, begun) = self.begun;
        let passed = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        micros().max(wall.saturating_add(passed))
    }

    /// Changes with every ticket, decision and grant.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    async fn change<T: Send + 'static>(
        &self,
        mut change: impl FnMut(&mut Tables, u64) -> T + Send + 'static,
    ) -> io::Result<T> {
        let now = self.now();
        let changed = self.store.change(move |tables| {
            let expired = tables.expire(now);
            (change(tables, now), expired)
        });
        let (changed, expired) = changed.await?;
        self.expired.locked().extend(expired);
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        Ok(changed)
    }

    /// Tickets that have expired since the last call, for the audit log.
    pub(crate) fn take_expired(&self) -> Vec<Ticket> {
        std::mem::take(&mut *self.expired.locked())
    }

    /// Looks for changes by other processes.
    pub async fn look(&self) {
        if self.is_polled() && self.store.read_current(|_| ()).is_none() {
            let _ = self.change(|_, _| ()).await;
        }
    }

    /// Whether decisions of other processes have to be looked for. Otherwise they arrive as changes.
    pub(crate) fn is_polled(&self) -> bool {
        self.store.is_polled()
    }

    fn bind(&self, subject: Subject, message: &Message) -> Binding {
        Binding::new(&self.keys, subject, &canonical::params(message))
    }

    fn add_arguments(&self, binding: &mut Binding, message: &Message) {
        let arguments = message.arguments().into_iter().flat_map(|given| given.members());
        let arguments = arguments.take(MAX_ARGUMENTS);
        let canonical = arguments.map(|(name, value)| (name.into_owned(), canonical::value(value)));
        binding.add_arguments(&self.keys, canonical);
    }

    /// Uses a grant that covers a call. The error denies the call. A call that continues an approved one is covered
    /// by its continuation alone.
    pub(crate) async fn redeem(
        &self,
        subject: Subject,
        message: &Message,
        continues: Option<&Nonce>,
    ) -> io::Result<Result<Redeemed, Box<Binding>>> {
        let (mut binding, now) = (self.bind(subject, message), self.now());
        if let Some(nonce) = continues {
            return self.redeem_bound(self.continued(binding, nonce)).await;
        }
        let covered = self.store.read_current(|tables| {
            if tables.reads_arguments(&binding) {
                self.add_arguments(&mut binding, message);
            }
            tables.covers_always(&binding, now)
        });
        if let Some(redeemed) = covered.flatten() {
            return Ok(Ok(redeemed));
        }
        if binding.arguments.is_empty() {
            self.add_arguments(&mut binding, message);
        }
        self.redeem_bound(binding).await
    }

    async fn redeem_bound(&self, binding: Binding) -> io::Result<Result<Redeemed, Box<Binding>>> {
        let bound = binding.clone();
        let redeemed = self.change(move |tables, now| tables.redeem(&bound, now)).await?;
        Ok(redeemed.ok_or_else(|| Box::new(binding)))
    }

    /// Permits one continuation of a call that was approved: its server needs input, and the client repeats it. The
    /// number is part of what the client has to present.
    pub(crate) async fn permit_continuation(
        &self,
        subject: Subject,
        message: &Message,
        approved: &Redeemed,
    ) -> io::Result<Nonce> {
        let mut nonce = Nonce::default();
        random::fill(&mut nonce)?;
        let binding = self.continued(self.bind(subject, message), &nonce);
        let now = self.now();
        let grant = Grant {
            id: code(8)?,
            tool_tag: binding.tool_tag,
            subject_tag: binding.subject_tag,
            scope: ticket::GrantScope::Call(binding.call),
            subject: binding.subject,
            once: true,
            created: now,
            expires: now.saturating_add(CALL_GRANT),
            by: approved.by.clone(),
            channel: approved.channel.clone(),
            ticket: approved.grant.clone(),
        };
        self.change(move |tables, _| tables.add_grant(grant.clone())).await?;
        Ok(nonce)
    }

    fn continued(&self, binding: Binding, nonce: &Nonce) -> Binding {
        let call = self.keys.tag(&[b"continued", &binding.call, nonce]);
        Binding { call, ..binding }
    }

    /// Asks about a call, or joins the ticket of an identical one.
    pub(crate) async fn ask(
        &self,
        binding: &Binding,
        message: &Message,
        question: Question,
    ) -> io::Result<Result<Waiting, NotAsked>> {
        let params = canonical::params(message);
        let (id, reference) = (code(8)?, code(6)?);
        let shown = params.get(..MAX_SHOWN_BYTES).unwrap_or(&params);
        let new = NewTicket {
            sealed: self.keys.seal(&id, shown)?,
            id,
            reference,
            binding: binding.clone(),
            exposed: question.exposed,
            holder_name: question.holder_name,
            rules: question.rules,
            ttl: u64::try_from(question.ttl.as_micros()).unwrap_or(u64::MAX),
            bytes: params.len(),
        };
        let asked = self.change(move |tables, now| (tables.ask(new.clone(), now), now)).await?;
        Ok(asked.0.map(|own| Waiting {
            ticket: own.ticket,
            reference: own.reference,
            left: Duration::from_micros(own.expires.saturating_sub(asked.1)),
            notify: own.notify,
        }))
    }

    /// The outcome of a ticket.
    pub(crate) fn outcome(&self, ticket: &str) -> Outcome {
        let now = self.now();
        // Another process' changes are read by `look`.
        self.store.read(|tables| match tables.ticket(ticket) {
            None => Outcome::Gone,
            Some(ticket) => match &ticket.state {
                TicketState::Pending if now >= ticket.expires => Outcome::Gone,
                TicketState::Pending => Outcome::Pending,
                TicketState::Approved { .. } => Outcome::Approved,
                TicketState::Denied { reason } => Outcome::Denied(reason.clone()),
            },
        })
    }

    /// The tickets that wait for a person, the oldest first.
    pub async fn pending(&self) -> io::Result<Vec<Ticket>> {
        Ok(self.oldest_pending(usize::MAX).await?.0)
    }

    /// The oldest tickets that wait for a person, and how many there are.
    pub async fn oldest_pending(&self, most: usize) -> io::Result<(Vec<Ticket>, usize)> {
        let oldest = self.read(move |tables, _| {
            let mut all: Vec<&Ticket> =
                tables.tickets().filter(|ticket| ticket.is_pending()).collect();
            all.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
            (all.iter().take(most).map(|ticket| (*ticket).clone()).collect(), all.len())
        });
        oldest.await
    }

    /// How many tickets wait for a person, as far as this process knows.
    pub fn pending_count(&self) -> usize {
        let now = self.now();
        let waits = |ticket: &&Ticket| ticket.is_pending() && now < ticket.expires;
        self.store.read(|tables| tables.tickets().filter(waits).count())
    }

    /// The grants that are valid, those that expire first at the beginning.
    pub async fn grants(&self) -> io::Result<Vec<Grant>> {
        let mut grants: Vec<Grant> =
            self.read(|tables, _| tables.grants().cloned().collect()).await?;
        grants.sort_by(|one, other| (one.expires, &one.id).cmp(&(other.expires, &other.id)));
        Ok(grants)
    }

    /// Reads records. Waiting calls are not woken, because nothing has changed for them.
    async fn read<T: Send + 'static>(
        &self,
        mut read: impl FnMut(&mut Tables, u64) -> T + Send + 'static,
    ) -> io::Result<T> {
        let now = self.now();
        let changed = self.store.change(move |tables| {
            let expired = tables.expire(now);
            (read(tables, now), expired)
        });
        let (value, expired) = changed.await?;
        self.expired.locked().extend(expired);
        Ok(value)
    }

    pub fn ticket(&self, id: &str) -> Option<Ticket> {
        self.store.read(|tables| tables.ticket(id).cloned())
    }

    /// The parameters of a call that waits, as canonical JSON; they may be cut at the end.
    pub fn params(&self, ticket: &Ticket) -> Option<String> {
        let opened = self.keys.open(&ticket.id, ticket.sealed.as_deref()?)?;
        Some(String::from_utf8_lossy(&opened).into_owned())
    }

    /// How many calls of this process wait for a ticket.
    pub fn waiting(&self, ticket: &str) -> usize {
        self.waiting.locked().get(ticket).copied().unwrap_or(0)
    }

    /// Counts a call that waits, until the guard is dropped.
    pub(crate) fn wait(&self, ticket: &str) -> WaitGuard<'_> {
        *self.waiting.locked().entry(ticket.into()).or_default() += 1;
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        WaitGuard { approvals: self, ticket: ticket.into() }
    }

    /// The ticket that a decision is about.
    pub async fn decidable(&self, id: &str) -> Result<Ticket, Failed> {
        let id = id.to_owned();
        Ok(self.read(move |tables, now| tables.decidable(&id, now).cloned()).await??)
    }

    /// Approves a ticket.
    pub async fn approve(
        &self,
        ticket: &str,
        scope: &Scope,
        (by, channel): (&str, &str),
    ) -> Result<Grant, Failed> {
        let (id, ticket, scope) = (code(8)?, ticket.to_owned(), scope.clone());
        let (by, channel) = (by.to_owned(), channel.to_owned());
        let approved = self.change(move |tables, now| {
            let ticket = tables.decidable(&ticket, now)?;
            let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            let (once, lifetime) = match &scope {
                Scope::Call => (true, CALL_GRANT),
                Scope::Arguments(_, time) | Scope::Tool(time) => (false, micros(time)),
            };
            let scope = match &scope {
                Scope::Call => ticket::GrantScope::Call(ticket.binding.call),
                Scope::Arguments(names, _) => Tables::scope(ticket, names)?,
                Scope::Tool(_) => ticket::GrantScope::Tool,
            };
            let ticket = ticket.id.clone();
            let grant = |of: &Ticket| Grant {
                id: id.clone(),
                subject: of.binding.subject.clone(),
                tool_tag: of.binding.tool_tag,
                subject_tag: of.binding.subject_tag,
                scope,
                once,
                created: now,
                expires: now.saturating_add(lifetime),
                by: by.clone(),
                channel: channel.clone(),
                ticket: of.id.clone(),
            };
            tables.approve(&ticket, grant, now)
        });
        Ok(approved.await??)
    }

    pub async fn deny(&self, ticket: &str, reason: Option<String>) -> Result<(), Failed> {
        let ticket = ticket.to_owned();
        Ok(self.change(move |tables, now| tables.deny(&ticket, reason.clone(), now)).await??)
    }

    /// Revokes a grant, and returns it.
    pub async fn revoke(&self, grant: &str) -> io::Result<Option<Grant>> {
        let grant = grant.to_owned();
        self.change(move |tables, _| tables.revoke(&grant)).await
    }

    /// Removes tickets and grants that the active configuration does not support. `done` learns how many. Later
    /// changes of this process find them removed.
    ///
    /// Nothing is removed from a shared store: while a change of the configuration is rolled out, other gateways still
    /// have the rules. Grants that this one does not support cover none of its calls, and expire.
    pub fn retain(
        &self,
        stays: impl Fn(&Subject) -> bool + Send + 'static,
        done: impl FnOnce(io::Result<usize>) + Send + 'static,
    ) {
        match self.store.is_shared() {
            true => done(Ok(0)),
            false => self.store.submit(move |tables| tables.retain(&stays), done),
        }
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// A call that waits for a ticket.
pub(crate) struct WaitGuard<'a> {
    approvals: &'a Approvals,
    ticket: String,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.approvals.waiting.locked();
        if let Some(count) = waiting.get_mut(&self.ticket) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.ticket);
            }
        }
        drop(waiting);
        self.approvals.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// A digest of a definition, for [`Subject::definition`].
pub(crate) fn definition_digest(definition: Raw<'_>) -> String {
    hex(&Sha256::digest(canonical::value(definition)))
}

/// A random code of letters and digits that are not confused with each other.
fn code(length: usize) -> io::Result<String> {
    let mut bytes = vec![0; length];
    random::fill(&mut bytes)?;
    let letter = |byte: &u8| ALPHABET.get(usize::from(*byte % 32)).copied().unwrap_or(b'A');
    Ok(bytes.iter().map(letter).map(char::from).collect())
}
