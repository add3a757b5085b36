//! The queue of calls that wait for a person, and the decisions about them.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use toolward_gateway::active::Active;
use toolward_gateway::audit::line::time;
use toolward_gateway::guard::approvals::{Grant, Scope, Ticket};
use toolward_gateway::methods::approvals::{self, Approver};
use toolward_wire::Raw;
use toolward_wire::list::ListKind;

use crate::admin::admins::SignedIn;
use crate::admin::query::encoded;
use crate::admin::view::live::{self, rows::Row};
use crate::admin::view::moment;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};

/// The tickets that a page shows; the oldest come first.
const SHOWN: usize = 100;
/// The calls of an agent that are shown with its ticket.
const RECENT: usize = 5;
/// The times that can be chosen for a grant.
const TIMES: [(&str, u64); 5] =
    [("15 min", 900), ("1 h", 3600), ("8 h", 28_800), ("1 day", 86_400), ("7 days", 604_800)];

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    layout: Layout,
    queue: Queue,
}

#[derive(Template)]
#[template(path = "approvals_part.html")]
struct ApprovalsPart {
    queue: Queue,
}

#[derive(Template)]
#[template(path = "approvals_recent.html")]
struct Recent {
    calls: Vec<Row>,
    refusals: Vec<Row>,
}

struct Queue {
    /// How a decision ended.
    message: Option<String>,
    /// Why the person cannot decide anything.
    read_only: Option<&'static str>,
    admin: Option<String>,
    tickets: Vec<ShownTicket>,
    more: usize,
    grants: Vec<ShownGrant>,
    times: Vec<(&'static str, u64)>,
}

struct ShownTicket {
    id: String,
    reference: String,
    agent: Option<String>,
    agent_query: String,
    holder: Option<String>,
    server: String,
    tool: String,
    method: String,
    exposed: String,
    waiting: usize,
    left: String,
    expires: String,
    rules: Vec<(String, String)>,
    params: Params,
    definition: Option<String>,
    may_decide: bool,
}

/// The parameters of a call: by argument if all of them are known.
struct Params {
    arguments: Vec<ShownArgument>,
    /// Everything that is not an argument, or the beginning of all parameters.
    rest: Option<String>,
    /// How many bytes are shown, and how many there are.
    cut: Option<(usize, usize)>,
}

struct ShownArgument {
    name: String,
    value: String,
    /// It contains characters that can look like others.
    is_odd: bool,
}

struct ShownGrant {
    id: String,
    agent: String,
    tool: String,
    scope: String,
    expires: String,
    by: String,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query, signed: &SignedIn) -> ViewResponse {
    match &*query.rest {
        "" => respond(page, query, signed, None).await,
        "recent" => {
            let latest = live::latest_of(page, query.word("agent"), RECENT).await;
            ViewResponse::of(&Recent { calls: latest.calls, refusals: latest.refusals })
        }
        _ => ViewResponse::Missing,
    }
}

async fn respond(
    page: &Arc<AdminUi>,
    query: &Query,
    signed: &SignedIn,
    message: Option<String>,
) -> ViewResponse {
    let queue = match queue(page, signed, message).await {
        Ok(queue) => queue,
        Err(error) => return ViewResponse::Wrong(format!("Tickets cannot be read: {error}")),
    };
    if query.fragment {
        return ViewResponse::of(&ApprovalsPart { queue });
    }
    let layout = Layout::new(page, "approvals", "Approvals").await;
    ViewResponse::of(&ApprovalsPage { layout, queue })
}

/// The approver behind a browser. With admins, the token of the state directory only reads.
fn approver(active: &Active, signed: &SignedIn) -> Result<Approver, &'static str> {
    match (&signed.admin, active.policy.has_admins()) {
        (None, true) => Err("This token is read-only. Log in with an admin’s token to decide."),
        (admin, _) => Ok(Approver { admin: admin.clone(), channel: "admin-ui", uid: None }),
    }
}

/// Decides about a ticket, or revokes a grant.
pub(crate) async fn decide(page: &Arc<AdminUi>, query: &Query, signed: &SignedIn) -> ViewResponse {
    let (context, active) = (&page.gateway().context, page.gateway().active());
    let approver = match approver(&active, signed) {
        Ok(approver) => approver,
        Err(why) => return ViewResponse::Forbidden(why.into()),
    };
    let id = query.get("id").unwrap_or_default();
    let outcome = match query.get("do") {
        Some("approve") => match scope(query) {
            Ok(scope) => approvals::approve(context, &active, (id, &scope), &approver)
                .await
                .map(|_| format!("{id} is approved.")),
            Err(why) => return respond(page, query, signed, Some(why.into())).await,
        },
        Some("deny") => {
            let reason = query.word("reason");
            approvals::deny(context, &active, (id, reason), &approver)
                .await
                .map(|()| format!("{id} is denied."))
        }
        Some("revoke") => approvals::revoke(context, &active, id, &approver).await.map(|revoked| {
            let word = if revoked.is_some() { "is revoked" } else { "does not exist any more" };
            format!("The grant {id} {word}.")
        }),
        _ => return ViewResponse::Wrong("The decision is not known.".into()),
    };
    match outcome {
        Ok(message) => respond(page, query, signed, Some(message)).await,
        Err(approvals::Rejected::Forbidden) => {
            ViewResponse::Forbidden("You may not decide about this.".into())
        }
        Err(why) => respond(page, query, signed, Some(format!("{id}: {why}."))).await,
    }
}

