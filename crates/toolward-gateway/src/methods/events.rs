//! What the record holds of a request: facts, written as the members of a JSON object.

use serde_json::{Value, json};
use toolward_policy::Verdict;
use toolward_policy::refusal::Refusal;
use toolward_wire::exchange::Failure;
use toolward_wire::{Id, Message, meta};

use super::meta_tools::EXECUTE;
use super::refusals::recorded;
use crate::active::Snapshot;
use crate::audit::arguments::RecordedArguments;
use crate::audit::redact::outside;
use crate::audit::{UNRECORDED, facts::Facts};
use crate::client::{Client, Scope};
use crate::guard::Stopped;
use crate::upstream::Unavailable;
use crate::view::{Decided, OfServer, Permit, Refused, View};

impl Facts {
    fn of(snapshot: &Snapshot, client: &Client, id: &Id, message: &Message) -> Facts {
        let mut facts = Facts::with_room(1024);
        facts.maybe("agent", client.caller.agent.as_deref());
        facts.text("identity", client.caller.identity);
        if let Some(subject) = client.caller.subject() {
            facts.text("subject", &outside(subject));
        }
        if let Some(client) = client.called(message) {
            facts.text("client", &client);
        }
        // A short number says nothing but itself.
        match id.raw() {
            raw @ [b'0'..=b'9' | b'-', ..] if raw.len() <= 32 => facts.raw_text("request_id", raw),
            raw => facts.text("request_id", &outside(&String::from_utf8_lossy(raw))),
        }
        let said = message.meta(meta::TRACE_PARENT).map(|parent| parent.as_str());
        let trace = match said {
            Some(parent) => parent.as_deref().and_then(trace),
            None => TRACE.try_with(Clone::clone).ok().flatten(),
        };
        if let Some(trace) = trace {
            facts.text("trace_id", &trace);
        }
        facts.text("policy", &snapshot.version);
        if client.scope == Scope::Discovery {
            facts.text("via", EXECUTE);
        }
        facts
    }

    fn decided(&mut self, decided: &Decided) {
        let (decision, words) = (&decided.decision, &decided.words);
        self.maybe("server", Some(&*decided.server).filter(|server| !server.is_empty()));
        self.text("tool", &decided.original);
        self.text("verdict", decision.verdict.as_str());
        self.maybe_number("layer", decision.layer.map(i64::from));
        self.text("step", decision.step.as_str());
        self.extend(words.recorded().members());
    }

    /// The action that a caller stated: free text of its own.
    fn action(&mut self, action: Option<&str>) {
        self.maybe("action", action.map(outside).as_deref());
    }

    /// What a guard that refuses says. It is no layer, and no rule of one.
    fn guard(&mut self, stopped: &Stopped) {
        self.text("verdict", "deny");
        self.json("layer", "null");
        self.text("step", stopped.step());
        self.json("rule", "null");
        self.text(stopped.step(), &stopped.by);
        self.text("reason", &outside(&stopped.reason));
        if let Some(wait) = stopped.retry_after() {
            self.number("retry_after_ms", wait.as_millis() as u64);
        }
    }

    fn arguments(&mut self, message: &Message, how: &RecordedArguments) {
        match message.arguments() {
            Some(given) => how.facts(self, given),
            None => self.json("arguments", "null"),
        }
    }
}

/// What a process says when it begins: which program, under which policy.
pub fn start(snapshot: &Snapshot) -> Facts {
    let mut facts = Facts::default();
    facts.text("version", env!("CARGO_PKG_VERSION"));
    facts.text("policy", &snapshot.version);
    let layers: Vec<&str> = snapshot.policy.layer_names().collect();
    facts.json("layers", &json!(layers).to_string());
    if !snapshot.enforced {
        facts.json("allow_all", "true");
    }
    facts.number("process", std::process::id().into());
    facts
}

/// Another policy comes into force.
pub fn reload(before: &Snapshot, now: &Snapshot, by: &str) -> Facts {
    let mut facts = Facts::default();
    facts.text("policy", &now.version);
    facts.text("policy_before", &before.version);
    facts.text("by", by);
    let layers: Vec<&str> = now.policy.layer_names().collect();
    facts.json("layers", &json!(layers).to_string());
    facts
}

/// Another policy was to come into force and did not: the one before stays.
pub fn reload_refused(stays: &Snapshot, by: &str, error: &str) -> Facts {
    let mut facts = Facts::default();
    facts.text("policy", &stays.version);
    facts.text("by", by);
    facts.text("error", &outside(error));
    facts
}

tokio::task_local! {
    /// The trace that the request at hand belongs to, by its header.
    static TRACE: Option<String>;
}

