//! The rules of tickets and grants, without I/O: what may be asked, approved and redeemed, and when.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use super::keys::Tag;
use super::ticket::{AskedBy, Binding, CLOCK_TOLERANCE, Grant, GrantScope, Ticket, TicketState};

/// Maximum number of an agent's tickets that wait for a person.
pub(super) const MAX_PENDING: usize = 20;
/// Maximum number of notifications about an agent's calls in [`NOTIFY_WINDOW`].
const MAX_NOTIFIED: usize = 10;
const NOTIFY_WINDOW: u64 = 60 * SECOND;
/// After this many denials of an agent's calls of a tool in [`FATIGUE_WINDOW`], no one is asked.
const MAX_DENIALS: usize = 5;
const FATIGUE_WINDOW: u64 = 600 * SECOND;
/// How long the grant for a single call is valid.
pub(super) const CALL_GRANT: u64 = 900 * SECOND;
/// How long a decided ticket is kept, for calls that still wait for it.
const KEEP_DECIDED: u64 = 60 * SECOND;
/// Maximum bytes of all stored arguments.
const MAX_SEALED_BYTES: usize = 32 << 20;
/// Above this number, agents and tools without recent denials or notifications are forgotten.
const MAX_REMEMBERED: usize = 4096;
pub(super) const SECOND: u64 = 1_000_000;

/// All tickets and grants.
#[derive(Debug, Default, Clone)]
pub(super) struct Tables {
    tickets: HashMap<String, Ticket>,
    /// Tickets that wait for a person, by the call.
    pending: HashMap<Tag, String>,
    grants: HashMap<String, Grant>,
    /// The ids of grants, by caller and tool.
    by_tool: HashMap<Tag, Vec<String>>,
    denials: Denials,
    notified: Notified,
    /// Bytes of all stored arguments.
    sealed: usize,
    /// Nothing expires before this time. Zero: it is not known.
    earliest: u64,
    /// Changes that are not stored yet.
    changes: Vec<Change>,
}

/// Times of denials, by agent, server and tool.
type Denials = HashMap<(Option<String>, String, String), VecDeque<u64>>;
/// Times of notifications, by agent.
type Notified = HashMap<Option<String>, VecDeque<u64>>;

/// Recent notifications and denials.
pub(super) struct Memories {
    denials: Denials,
    notified: Notified,
}

/// A record that changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Ticket(String),
    Grant(String),
}

/// A call about which a person is to be asked.
#[derive(Clone)]
pub(super) struct NewTicket {
    pub(super) id: String,
    pub(super) reference: String,
    pub(super) binding: Binding,
    pub(super) exposed: String,
    pub(super) holder_name: Option<String>,
    pub(super) rules: Vec<AskedBy>,
    /// In microseconds.
    pub(super) ttl: u64,
    pub(super) sealed: Vec<u8>,
    pub(super) bytes: usize,
}

/// A ticket that a call waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) ticket: String,
    pub(super) reference: String,
    pub(super) expires: u64,
    /// Approvers are to be notified.
    pub(super) notify: bool,
}

/// Why no one is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many calls of this agent wait already.
    TooMany,
    /// People have denied such calls several times.
    Fatigue,
    /// There is no room for the arguments.
    Full,
}

/// A grant that was used for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redeemed {
    pub(crate) grant: String,
    pub(crate) by: String,
    pub(crate) channel: String,
}

/// Why a decision about a ticket is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDecided {
    Unknown,
    /// It is decided already.
    Decided,
    Expired,
    /// The call does not have such an argument.
    NoSuchArgument,
}

impl Tables {
    pub(super) fn ticket(&self, id: &str) -> Option<&Ticket> {
        self.tickets.get(id)
    }

