//! Audit events of requests, and of the process: what each record contains.

use serde_json::{Value, json};
use toolward_policy::Verdict;
use toolward_policy::refusal::Refusal;
use toolward_wire::exchange::Failure;
use toolward_wire::{Message, meta};

use super::request::Envelope;
use crate::active::Active;
use crate::audit::arguments::RecordedArguments;
use crate::audit::redact::{Arguments, outside};
use crate::audit::{UNRECORDED, facts::Facts};
use crate::client::Scope;
use crate::guard::Stopped;
use crate::permit::{CallDecision, DeniedCall, Explanation, Permit};
use crate::upstream::Unavailable;
use crate::upstream::built_in::EXECUTE;
use crate::view::{ServerView, View};

impl Facts {
    /// What every record of a request contains.
    fn of(envelope: &Envelope, message: &Message) -> Facts {
        let Envelope { active, client, id, .. } = envelope;
        let mut facts = Facts::with_room(1024);
        facts.maybe("agent", client.caller.agent.as_deref());
        facts.text("identity", client.caller.identity);
        if let Some(subject) = client.caller.subject() {
            facts.text("subject", &outside(subject));
        }
        if let Some(client) = client.program(message, outside) {
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
        facts.text("policy", &active.version);
        if client.scope == Scope::Discovery {
            facts.text("via", EXECUTE);
        }
        facts
    }

    fn decided(&mut self, decided: &CallDecision) {
        let (decision, explanation) = (&decided.decision, &decided.explanation);
        self.maybe("server", Some(&*decided.server).filter(|server| !server.is_empty()));
        self.text("tool", &decided.original);
        self.text("verdict", decision.verdict.as_str());
        self.maybe_number("layer", decision.layer.map(i64::from));
        self.text("step", decision.step.as_str());
        self.extend(explanation.recorded(explained));
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
pub fn start(active: &Active) -> Facts {
    let mut facts = Facts::default();
    facts.text("version", env!("CARGO_PKG_VERSION"));
    facts.text("policy", &active.version);
    let layers: Vec<&str> = active.policy.layer_names().collect();
    facts.json("layers", &json!(layers).to_string());
    if !active.enforced {
        facts.json("allow_all", "true");
    }
    facts.number("process", std::process::id().into());
    facts
}

/// Another policy comes into force.
pub fn reload(before: &Active, now: &Active, by: &str) -> Facts {
    let mut facts = Facts::default();
    facts.text("policy", &now.version);
    facts.text("policy_before", &before.version);
    facts.text("by", by);
    let layers: Vec<&str> = now.policy.layer_names().collect();
    facts.json("layers", &json!(layers).to_string());
    facts
}

/// Another policy was to come into force and did not: the one before stays.
pub fn reload_refused(stays: &Active, by: &str, error: &str) -> Facts {
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

/// A call that is about to be forwarded.
pub(crate) fn intent(envelope: &Envelope, permit: &Permit, arguments: &RecordedArguments) -> Facts {
    if UNRECORDED {
        return Facts::default();
    }
    let mut facts = Facts::of(envelope, permit.message());
    facts.text("exposed_name", permit.exposed());
    facts.action(permit.action());
    facts.decided(permit.decision());
    if permit.decision().decision.verdict != Verdict::Allow {
        facts.json("enforced", "false");
    }
    facts.arguments(permit.message(), arguments);
    facts.number("bytes_in", permit.message().body().len() as u64);
    facts
}

/// A call that the policy denies.
pub(crate) fn denial(
    envelope: &Envelope,
    (name, denied, refusal): (&str, &DeniedCall, &Refusal),
    arguments: &RecordedArguments,
) -> Facts {
    let mut facts = Facts::of(envelope, &denied.message);
    facts.text("exposed_name", &outside(name));
    facts.action(denied.action.as_deref());
    facts.json("listed", if denied.why.is_some() { "true" } else { "false" });
    facts.arguments(&denied.message, arguments);
    match &denied.decision {
        Some(decided) => facts.decided(decided),
        None => facts.text("verdict", "deny"),
    }
    facts.text("refusal", &recorded(refusal, arguments));
    facts
}

/// A call that policy allows and that is not made.
fn unmade(envelope: &Envelope, permit: &Permit, arguments: &RecordedArguments) -> Facts {
    let decided = permit.decision();
    let mut facts = Facts::of(envelope, permit.message());
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
    envelope: &Envelope,
    (permit, stopped, limit): (&Permit, &Stopped, Option<&Refusal>),
    arguments: &RecordedArguments,
) -> Facts {
    let mut facts = unmade(envelope, permit, arguments);
    facts.guard(stopped);
    if let Some(refusal) = limit {
        facts.text("refusal", &recorded(refusal, arguments));
    }
    facts
}

/// A call whose client left before limits and hooks had answered.
pub(crate) fn left(envelope: &Envelope, permit: &Permit, arguments: &RecordedArguments) -> Facts {
    let mut facts = unmade(envelope, permit, arguments);
    facts.text("verdict", "deny");
    facts.json("layer", "null");
    facts.text("step", "left");
    facts.json("rule", "null");
    facts.text("outcome", "aborted");
    facts.text("reason", "its client left before limits and hooks had answered");
    facts
}

/// A listing that a limit refuses.
pub(crate) fn list_stopped(envelope: &Envelope, message: &Message, stopped: &Stopped) -> Facts {
    let mut facts = Facts::of(envelope, message);
    facts.text("method", "tools/list");
    facts.guard(stopped);
    facts
}

/// A call about which nothing can be decided, because a server's list is not known.
pub(crate) fn unavailable(
    envelope: &Envelope,
    message: &Message,
    name: &str,
    (server, why): (&str, &Unavailable),
) -> Facts {
    let mut facts = Facts::of(envelope, message);
    facts.text("server", server);
    facts.text("exposed_name", &outside(name));
    facts.text("outcome", "server-unavailable");
    facts.text("reason", &why.to_string());
    facts
}

/// A listing in numbers; names are added where the view is new to the record.
pub(crate) fn listing(envelope: &Envelope, message: &Message, view: &View) -> Facts {
    let mut facts = Facts::of(envelope, message);
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
        |of: &ServerView| (of.name.to_string(), json!({"shown": of.shown, "removed": of.removed}));
    Value::Object(view.servers().iter().map(names).collect()).to_string()
}

/// The text as the audit log has it: with the values of arguments only if the log has those too.
fn recorded(refusal: &Refusal, arguments: &Arguments) -> String {
    match arguments {
        Arguments::Redacted(_) | Arguments::Full => refusal.text(),
        Arguments::Nothing | Arguments::Hash => refusal.text_without_values(),
    }
}

/// The explanation of a decision, as members of a record.
fn explained(explanation: &Explanation) -> Box<[u8]> {
    let mut facts = Facts::default();
    facts.maybe("rule", explanation.rule.as_deref());
    // Policies change: the rule's text and place are part of the decision.
    if let Some((text, at)) = &explanation.text {
        facts.text("rule_text", text);
        facts.text("rule_at", at);
    }
    facts.text("reason", &explanation.reason);
    facts.members().into()
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