/// Answers a request that came with a header `traceparent`: what is recorded meanwhile belongs to
/// that trace, unless the message itself names another one.
pub(crate) fn traced<F: Future>(
    parent: Option<&str>,
    answer: F,
) -> impl Future<Output = F::Output> + use<F> {
    TRACE.scope(parent.and_then(trace), answer)
}

/// The trace that a request belongs to, where its sender says so in the usual form.
fn trace(parent: &str) -> Option<String> {
    let mut parts = parent.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    (version.len() == 2 && is_hex(version) && trace.len() == 32 && is_hex(trace))
        .then(|| trace.into())
}

pub(crate) fn intent(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    permit: &Permit,
    arguments: &RecordedArguments,
) -> Facts {
    if UNRECORDED {
        return Facts::default();
    }
    let mut facts = Facts::of(snapshot, client, id, permit.message());
    facts.text("exposed_name", permit.exposed());
    facts.action(permit.action());
    facts.decided(permit.decided());
    if permit.decided().decision.verdict != Verdict::Allow {
        facts.json("enforced", "false");
    }
    facts.arguments(permit.message(), arguments);
    facts.number("bytes_in", permit.message().body().len() as u64);
    facts
}

pub(crate) fn refusal(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    (name, refused, refusal): (&str, &Refused, &Refusal),
    arguments: &RecordedArguments,
) -> Facts {
    let mut facts = Facts::of(snapshot, client, id, &refused.message);
    facts.text("exposed_name", &outside(name));
    facts.action(refused.action.as_deref());
    facts.json("listed", if refused.why.is_some() { "true" } else { "false" });
    facts.arguments(&refused.message, arguments);
    match &refused.decided {
        Some(decided) => facts.decided(decided),
        None => facts.text("verdict", "deny"),
    }
    facts.text("refusal", &recorded(refusal, arguments));
    facts
}

/// A call that policy allows and that is not made.
fn unmade(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    permit: &Permit,
    arguments: &RecordedArguments,
) -> Facts {
    let decided = permit.decided();
    let mut facts = Facts::of(snapshot, client, id, permit.message());
    facts.text("exposed_name", permit.exposed());
    facts.action(permit.action());
    facts.json("listed", "true");
    facts.arguments(permit.message(), arguments);
    facts.text("server", &decided.server);
    facts.text("tool", &decided.original);
    facts
}

/// A call that policy allows and a limit or hook refuses.
pub(crate) fn stopped(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    (permit, stopped, limit): (&Permit, &Stopped, Option<&Refusal>),
    arguments: &RecordedArguments,
) -> Facts {
    let mut facts = unmade(snapshot, client, id, permit, arguments);
    facts.guard(stopped);
    if let Some(refusal) = limit {
        facts.text("refusal", &recorded(refusal, arguments));
    }
    facts
}

/// A call whose client left before limits and hooks had answered.
pub(crate) fn left(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    permit: &Permit,
    arguments: &RecordedArguments,
) -> Facts {
    let mut facts = unmade(snapshot, client, id, permit, arguments);
    facts.text("verdict", "deny");
    facts.json("layer", "null");
    facts.text("step", "left");
    facts.json("rule", "null");
    facts.text("outcome", "aborted");
    facts.text("reason", "its client left before limits and hooks had answered");
    facts
}

/// A listing that a limit refuses.
pub(crate) fn list_stopped(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    message: &Message,
    stopped: &Stopped,
) -> Facts {
    let mut facts = Facts::of(snapshot, client, id, message);
    facts.text("method", "tools/list");
    facts.guard(stopped);
    facts
}

/// A call about which nothing can be decided, because a server's list is not known.
pub(crate) fn unavailable(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    message: &Message,
    name: &str,
    (server, why): (&str, &Unavailable),
) -> Facts {
    let mut facts = Facts::of(snapshot, client, id, message);
    facts.text("server", server);
    facts.text("exposed_name", &outside(name));
    facts.text("outcome", "server-unavailable");
    facts.text("reason", &why.to_string());
    facts
}

/// A listing in numbers; names are added where the view is new to the record.
pub(crate) fn listing(
    snapshot: &Snapshot,
    client: &Client,
    id: &Id,
    message: &Message,
    view: &View,
) -> Facts {
    let mut facts = Facts::of(snapshot, client, id, message);
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
        Failure::Unsent | Failure::Unstartable => "server-unavailable",
        Failure::Gone => "server-gone",
        Failure::TimedOut => "timed-out",
        Failure::BadAnswer => "bad-answer",
        Failure::Asked => "question-refused",
        Failure::TooLarge { .. } => "too-large",
        Failure::Undeliverable => "undeliverable",
    }
}
