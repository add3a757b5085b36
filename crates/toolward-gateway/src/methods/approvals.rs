//! Decisions of approvers: who may decide what, and the audit records of decisions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::active::Active;
use crate::audit::NotRecorded;
use crate::audit::facts::Facts;
use crate::audit::line::time;
use crate::audit::redact::outside;
use crate::context::Context;
use crate::guard::approvals::{AskingEntries, Failed, Grant, NotDecided, Scope, Subject, Ticket};

/// The longest reason of a denial, in characters.
const MAX_REASON_CHARS: usize = 500;

/// A person who decides about tickets.
#[derive(Debug, Clone)]
pub struct Approver {
    /// The name of an admin; `None`: the user who runs the gateway.
    pub admin: Option<String>,
    /// How the decision arrived: `cli`, `admin-ui`, `elicitation`.
    pub channel: &'static str,
    /// The user id of the peer, if it is known.
    pub uid: Option<u32>,
}

/// The channel of decisions in the client of an agent.
const ELICITATION: &str = "elicitation";

impl Approver {
    /// The person at the client of an agent. They may decide only if the operator trusts the client.
    pub(crate) fn at_client() -> Approver {
        Approver { admin: None, channel: ELICITATION, uid: None }
    }

    /// The name in records.
    pub fn name(&self) -> String {
        match (&self.admin, self.uid) {
            (None, None) if self.channel == ELICITATION => "the person at the client".into(),
            (Some(admin), _) => admin.clone(),
            (None, Some(uid)) => format!("uid {uid}"),
            (None, None) => "the operator".into(),
        }
    }

    /// Whether they may decide about a ticket.
    pub fn may_decide(&self, active: &Active, ticket: &Ticket) -> bool {
        let subject = &ticket.binding.subject;
        let listed = |name: &str| {
            let mut rules = ticket.rules.iter();
            rules.all(|rule| {
                rule.approvers.is_empty() || rule.approvers.iter().any(|one| one == name)
            })
        };
        if self.channel == ELICITATION {
            let anyone = ticket.rules.iter().all(|rule| rule.approvers.is_empty());
            return anyone && active.policy.trusts_ui(subject.agent.as_deref());
        }
        match (&self.admin, active.policy.has_admins()) {
            (Some(admin), true) => {
                active.policy.may_approve(admin, &subject.server, &subject.name) && listed(admin)
            }
            // Without admins, an entry with approvers denies, and has no tickets.
            (None, false) => ticket.rules.iter().all(|rule| rule.approvers.is_empty()),
            _ => false,
        }
    }
}

/// Why a decision is rejected.
#[derive(Debug)]
pub enum Rejected {
    NotDecided(NotDecided),
    /// The approver may not decide about this.
    Forbidden,
    /// The grant would be valid for longer than `max_grant`.
    TooLong(Duration),
    Store(io::Error),
    NotRecorded(NotRecorded),
}

impl From<Failed> for Rejected {
    fn from(failed: Failed) -> Rejected {
        match failed {
            Failed::NotDecided(why) => Rejected::NotDecided(why),
            Failed::Store(error) => Rejected::Store(error),
        }
    }
}

impl From<NotRecorded> for Rejected {
    fn from(error: NotRecorded) -> Rejected {
        Rejected::NotRecorded(error)
    }
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rejected::NotDecided(NotDecided::Unknown) => write!(f, "there is no such ticket"),
            Rejected::NotDecided(NotDecided::Decided) => write!(f, "it is decided already"),
            Rejected::NotDecided(NotDecided::Expired) => write!(f, "it has expired"),
            Rejected::NotDecided(NotDecided::NoSuchArgument) => {
                write!(f, "the call does not have such an argument")
            }
            Rejected::Forbidden => write!(f, "you may not decide about this"),
            Rejected::TooLong(most) => {
                write!(f, "a grant can be valid for at most {} s", most.as_secs())
            }
            Rejected::Store(error) => write!(f, "tickets and grants cannot be stored: {error}"),
            Rejected::NotRecorded(error) => error.fmt(f),
        }
    }
}

/// Approves a ticket. The decision is recorded before it takes effect.
pub async fn approve(
    context: &Context,
    active: &Active,
    (ticket, scope): (&str, &Scope),
    approver: &Approver,
) -> Result<Grant, Rejected> {
    let approvals = &context.approvals;
    let ticket = approvals.decidable(ticket).await?;
    if !approver.may_decide(active, &ticket) {
        return Err(Rejected::Forbidden);
    }
    let most = active.approvals.max_grant;
    if let Scope::Arguments(_, lifetime) | Scope::Tool(lifetime) = scope
        && *lifetime > most
    {
        return Err(Rejected::TooLong(most));
    }
    if let Scope::Arguments(names, _) = scope
        && !names.iter().all(|name| ticket.binding.argument_names().any(|own| own == name))
    {
        return Err(Rejected::NotDecided(NotDecided::NoSuchArgument));
    }
    let mut facts = decided(context, active, &ticket, "approved");
    by(&mut facts, approver);
    match scope {
        Scope::Call => facts.text("scope", "call"),
        Scope::Arguments(names, lifetime) => {
            facts.text("scope", "arguments");
            facts.json("argument_names", &json!(names).to_string());
            facts.number("valid_s", lifetime.as_secs());
        }
        Scope::Tool(lifetime) => {
            facts.text("scope", "tool");
            facts.number("valid_s", lifetime.as_secs());
        }
    }
    record(context, &facts).await?;
    Ok(approvals.approve(&ticket.id, scope, (&approver.name(), approver.channel)).await?)
}

