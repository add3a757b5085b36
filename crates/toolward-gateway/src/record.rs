//! What the record holds of a request.

use serde_json::{Map, Value, json};
use toolward_wire::exchange::Failure;
use toolward_wire::{Id, Message};

use crate::audit::digest;
use crate::decide::{Decided, Permit};
use crate::pipeline::Gateway;

impl Gateway {
    pub(crate) fn facts(&self, id: &Id) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("agent".into(), json!(self.client.agent));
        facts.insert("identity".into(), self.client.identity.into());
        facts.insert("request_id".into(), String::from_utf8_lossy(id.raw()).into());
        facts.insert("policy".into(), self.version.as_str().into());
        facts
    }

    pub(crate) fn intent(&self, permit: &Permit, id: &Id) -> Map<String, Value> {
        let mut facts = self.facts(id);
        facts.insert("server".into(), self.launch.name.as_str().into());
        facts.insert("exposed_name".into(), permit.exposed().into());
        facts.insert("action".into(), json!(permit.action()));
        facts.extend(self.decided(permit.decided()));
        facts.insert("arguments".into(), arguments_digest(permit.message()));
        facts.insert("bytes_in".into(), permit.message().body().len().into());
        facts
    }

    pub(crate) fn decided(&self, decided: &Decided) -> Map<String, Value> {
        let decision = &decided.decision;
        let facts = json!({
            "tool": decided.original,
            "verdict": decision.verdict.as_str(),
            "layer": decision.layer,
            "step": decision.step.as_str(),
            "rule": self.policy.rule(decision).map(|rule| rule.path),
            "reason": decided.reason,
        });
        facts.as_object().cloned().unwrap_or_default()
    }
}

pub(crate) fn arguments_digest(message: &Message) -> Value {
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
