//! Audit records of logins: login, refresh, loss, logout. They contain no token.

use crate::audit::facts::Facts;
use crate::context::Context;
use crate::login::LoginEvent;
use crate::upstream::Server;

/// The kind of these records.
pub const KIND: &str = "login";

/// Records what happened to the logins of a server.
pub(crate) fn record(context: &Context, server: &Server) {
    for event in server.take_login_events() {
        context.audit.note(KIND, &facts(&event));
    }
}

/// The facts of an event.
pub fn facts(event: &LoginEvent) -> Facts {
    let mut facts = Facts::default();
    facts.text("what", event.what);
    facts.text("server", &event.server);
    if let Some(owner) = &event.owner {
        facts.text("agent", owner);
    }
    facts.text("issuer", &event.issuer);
    if let Some(scope) = &event.scope {
        facts.text("scope", scope);
    }
    if let Some(reason) = event.reason {
        facts.text("reason", reason);
    }
    facts
}
