//! The part of the control socket that is about approvals: lists what waits for a person, and takes decisions.
//!
//! The socket accepts only this user. If there are admins, a request also needs the token of one. A process that the
//! gateway itself started is refused: a server or hook must not approve calls. This is best effort, because a process
//! can leave its ancestors.

use std::time::Duration;

use serde_json::{Value, json};
use toolward_gateway::active::Active;
use toolward_gateway::audit::line::time;
use toolward_gateway::guard::approvals::{Grant, Scope, Ticket};
use toolward_gateway::methods::approvals::{self, Approver};

use crate::reload::Reloader;

/// The first word of a request.
pub(crate) const WORD: &str = "approvals ";
/// How far a process's ancestors are followed.
const MAX_ANCESTORS: usize = 64;

/// The process at the other end of the socket.
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) process: Option<i32>,
}

/// Answers a request, which is a JSON object.
pub(crate) async fn answer(reloader: &Reloader, peer: &Peer, request: &str) -> String {
    match serde_json::from_str::<Value>(request) {
        Ok(request) => respond(reloader, peer, &request).await,
        Err(_) => json!({"error": "the request is not JSON"}).to_string(),
    }
}

async fn respond(reloader: &Reloader, peer: &Peer, request: &Value) -> String {
    let active = reloader.gateway().active();
    if request["do"] == "pending"
        && let Ok(approver) = approver(&active, peer, request["token"].as_str())
        && let Ok(tickets) = reloader.gateway().context.approvals.pending().await
    {
        // There may be many: they are written one by one.
        let mut text = String::from("{\"tickets\":[");
        for (at, one) in tickets.iter().enumerate() {
            text += if at > 0 { "," } else { "" };
            text += &ticket(reloader, &active, &approver, one).to_string();
        }
        return text + "]}";
    }
    decide(reloader, peer, request).await.to_string()
}

async fn decide(reloader: &Reloader, peer: &Peer, request: &Value) -> Value {
    let (context, active) = (&reloader.gateway().context, reloader.gateway().active());
    let approver = match approver(&active, peer, request["token"].as_str()) {
        Ok(approver) => approver,
        Err(why) => return json!({"error": why, "needs_token": true}),
    };
    let decides = matches!(request["do"].as_str(), Some("approve" | "deny" | "revoke"));
    if decides && is_descendant(peer.process) {
        return json!({"error": "processes that the gateway started cannot decide"});
    }
    let id = request["id"].as_str().unwrap_or_default();
    match request["do"].as_str() {
        Some("pending") => json!({"error": "tickets cannot be read"}),
        Some("grants") => match context.approvals.grants().await {
            Ok(grants) => json!({"grants": grants.iter().map(grant).collect::<Vec<_>>()}),
            Err(error) => json!({"error": error.to_string()}),
        },
        Some("approve") => {
            let scope = match scope(request) {
                Ok(scope) => scope,
                Err(why) => return json!({"error": why}),
            };
            match approvals::approve(context, &active, (id, &scope), &approver).await {
                Ok(given) => json!({"approved": true, "grant": grant(&given)}),
                Err(why) => json!({"error": why.to_string()}),
            }
        }
        Some("deny") => {
            let reason = request["reason"].as_str();
            match approvals::deny(context, &active, (id, reason), &approver).await {
                Ok(()) => json!({"denied": true}),
                Err(why) => json!({"error": why.to_string()}),
            }
        }
        Some("revoke") => match approvals::revoke(context, &active, id, &approver).await {
            Ok(Some(revoked)) => json!({"revoked": true, "grant": grant(&revoked)}),
            Ok(None) => json!({"error": "there is no such grant"}),
            Err(why) => json!({"error": why.to_string()}),
        },
        _ => json!({"error": "the request is not known"}),
    }
}

/// The approver behind a request. The error is the reason why there is no approver.
fn approver(active: &Active, peer: &Peer, token: Option<&str>) -> Result<Approver, &'static str> {
    let (channel, uid) = ("cli", Some(peer.uid));
    let Some(admins) = &active.admins else {
        return Ok(Approver { admin: None, channel, uid });
    };
    let token = token.ok_or("an admin's token is required: set TOOLWARD_ADMIN_TOKEN")?;
    let admin = admins.agent(token).ok_or("the admin's token is wrong")?;
    Ok(Approver { admin: Some(admin.to_string()), channel, uid })
}

/// The scope of an approval, as it is requested.
pub(crate) fn scope(request: &Value) -> Result<Scope, &'static str> {
    let lifetime = request["for_s"].as_u64().map(Duration::from_secs);
    let needs = "a scope other than the call needs a time: --for 1h";
    match request["scope"].as_str().unwrap_or("call") {
        "call" if lifetime.is_none() => Ok(Scope::Call),
        "call" => Err("a time needs a scope: --scope tool, or --scope args=KEY"),
        "tool" => lifetime.map(Scope::Tool).ok_or(needs),
        "args" => {
            let keys = request["keys"].as_array().into_iter().flatten();
            let keys: Vec<String> = keys.filter_map(|key| key.as_str().map(String::from)).collect();
            if keys.is_empty() {
                return Err("`args` needs the names of arguments: --scope args=KEY");
            }
            lifetime.map(|lifetime| Scope::Arguments(keys, lifetime)).ok_or(needs)
        }
        _ => Err("the scope is `call`, `args=KEY,…` or `tool`"),
    }
}

/// A ticket for approvers.
pub(crate) fn ticket(
    reloader: &Reloader,
    active: &Active,
    approver: &Approver,
    ticket: &Ticket,
) -> Value {
    let approvals = &reloader.gateway().context.approvals;
    let subject = &ticket.binding.subject;
    let rules = ticket.rules.iter().map(|rule| {
        json!({
            "rule": rule.written, "at": rule.location, "path": rule.path,
            "approvers": rule.approvers,
        })
    });
    let params = approvals.params(ticket);
    let cut = params.as_ref().is_none_or(|params| params.len() < ticket.bytes);
    json!({
        "id": ticket.id, "reference": ticket.reference, "agent": subject.agent.as_deref(),
        "holder": ticket.holder_name, "server": subject.server, "tool": subject.name,
        "method": subject.method, "exposed_name": ticket.exposed,
        "rules": rules.collect::<Vec<_>>(),
        "created": time(ticket.created), "expires": time(ticket.expires),
        "expires_in_s": ticket.expires.saturating_sub(approvals.now()) / 1_000_000,
        "waiting": approvals.waiting(&ticket.id),
        "params": params, "params_bytes": ticket.bytes, "params_cut": cut,
        "arguments": ticket.binding.argument_names().collect::<Vec<_>>(),
        "may_decide": approver.may_decide(active, ticket),
    })
}

fn grant(grant: &Grant) -> Value {
    let subject = &grant.subject;
    json!({
        "id": grant.id, "agent": subject.agent.as_deref(), "server": subject.server,
        "tool": subject.name, "scope": grant.scope_words(), "once": grant.once, "by": grant.by,
        "channel": grant.channel, "ticket": grant.ticket, "created": time(grant.created),
        "expires": time(grant.expires),
    })
}

/// Whether a process descends from this one.
fn is_descendant(process: Option<i32>) -> bool {
    let own = i64::from(std::process::id());
    let mut next = process.map(i64::from);
    for _ in 0..MAX_ANCESTORS {
        match next {
            Some(process) if process == own => return true,
            Some(process) if process > 1 => next = parent(process),
            _ => return false,
        }
    }
    false
}

fn parent(process: i64) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program is in parentheses, and can contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