fn scope(query: &Query) -> Result<Scope, &'static str> {
    let time = || {
        let seconds = query.get("for").and_then(|text| text.parse().ok());
        seconds.map(Duration::from_secs).ok_or("Choose how long the grant is valid.")
    };
    match query.get("scope").unwrap_or("call") {
        "call" => Ok(Scope::Call),
        "tool" => Ok(Scope::Tool(time()?)),
        "args" => {
            let names: Vec<String> = query.all("key").map(String::from).collect();
            match names.is_empty() {
                true => Err("Choose the arguments that must stay the same."),
                false => Ok(Scope::Arguments(names, time()?)),
            }
        }
        _ => Err("The scope is not known."),
    }
}

async fn queue(
    page: &AdminUi,
    signed: &SignedIn,
    message: Option<String>,
) -> std::io::Result<Queue> {
    let (gateway, active) = (page.gateway(), page.gateway().active());
    let approvals = &gateway.context.approvals;
    let approver = approver(&active, signed);
    let (tickets, all) = approvals.oldest_pending(SHOWN).await?;
    let more = all.saturating_sub(SHOWN);
    let shown = tickets.iter().map(|ticket| {
        let may_decide = approver.as_ref().is_ok_and(|one| one.may_decide(&active, ticket));
        shown(page, &active, ticket, may_decide)
    });
    let most = active.approvals.max_grant.as_secs();
    Ok(Queue {
        message,
        read_only: approver.as_ref().err().copied(),
        admin: signed.admin.clone(),
        tickets: shown.collect(),
        more,
        grants: approvals.grants().await?.iter().map(shown_grant).collect(),
        times: TIMES.into_iter().filter(|(_, seconds)| *seconds <= most).collect(),
    })
}

fn shown(page: &AdminUi, active: &Active, ticket: &Ticket, may_decide: bool) -> ShownTicket {
    let approvals = &page.gateway().context.approvals;
    let subject = &ticket.binding.subject;
    let left = ticket.expires.saturating_sub(approvals.now()) / 1_000_000;
    ShownTicket {
        id: ticket.id.clone(),
        reference: ticket.reference.clone(),
        agent: subject.agent.as_deref().map(String::from),
        agent_query: encoded(subject.agent.as_deref().unwrap_or_default()),
        holder: ticket.holder_name.clone(),
        server: subject.server.clone(),
        tool: subject.name.clone(),
        method: subject.method.clone(),
        exposed: ticket.exposed.clone(),
        waiting: approvals.waiting(&ticket.id),
        left: format!("{}:{:02}", left / 60, left % 60),
        expires: time(ticket.expires),
        rules: ticket
            .rules
            .iter()
            .map(|rule| (rule.written.clone(), rule.location.clone()))
            .collect(),
        params: params(approvals.params(ticket).unwrap_or_default(), ticket.bytes),
        definition: definition(active, ticket),
        may_decide,
    }
}

/// The parameters, argument by argument, as they are written.
fn params(text: String, bytes: usize) -> Params {
    let is_cut = text.len() < bytes;
    let parsed = Raw::scan(text.as_bytes(), text.len()).ok().filter(|_| !is_cut);
    let arguments = parsed.and_then(|raw| raw.member("arguments")).filter(|raw| raw.is_object());
    let only_arguments = parsed.is_some_and(|raw| raw.members().count() == 1);
    let argument = |name: &str, value: Raw<'_>| {
        let value = String::from_utf8_lossy(value.bytes()).into_owned();
        ShownArgument { is_odd: !(value.is_ascii() && name.is_ascii()), name: name.into(), value }
    };
    let shown = arguments.into_iter().flat_map(|raw| raw.members());
    let shown: Vec<ShownArgument> =
        shown.map(|member| argument(&member.name(), member.value)).collect();
    let cut = is_cut.then_some((text.len(), bytes));
    let is_whole = arguments.is_some() && only_arguments;
    Params { arguments: shown, rest: (!is_whole && text != "{}").then_some(text), cut }
}

/// The definition of the tool, as its server lists it now.
fn definition(active: &Active, ticket: &Ticket) -> Option<String> {
    let subject = &ticket.binding.subject;
    let kind = match &*subject.method {
        "prompts/get" => ListKind::Prompts,
        "tools/call" => ListKind::Tools,
        _ => return None,
    };
    let listed = active.server(&subject.server)?.listed_as(kind)?;
    let entry = listed.catalogue.entries().iter().find(|entry| entry.name() == subject.name)?;
    serde_json::to_string_pretty(&entry.raw().to_json()).ok()
}

fn shown_grant(grant: &Grant) -> ShownGrant {
    let subject = &grant.subject;
    ShownGrant {
        id: grant.id.clone(),
        agent: subject.agent.as_deref().unwrap_or("no name").into(),
        tool: format!("{}/{}", subject.server, subject.name),
        scope: match grant.once {
            true => format!("{}, once", grant.scope_words()),
            false => grant.scope_words(),
        },
        expires: moment(grant.expires),
        by: format!("{} ({})", grant.by, grant.channel),
    }
}

/// The number of tickets, for the navigation.
#[derive(Template)]
#[template(path = "badge.html")]
struct Badge {
    waiting: usize,
}

pub(crate) fn badge(page: &AdminUi) -> ViewResponse {
    ViewResponse::of(&Badge { waiting: page.gateway().context.approvals.pending_count() })
}
