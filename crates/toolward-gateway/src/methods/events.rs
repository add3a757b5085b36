//! The contents of audit records, for requests and for the process.

use serde_json::{Value, json};
use toolward_policy::refusal::Refusal;
use toolward_policy::{Decision, Verdict};
use toolward_wire::exchange::Failure;
use toolward_wire::list::ListKind;
use toolward_wire::method::PolicySubject;
use toolward_wire::{Message, MethodRow};

use super::request::Envelope;
use crate::active::Active;
use crate::audit::arguments::RecordedArguments;
use crate::audit::redact::{Arguments, outside};
use crate::audit::{UNRECORDED, facts::Facts};
use crate::client::Scope;
use crate::guard::Stopped;
use crate::permit::{CallDecision, DeniedCall, Explanation, Permit};
use crate::traces;
use crate::upstream::Unavailable;
use crate::upstream::built_in::EXECUTE;
use crate::view::{ServerView, View};

impl Facts {
    /// The members of every request record.
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
        // A short number needs no redaction.
        match id.raw() {
            raw @ [b'0'..=b'9' | b'-', ..] if raw.len() <= 32 => facts.raw_text("request_id", raw),
            raw => facts.text("request_id", &outside(&String::from_utf8_lossy(raw))),
        }
        if let Some(trace) = traces::trace_id(message) {
            facts.text("trace_id", &trace);
        }
        facts.text("policy", &active.version);
        if client.scope == Scope::Discovery {
            facts.text("via", EXECUTE);
        }
        facts
    }

    fn decided(&mut self, row: &MethodRow, decided: &CallDecision) {
        let (decision, explanation) = (&decided.decision, &decided.explanation);
        self.maybe("server", Some(&*decided.server).filter(|server| !server.is_empty()));
        self.subject(row, &decided.original);
        self.text("verdict", decision.verdict.as_str());
        self.maybe_number("layer", decision.layer.map(i64::from));
        self.text("step", decision.step.as_str());
        self.extend(explanation.recorded(explained));
        self.would(decided);
    }

    /// The decision that shadow rules would have made, if it differs.
    fn would(&mut self, decided: &CallDecision) {
        if let Some(would) = &decided.would {
            let Decision { verdict, step, layer, .. } = would.decision;
            let value = json!({
                "verdict": verdict.as_str(),
                "layer": layer,
                "file": would.layer,
                "step": step.as_str(),
                "rule": would.rule,
            });
            self.json("would", &value.to_string());
        }
    }

    /// The tool, prompt or resource that a request is about, by its server's own name for it. For anything but a tool, the
    /// method is recorded too.
    fn subject(&mut self, row: &MethodRow, original: &str) {
        let key = match row.subject {
            PolicySubject::Tool => return self.text("tool", original),
            PolicySubject::Resource => "uri",
            PolicySubject::Completion => "reference",
            PolicySubject::Task => "task",
            _ => "prompt",
        };
        self.text("method", row.name);
        self.text(key, &outside(original));
    }

    /// The action that a caller stated, which is free text.
    fn action(&mut self, action: Option<&str>) {
        self.maybe("action", action.map(outside).as_deref());
    }

    /// The members for a refusal by a guard. A guard is neither a layer nor a rule.
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

/// An audit record of a process start: program version and policy.
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

/// An audit record of an activated reload.
pub fn reload(before: &Active, now: &Active, by: &str) -> Facts {
    let mut facts = Facts::default();
    facts.text("policy", &now.version);
    facts.text("policy_before", &before.version);
    facts.text("by", by);
    let layers: Vec<&str> = now.policy.layer_names().collect();
    facts.json("layers", &json!(layers).to_string());
    facts
}

/// An audit record of a failed reload: the previous policy stays active.
pub fn reload_refused(stays: &Active, by: &str, error: &str) -> Facts {
    let mut facts = Facts::default();
    facts.text("policy", &stays.version);
    facts.text("by", by);
    facts.text("error", &outside(error));
    facts
}

/// A call that is about to be forwarded.
pub(crate) fn intent(envelope: &Envelope, permit: &Permit, arguments: &RecordedArguments) -> Facts {
    if UNRECORDED {
        return Facts::default();
    }
    let mut facts = Facts::of(envelope, permit.message());
    facts.text("exposed_name", permit.exposed());
    facts.action(permit.action());
    facts.decided(envelope.row, permit.decision());
    count_shadowed(envelope, permit.decision());
    if !envelope.active.enforced && permit.decision().decision.verdict != Verdict::Allow {
        facts.json("enforced", "false");
    }
    facts.arguments(permit.message(), arguments);
    facts.number("bytes_in", permit.message().body().len() as u64);
    facts
}

/// Counts a call about which shadow rules would have decided otherwise.
fn count_shadowed(envelope: &Envelope, decided: &CallDecision) {
    if let Some(would) = &decided.would {
        envelope.active.shadowed.count(would.decision.verdict);
    }
}

/// A stream of notifications, and the resources that it is about.
pub(crate) fn subscribed(envelope: &Envelope, message: &Message, uris: &[String]) -> Facts {
    let mut facts = Facts::of(envelope, message);
    facts.text("method", envelope.row.name);
    let uris: Vec<_> = uris.iter().map(|uri| outside(uri)).collect();
    facts.json("uris", &json!(uris).to_string());
    facts
}

