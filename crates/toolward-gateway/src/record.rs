//! What the record holds of a request.

use serde_json::{Map, Value, json};
use toolward_wire::exchange::Failure;
use toolward_wire::{Id, Message};

use crate::audit::digest;
use crate::client::Client;
use crate::decide::{Decided, Permit, Refused, View};
use crate::sight::Snapshot;
use crate::upstream::Unavailable;

pub(crate) type Facts = Map<String, Value>;

fn facts(snapshot: &Snapshot, client: &Client, id: &Id) -> Facts {
    let mut facts = Map::new();
    facts.insert("agent".into(), json!(client.caller.agent.as_deref()));
    facts.insert("identity".into(), client.caller.identity.into());
    facts.insert("request_id".into(), String::from_utf8_lossy(id.raw()).into());
    facts.insert("policy".into(), snapshot.version.as_str().into());
    facts
}

pub(crate) fn intent(snapshot: &Snapshot, client: &Client, id: &Id, permit: &Permit) -> Facts {
    let mut facts = facts(snapshot, client, id);
    facts.insert("exposed_name".into(), permit.exposed().into());
    facts.insert("action".into(), json!(permit.action()));
    decided(snapshot, permit.decided(), &mut facts);
    facts.insert("arguments".into(), arguments_digest(permit.message()));
    facts.insert("bytes_in".into(), permit.message().body().len().into());
    facts
}

pub(crate) fn refusal(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    name: &str,
    refused: &Refused,
) -> Facts {
    let mut facts = facts(snapshot, client, id);
    facts.insert("exposed_name".into(), name.into());
    facts.insert("action".into(), json!(refused.action));
    facts.insert("verdict".into(), "deny".into());
    facts.insert("listed".into(), refused.listed.into());
    facts.insert("arguments".into(), arguments_digest(&refused.message));
    if let Some(found) = &refused.decided {
        decided(snapshot, found, &mut facts);
    }
    facts
}

/// A call about which nothing can be decided, because a server's list is not known.
pub(crate) fn unavailable(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    name: &str,
    server: &str,
    why: &Unavailable,
) -> Facts {
    let mut facts = facts(snapshot, client, id);
    facts.insert("server".into(), server.into());
    facts.insert("exposed_name".into(), name.into());
    facts.insert("outcome".into(), "server-unavailable".into());
    facts.insert("reason".into(), why.to_string().into());
    facts
}

/// A listing in numbers; names are added where the view is new to the record.
pub(crate) fn listing(snapshot: &Snapshot, client: &Client, id: &Id, view: &View) -> Facts {
    let mut facts = facts(snapshot, client, id);
    let servers = view.servers().iter().map(|of| {
        let mut numbers = json!({"offered": of.offered, "shown": of.shown.len()});
        if let Some(why) = &of.unavailable {
            numbers["outcome"] = why.word().into();
        }
        (of.name.to_string(), numbers)
    });
    let servers: Facts = servers.collect();
    facts.insert("servers".into(), servers.into());
    facts.insert("view".into(), view.id().into());
    facts
}

/// Which names a view shows and removes, by server.
pub(crate) fn names(view: &View) -> Value {
    let servers = view.servers().iter();
    let names = |of: &crate::decide::OfServer| {
        (of.name.to_string(), json!({"shown": of.shown, "removed": of.removed}))
    };
    Value::Object(servers.map(names).collect())
}

fn decided(snapshot: &Snapshot, decided: &Decided, facts: &mut Facts) {
    let decision = &decided.decision;
    facts.insert("server".into(), (*decided.server).into());
    facts.insert("tool".into(), (*decided.original).into());
    facts.insert("verdict".into(), decision.verdict.as_str().into());
    facts.insert("layer".into(), json!(decision.layer));
    facts.insert("step".into(), decision.step.as_str().into());
    facts.insert("rule".into(), json!(snapshot.policy.rule(decision).map(|rule| rule.path)));
    facts.insert("reason".into(), decided.reason.as_str().into());
}

fn arguments_digest(message: &Message) -> Value {
    json!(message.arguments().map(|arguments| digest(arguments.raw().bytes())))
}

/// How a failure is called in the record.
pub(crate) fn outcome(failure: Failure) -> &'static str {
    match failure {
        Failure::Cancelled => "cancelled",
        Failure::Gone => "server-gone",
        Failure::TimedOut => "timed-out",
        Failure::BadAnswer => "bad-answer",
        Failure::Asked => "question-refused",
    }
}