    pub(super) fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.tickets.values()
    }

    pub(super) fn grant(&self, id: &str) -> Option<&Grant> {
        self.grants.get(id)
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.values()
    }

    /// Removes a record without recording a change.
    pub(super) fn forget(&mut self, is_ticket: bool, id: &str) {
        match is_ticket {
            true => drop(self.remove_ticket(id)),
            false => {
                self.remove_grant(id);
                self.changes.retain(|change| !matches!(change, Change::Grant(own) if own == id));
            }
        }
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.changes);
        let mut seen = HashSet::new();
        changes.retain(|change| seen.insert(change.clone()));
        changes
    }

    /// A grant that covers a call and is not used up by it, if nothing has to be changed for it.
    pub(super) fn covers_always(&self, binding: &Binding, now: u64) -> Option<Redeemed> {
        let grant = self.covering(binding, now).find(|grant| !grant.once)?;
        self.of_other_definitions(binding).next().is_none().then(|| redeemed(grant))
    }

    fn covering(&self, binding: &Binding, now: u64) -> impl Iterator<Item = &Grant> {
        self.of_tool(binding).filter(move |grant| grant.covers(binding, now))
    }

    /// The grants of a caller for a tool.
    fn of_tool(&self, binding: &Binding) -> impl Iterator<Item = &Grant> {
        let ids = self.by_tool.get(&binding.tool_tag).into_iter().flatten();
        ids.filter_map(|id| self.grants.get(id))
    }

    /// Takes what is remembered about people's attention, which is not stored.
    pub(super) fn take_memories(&mut self) -> Memories {
        Memories {
            denials: std::mem::take(&mut self.denials),
            notified: std::mem::take(&mut self.notified),
        }
    }

    pub(super) fn keep_memories(&mut self, memories: Memories) {
        (self.denials, self.notified) = (memories.denials, memories.notified);
    }

    /// Whether a grant for a tool is limited to values of arguments.
    pub(super) fn reads_arguments(&self, binding: &Binding) -> bool {
        let mut grants = self.of_tool(binding);
        grants.any(|grant| matches!(grant.scope, GrantScope::Arguments(_)))
    }

    /// Uses a grant for a call. A grant for one call is gone afterwards, whatever becomes of the call.
    pub(super) fn redeem(&mut self, binding: &Binding, now: u64) -> Option<Redeemed> {
        self.void_other_definitions(binding);
        if let Some(redeemed) = self.covers_always(binding, now) {
            return Some(redeemed);
        }
        let found = redeemed(self.covering(binding, now).next()?);
        self.remove_grant(&found.grant);
        Some(found)
    }

    /// Grants for another definition of the same tool are void, even if the definition changes back.
    fn void_other_definitions(&mut self, binding: &Binding) {
        let void: Vec<String> = self.of_other_definitions(binding).cloned().collect();
        void.iter().for_each(|id| self.remove_grant(id));
    }

    fn of_other_definitions(&self, binding: &Binding) -> impl Iterator<Item = &String> {
        let definition = &binding.subject.definition;
        let other = move |grant: &&Grant| grant.subject.definition != *definition;
        self.of_tool(binding).filter(other).map(|grant| &grant.id)
    }

    /// Asks about a call, unless someone has been asked about the same call already.
    pub(super) fn ask(&mut self, new: NewTicket, now: u64) -> Result<Asked, NotAsked> {
        self.expire(now);
        let known = self.pending.get(&new.binding.call).and_then(|id| self.tickets.get(id));
        if let Some(ticket) = known {
            let Ticket { id, reference, expires, .. } = ticket.clone();
            return Ok(Asked { ticket: id, reference, expires, notify: false });
        }
        self.forget_old_times(now);
        let subject = &new.binding.subject;
        let agent = subject.agent.as_deref().map(String::from);
        if self.is_fatigued(&new.binding, now) {
            return Err(NotAsked::Fatigue);
        }
        let of_agent =
            |ticket: &&Ticket| ticket.is_pending() && ticket.binding.subject.agent == subject.agent;
        if self.tickets.values().filter(of_agent).count() >= MAX_PENDING {
            return Err(NotAsked::TooMany);
        }
        if self.sealed + new.sealed.len() > MAX_SEALED_BYTES {
            return Err(NotAsked::Full);
        }
        let notified = self.notified.entry(agent).or_default();
        let notify = within(notified, NOTIFY_WINDOW, now) < MAX_NOTIFIED;
        if notify {
            notified.push_back(now);
        }
        let ticket = Ticket {
            id: new.id,
            reference: new.reference,
            binding: new.binding,
            exposed: new.exposed,
            holder_name: new.holder_name,
            rules: new.rules,
            created: now,
            expires: now.saturating_add(new.ttl),
            sealed: Some(new.sealed),
            bytes: new.bytes,
            state: TicketState::Pending,
        };
        let asked = Asked {
            ticket: ticket.id.clone(),
            reference: ticket.reference.clone(),
            expires: ticket.expires,
            notify,
        };
        self.changes.push(Change::Ticket(ticket.id.clone()));
        self.put_ticket(ticket);
        Ok(asked)
    }

    /// Bounds the memory of denials and notifications.
    fn forget_old_times(&mut self, now: u64) {
        if self.denials.len() >= MAX_REMEMBERED {
            self.denials.retain(|_, times| within(times, FATIGUE_WINDOW, now) > 0);
        }
        if self.notified.len() >= MAX_REMEMBERED {
            self.notified.retain(|_, times| within(times, NOTIFY_WINDOW, now) > 0);
        }
    }

    fn is_fatigued(&mut self, binding: &Binding, now: u64) -> bool {
        let denials = self.denials.get_mut(&tool_of(binding));
        denials.is_some_and(|times| within(times, FATIGUE_WINDOW, now) >= MAX_DENIALS)
    }

    /// The ticket that a decision is about.
    pub(super) fn decidable(&self, id: &str, now: u64) -> Result<&Ticket, NotDecided> {
        let ticket = self.tickets.get(id).ok_or(NotDecided::Unknown)?;
        match ticket.is_pending() {
            false => Err(NotDecided::Decided),
            true if now >= ticket.expires
                || now.saturating_add(CLOCK_TOLERANCE) < ticket.created =>
            {
                Err(NotDecided::Expired)
            }
            true => Ok(ticket),
        }
    }

    /// The scope of a grant for a ticket; `arguments` are the names of those that must be the same.
    pub(super) fn scope(ticket: &Ticket, arguments: &[String]) -> Result<GrantScope, NotDecided> {
        let binding = &ticket.binding;
        let value = |name: &String| {
            let found = binding.arguments.iter().find(|(own, _)| own == name);
            found.cloned().ok_or(NotDecided::NoSuchArgument)
        };
        arguments.iter().map(value).collect::<Result<_, _>>().map(GrantScope::Arguments)
    }

    /// Approves a ticket: its grant covers the calls that wait for it, and later ones.
    pub(super) fn approve(
        &mut self,
        ticket: &str,
        grant: impl FnOnce(&Ticket) -> Grant,
        now: u64,
    ) -> Result<Grant, NotDecided> {
        let grant = grant(self.decidable(ticket, now)?);
        self.decide(ticket, TicketState::Approved { grant: grant.id.clone() }, now);
        self.add_grant(grant.clone());
        Ok(grant)
    }

    pub(super) fn add_grant(&mut self, grant: Grant) {
        self.changes.push(Change::Grant(grant.id.clone()));
        self.put_grant(grant);
    }

    pub(super) fn deny(
        &mut self,
        id: &str,
        reason: Option<String>,
        now: u64,
    ) -> Result<(), NotDecided> {
        let ticket = self.decidable(id, now)?;
        let tool = tool_of(&ticket.binding);
        let denials = self.denials.entry(tool).or_default();
        within(denials, FATIGUE_WINDOW, now);
        denials.push_back(now);
        self.decide(id, TicketState::Denied { reason }, now);
        Ok(())
    }

    /// Decides a ticket and erases its arguments.
    fn decide(&mut self, id: &str, state: TicketState, now: u64) {
        let Some(mut ticket) = self.remove_ticket(id) else { return };
        ticket.state = state;
        ticket.sealed = None;
        ticket.expires = now.saturating_add(KEEP_DECIDED);
        self.changes.push(Change::Ticket(id.into()));
        self.put_ticket(ticket);
    }

    pub(super) fn revoke(&mut self, id: &str) -> Option<Grant> {
        let grant = self.grants.get(id).cloned()?;
        self.remove_grant(id);
        Some(grant)
    }

    /// Removes what has expired, and returns the tickets that no one decided.
    pub(super) fn expire(&mut self, now: u64) -> Vec<Ticket> {
        if now < self.earliest {
            return Vec::new();
        }
        let early = now.saturating_add(CLOCK_TOLERANCE);
        let over = |ticket: &&Ticket| now >= ticket.expires || early < ticket.created;
        let over: Vec<String> =
            self.tickets.values().filter(over).map(|ticket| ticket.id.clone()).collect();
        let mut undecided = Vec::new();
        for id in over {
            self.changes.push(Change::Ticket(id.clone()));
            undecided.extend(self.remove_ticket(&id).filter(Ticket::is_pending));
        }
        let over = |grant: &&Grant| now >= grant.expires || early < grant.created;
        let over: Vec<String> =
            self.grants.values().filter(over).map(|grant| grant.id.clone()).collect();
        over.iter().for_each(|id| self.remove_grant(id));
        let tickets = self.tickets.values().map(|ticket| ticket.expires);
        let grants = self.grants.values().map(|grant| grant.expires);
        self.earliest = tickets.chain(grants).min().unwrap_or(u64::MAX);
        undecided
    }

    /// Removes tickets and grants that the active configuration no longer supports.
    pub(super) fn retain(&mut self, stays: impl Fn(&super::ticket::Subject) -> bool) -> usize {
        let void = |ticket: &&Ticket| ticket.is_pending() && !stays(&ticket.binding.subject);
        let tickets: Vec<String> =
            self.tickets.values().filter(void).map(|ticket| ticket.id.clone()).collect();
        for id in &tickets {
            self.changes.push(Change::Ticket(id.clone()));
            self.remove_ticket(id);
        }
        let void = |grant: &&Grant| !stays(&grant.subject);
        let grants: Vec<String> =
            self.grants.values().filter(void).map(|grant| grant.id.clone()).collect();
        grants.iter().for_each(|id| self.remove_grant(id));
        tickets.len() + grants.len()
    }

    /// Adds a ticket without recording a change.
    pub(super) fn put_ticket(&mut self, ticket: Ticket) {
        self.remove_ticket(&ticket.id.clone());
        if ticket.is_pending() {
            self.pending.insert(ticket.binding.call, ticket.id.clone());
        }
        self.sealed += ticket.sealed.as_ref().map_or(0, Vec::len);
        self.earliest = self.earliest.min(ticket.expires);
        self.tickets.insert(ticket.id.clone(), ticket);
    }

    fn remove_ticket(&mut self, id: &str) -> Option<Ticket> {
        let ticket = self.tickets.remove(id)?;
        self.sealed -= ticket.sealed.as_ref().map_or(0, Vec::len);
        if self.pending.get(&ticket.binding.call).is_some_and(|own| own == id) {
            self.pending.remove(&ticket.binding.call);
        }
        Some(ticket)
    }

    /// Adds a grant without recording a change.
    pub(super) fn put_grant(&mut self, grant: Grant) {
        let ids = self.by_tool.entry(grant.tool_tag).or_default();
        if !ids.contains(&grant.id) {
            ids.push(grant.id.clone());
        }
        self.earliest = self.earliest.min(grant.expires);
        self.grants.insert(grant.id.clone(), grant);
    }

    fn remove_grant(&mut self, id: &str) {
        let Some(grant) = self.grants.remove(id) else { return };
        self.changes.push(Change::Grant(id.into()));
        if let Some(ids) = self.by_tool.get_mut(&grant.tool_tag) {
            ids.retain(|own| own != id);
            if ids.is_empty() {
                self.by_tool.remove(&grant.tool_tag);
            }
        }
    }
}

fn redeemed(grant: &Grant) -> Redeemed {
    Redeemed { grant: grant.id.clone(), by: grant.by.clone(), channel: grant.channel.clone() }
}

/// An agent and a tool, for fatigue.
fn tool_of(binding: &Binding) -> (Option<String>, String, String) {
    let subject = &binding.subject;
    let agent = subject.agent.as_deref().map(String::from);
    (agent, subject.server.clone(), subject.name.clone())
}

/// Drops times that are too old, and counts the rest.
fn within(times: &mut VecDeque<u64>, window: u64, now: u64) -> usize {
    while times.front().is_some_and(|time| time.saturating_add(window) <= now) {
        times.pop_front();
    }
    times.len()
}
