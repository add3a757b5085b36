//! Refusals of calls, for clients and for the audit log alike.

use std::borrow::Cow;

use serde_json::Value;
use toolward_policy::refusal::{Limited, Redact as Redaction, Refusal, Sent};

use crate::active::Snapshot;
use crate::audit::redact::{Arguments, Redact};
use crate::guard::{Stopped, Why};
use crate::view::{Permit, RawArguments, Refused, View};

/// What a refusal repeats of a call is redacted as the audit log is.
impl Redaction for Redact {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Redact::text(self, text)
    }

    fn value(&self, value: Value) -> Value {
        Redact::value(self, value)
    }
}

impl View {
    /// The refusal of a call by the policy.
    pub(crate) fn refuse(
        &self,
        snapshot: &Snapshot,
        name: &str,
        refused: &Refused,
        decision: &str,
    ) -> Refusal {
        let arguments = refused.message.arguments().map(RawArguments);
        let sent = Sent {
            tool: name,
            action: refused.action.as_deref(),
            arguments: arguments.as_ref().map(|given| given as _),
        };
        let why = refused.why.as_ref();
        self.allowed().refuse(&snapshot.policy, sent, why, &snapshot.redact, decision)
    }

    /// The refusal of a call by a rate limit; `None` if a hook refused it, which has its own words.
    pub(crate) fn limit(
        &self,
        snapshot: &Snapshot,
        permit: &Permit,
        stopped: &Stopped,
        decision: &str,
    ) -> Option<Refusal> {
        let limited = match &stopped.why {
            Why::Full { scope, rate, .. } => Limited::Exceeded {
                limit: scope,
                rate,
                retry_after: stopped.retry_after().unwrap_or_default(),
            },
            Why::Store => Limited::Unavailable,
            Why::Denied(_) | Why::Failed => return None,
        };
        let sent = Sent { tool: permit.exposed(), action: permit.action(), arguments: None };
        let entry = snapshot.policy.message_of(&permit.decided().decision);
        Some(self.allowed().limit(sent, limited, entry, &snapshot.redact, decision))
    }
}

/// The text as the audit log has it: with the values of arguments only if the log has those too.
pub(crate) fn recorded(refusal: &Refusal, arguments: &Arguments) -> String {
    match arguments {
        Arguments::Redacted(_) | Arguments::Full => refusal.text(),
        Arguments::Nothing | Arguments::Hash => refusal.text_without_values(),
    }
}