/// Denies a ticket.
pub async fn deny(
    context: &Context,
    active: &Active,
    (ticket, reason): (&str, Option<&str>),
    approver: &Approver,
) -> Result<(), Rejected> {
    let ticket = context.approvals.decidable(ticket).await?;
    if !approver.may_decide(active, &ticket) {
        return Err(Rejected::Forbidden);
    }
    let reason: Option<String> =
        reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect());
    let mut facts = decided(context, active, &ticket, "denied");
    by(&mut facts, approver);
    if let Some(reason) = &reason {
        facts.text("reason", &outside(reason));
    }
    record(context, &facts).await?;
    Ok(context.approvals.deny(&ticket.id, reason).await?)
}

/// Revokes a grant. `None` if there is no such grant.
pub async fn revoke(
    context: &Context,
    active: &Active,
    grant: &str,
    approver: &Approver,
) -> Result<Option<Grant>, Rejected> {
    let grants = context.approvals.grants().await.map_err(Rejected::Store)?;
    let Some(found) = grants.into_iter().find(|one| one.id == grant) else { return Ok(None) };
    let subject = &found.subject;
    let may = match (&approver.admin, active.policy.has_admins()) {
        (Some(admin), true) => active.policy.may_approve(admin, &subject.server, &subject.name),
        (None, false) => true,
        _ => false,
    };
    if !may {
        return Err(Rejected::Forbidden);
    }
    let mut facts = Facts::default();
    facts.text("decision", "revoked");
    facts.text("grant", grant);
    facts.maybe("agent", subject.agent.as_deref());
    facts.text("server", &subject.server);
    facts.text("tool", &outside(&subject.name));
    by(&mut facts, approver);
    facts.text("policy", &active.version);
    record(context, &facts).await?;
    context.approvals.revoke(grant).await.map_err(Rejected::Store)
}

/// Records tickets that no one decided.
pub(crate) async fn record_expired(context: &Context, active: &Active) {
    for ticket in context.approvals.take_expired() {
        let facts = decided(context, active, &ticket, "expired");
        let _ = record(context, &facts).await;
    }
}

/// Removes the tickets and grants that a configuration does not support.
pub(crate) fn activated(context: &Context, active: &Arc<Active>) {
    let (entries, active) = (AskingEntries::of(&active.policy), active.clone());
    let stays = move |subject: &Subject| {
        entries.support(&active.policy, subject) && is_origin(&active, subject)
    };
    context.approvals.retain(stays, |removed| match removed {
        Ok(0) => {}
        Ok(count) => {
            tracing::info!(target: "approvals", "{count} tickets and grants are void: their rules, servers or agents have changed");
        }
        Err(error) => {
            tracing::error!(target: "approvals", "tickets and grants cannot be stored: {error}");
        }
    });
}

/// Whether the server is the same program or address, and the agent has the same credentials, as when someone was asked.
fn is_origin(active: &Active, subject: &Subject) -> bool {
    let server = active.server(&subject.server);
    let origin =
        server.map(|server| active.approvals.origin(&server.identity, subject.agent.as_deref()));
    origin.is_some_and(|origin| origin == subject.origin)
}

fn decided(context: &Context, active: &Active, ticket: &Ticket, decision: &str) -> Facts {
    let subject = &ticket.binding.subject;
    let mut facts = Facts::default();
    facts.text("decision", decision);
    facts.text("ticket", &ticket.id);
    facts.text("reference", &ticket.reference);
    facts.maybe("agent", subject.agent.as_deref());
    facts.text("server", &subject.server);
    facts.text("method", &subject.method);
    facts.text("tool", &outside(&subject.name));
    let rules: Vec<&str> = ticket.rules.iter().map(|rule| rule.path.as_str()).collect();
    facts.json("rules", &json!(rules).to_string());
    facts.text("asked", &time(ticket.created));
    let latency = context.approvals.now().saturating_sub(ticket.created);
    facts.number("latency_ms", latency / 1000);
    facts.text("policy", &active.version);
    facts
}

fn by(facts: &mut Facts, approver: &Approver) {
    facts.text("approver", &approver.name());
    facts.text("channel", approver.channel);
}

async fn record(context: &Context, facts: &Facts) -> Result<(), NotRecorded> {
    context.audit.record(&context.audit.id(), "approval", facts).await
}
