//! A call whose client leaves while limits or hooks are asked. Nothing is forwarded, and the record says
//! so, once.

use std::sync::Arc;

use super::GuardedCall;
use crate::active::Snapshot;
use crate::audit::Audit;
use crate::methods::events;

/// Records a call that is dropped before its guards have answered.
#[must_use]
pub(crate) struct Unanswered<'a> {
    pub(crate) audit: &'a Arc<Audit>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) call: GuardedCall<'a>,
    pub(crate) answered: bool,
}

impl Unanswered<'_> {
    /// The guards have answered, and something else records what they said.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let GuardedCall { client, id, permit, .. } = self.call;
        let facts = events::left(self.snapshot, client, id, permit, &self.audit.arguments);
        let agent = client.caller.agent.as_ref();
        self.audit.note_ticket(agent, "refusal", permit.exposed(), &facts);
    }
}
