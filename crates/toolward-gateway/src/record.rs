//! What the record holds of a request: facts, written as the members of a JSON object.

use serde_json::{Value, json};
use toolward_wire::exchange::Failure;
use toolward_wire::{Id, Message, string};

use crate::audit::digest;
use crate::client::Client;
use crate::decide::{Decided, OfServer, Permit, Refused, View};
use crate::sight::Snapshot;
use crate::upstream::Unavailable;

/// Members of a JSON object, in the order in which they were said. What every record begins with is
/// put before them.
#[derive(Debug, Default)]
pub struct Facts {
    members: Vec<u8>,
}

impl Facts {
    /// Names are words of ours, which need no escape.
    fn name(&mut self, name: &str) {
        self.members.extend_from_slice(b",\"");
        self.members.extend_from_slice(name.as_bytes());
        self.members.extend_from_slice(b"\":");
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        string::write(text, &mut self.members);
    }

    pub(crate) fn maybe(&mut self, name: &str, text: Option<&str>) {
        match text {
            Some(text) => self.text(name, text),
            None => self.json(name, "null"),
        }
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) {
        self.json(name, &number.to_string());
    }

    /// A value that is JSON already.
    pub(crate) fn json(&mut self, name: &str, value: &str) {
        self.name(name);
        self.members.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }

    fn of(snapshot: &Snapshot, client: &Client, id: &Id) -> Facts {
        let mut facts = Facts { members: Vec::with_capacity(640) };
        facts.maybe("agent", client.caller.agent.as_deref());
        facts.text("identity", client.caller.identity);
        facts.text("request_id", &String::from_utf8_lossy(id.raw()));
        facts.text("policy", &snapshot.version);
        facts
    }

    fn decided(&mut self, decided: &Decided) {
        let decision = &decided.decision;
        self.text("server", &decided.server);
        self.text("tool", &decided.original);
        self.text("verdict", decision.verdict.as_str());
        self.json("layer", &decision.layer.map_or("null".into(), |layer| layer.to_string()));
        self.text("step", decision.step.as_str());
        self.maybe("rule", decided.rule.as_deref());
        self.text("reason", &decided.reason);
    }

    fn arguments(&mut self, message: &Message) {
        let hash = message.arguments().map(|arguments| digest(arguments.raw().bytes()));
        self.maybe("arguments", hash.as_deref());
    }
}

pub(crate) fn intent(snapshot: &Snapshot, client: &Client, id: &Id, permit: &Permit) -> Facts {
    let mut facts = Facts::of(snapshot, client, id);
    facts.text("exposed_name", permit.exposed());
    facts.maybe("action", permit.action());
    facts.decided(permit.decided());
    facts.arguments(permit.message());
    facts.number("bytes_in", permit.message().body().len() as u64);
    facts
}

pub(crate) fn refusal(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    name: &str,
    refused: &Refused,
) -> Facts {
    let mut facts = Facts::of(snapshot, client, id);
    facts.text("exposed_name", name);
    facts.maybe("action", refused.action.as_deref());
    facts.json("listed", if refused.listed { "true" } else { "false" });
    facts.arguments(&refused.message);
    match &refused.decided {
        Some(decided) => facts.decided(decided),
        None => facts.text("verdict", "deny"),
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
    let mut facts = Facts::of(snapshot, client, id);
    facts.text("server", server);
    facts.text("exposed_name", name);
    facts.text("outcome", "server-unavailable");
    facts.text("reason", &why.to_string());
    facts
}

/// A listing in numbers; names are added where the view is new to the record.
pub(crate) fn listing(snapshot: &Snapshot, client: &Client, id: &Id, view: &View) -> Facts {
    let mut facts = Facts::of(snapshot, client, id);
    let servers = view.servers().iter().map(|of| {
        let mut numbers = json!({"offered": of.offered, "shown": of.shown.len()});
        if let Some(why) = &of.unavailable {
            numbers["outcome"] = why.word().into();
        }
        (of.name.to_string(), numbers)
    });
    facts.json("servers", &Value::Object(servers.collect()).to_string());
    facts.text("view", view.id());
    facts
}

/// Which names a view shows and removes, by server.
pub(crate) fn names(view: &View) -> String {
    let names =
        |of: &OfServer| (of.name.to_string(), json!({"shown": of.shown, "removed": of.removed}));
    Value::Object(view.servers().iter().map(names).collect()).to_string()
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