/// A list of an agent's own tasks.
pub(crate) fn tasks_listed(envelope: &Envelope, message: &Message, count: usize) -> Facts {
    let mut facts = Facts::of(envelope, message);
    facts.text("method", envelope.row.name);
    facts.number("tasks", count as u64);
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
        Some(decided) => {
            facts.decided(envelope.row, decided);
            count_shadowed(envelope, decided);
        }
        None => facts.text("verdict", "deny"),
    }
    facts.text("refusal", &recorded(refusal, arguments));
    facts
}

/// A call that the policy allows and that is not forwarded.
fn unmade(envelope: &Envelope, permit: &Permit, arguments: &RecordedArguments) -> Facts {
    let decided = permit.decision();
    let mut facts = Facts::of(envelope, permit.message());
    facts.text("exposed_name", permit.exposed());
    facts.action(permit.action());
    facts.json("listed", "true");
    facts.arguments(permit.message(), arguments);
    facts.text("server", &decided.server);
    facts.subject(envelope.row, &decided.original);
    facts.would(decided);
    facts
}

/// A call that the policy allows and that a limit or hook refuses.
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

/// A call that a person has not approved.
pub(crate) fn unapproved(
    envelope: &Envelope,
    permit: &Permit,
    arguments: &RecordedArguments,
    (verdict, reason, ticket): (&str, &str, Option<&str>),
) -> Facts {
    let mut facts = unmade(envelope, permit, arguments);
    facts.text("verdict", verdict);
    facts.json("layer", "null");
    facts.text("step", "ask");
    facts.maybe("rule", permit.decision().explanation.rule.as_deref());
    facts.maybe("ticket", ticket);
    facts.text("reason", &outside(reason));
    facts
}

/// A call whose client disconnected before its limits and hooks were checked.
pub(crate) fn left(envelope: &Envelope, permit: &Permit, arguments: &RecordedArguments) -> Facts {
    let mut facts = unmade(envelope, permit, arguments);
    facts.text("verdict", "deny");
    facts.json("layer", "null");
    facts.text("step", "left");
    facts.json("rule", "null");
    facts.text("outcome", "aborted");
    facts.text("reason", "its client disconnected before limits and hooks were checked");
    facts
}

/// A listing that a limit refuses.
pub(crate) fn list_stopped(
    envelope: &Envelope,
    message: &Message,
    method: &str,
    stopped: &Stopped,
) -> Facts {
    let mut facts = Facts::of(envelope, message);
    facts.text("method", method);
    facts.guard(stopped);
    facts
}

/// A call that cannot be decided, because a server's tool list is not known.
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

/// A listing as counts; names are added if the audit log does not contain the view yet.
pub(crate) fn listing(envelope: &Envelope, message: &Message, view: &View) -> Facts {
    let mut facts = Facts::of(envelope, message);
    if view.kind() != ListKind::Tools {
        facts.text("method", view.kind().method());
    }
    let servers = view.servers().iter().map(|of| {
        let mut numbers = json!({"offered": of.offered, "shown": of.shown.len()});
        if let Some(why) = &of.unavailable {
            numbers["outcome"] = why.word().into();
        }
        if of.quarantined > 0 {
            numbers["quarantined"] = of.quarantined.into();
        }
        if !(of.would_hide.is_empty() && of.would_show.is_empty()) {
            let would = json!({"hide": of.would_hide.len(), "show": of.would_show.len()});
            numbers["would"] = would;
        }
        (of.name.to_string(), numbers)
    });
    facts.json("servers", &Value::Object(servers.collect()).to_string());
    facts.text("view", view.id());
    facts
}

/// The names that a view shows and removes, by server.
pub(crate) fn names(view: &View) -> String {
    let names = |of: &ServerView| {
        let mut names = json!({"shown": of.shown, "removed": of.removed});
        let would = [("would_hide", &of.would_hide), ("would_show", &of.would_show)];
        for (key, would) in would.into_iter().filter(|(_, would)| !would.is_empty()) {
            names[key] = json!(would);
        }
        (of.name.to_string(), names)
    };
    Value::Object(view.servers().iter().map(names).collect()).to_string()
}

/// The refusal's text for the audit log: argument values are included only if the log contains arguments.
fn recorded(refusal: &Refusal, arguments: &Arguments) -> String {
    match arguments {
        Arguments::Redacted(_) | Arguments::Full => refusal.text(),
        Arguments::Nothing | Arguments::Hash => refusal.text_without_values(),
    }
}

/// The explanation of a decision, as members of an audit record.
fn explained(explanation: &Explanation) -> Box<[u8]> {
    let mut facts = Facts::default();
    facts.maybe("rule", explanation.rule.as_deref());
    // Policies change, so the rule's text and position are recorded with the decision.
    if let Some((text, at)) = &explanation.text {
        facts.text("rule_text", text);
        facts.text("rule_at", at);
    }
    facts.text("reason", &explanation.reason);
    facts.members().into()
}

/// A request of a server to the client, for the audit log. Its content is not recorded.
pub(crate) struct Question<'a> {
    pub(crate) server: &'a str,
    pub(crate) method: &'a str,
    pub(crate) verdict: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) reason: Option<&'a str>,
}

/// A request of a server to the client, and what became of it.
pub(crate) fn question(envelope: &Envelope, intent: &str, question: &Question<'_>) -> Facts {
    let mut facts = Facts::with_room(256);
    facts.maybe("agent", envelope.agent().map(|agent| &**agent));
    facts.text("server", question.server);
    facts.text("method", &outside(question.method));
    facts.text("intent", intent);
    facts.text("verdict", question.verdict);
    facts.text("outcome", question.outcome);
    facts.maybe("reason", question.reason);
    facts.text("policy", &envelope.active.version);
    facts
}

/// The outcome name of a failure in the audit log.
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
