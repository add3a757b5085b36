//! `logging/setLevel`: the log level of a legacy session. Modern clients state it with each request.

use toolward_wire::jsonrpc::result_body;
use toolward_wire::{LogLevel, Raw};

use super::request::{Envelope, Request};
use crate::context::Context;
use crate::responses::{self, Answer};

/// Answers `logging/setLevel`. Servers that are connected get the level now, others with the first call. A server
/// without logging is not an error of the session.
pub(crate) fn set_level(context: &Context, request: &Request) -> Answer {
    let Envelope { active, client, id, .. } = &request.envelope;
    let asked = request.message.param("level").and_then(Raw::as_str).unwrap_or_default();
    let Some(level) = LogLevel::parse(&asked) else {
        let levels = LogLevel::ALL.map(LogLevel::as_str).join(", ");
        let why = format!("`params.level` must be one of {levels}");
        return responses::bad_params(id, client.era(), &why);
    };
    if let Some(outlet) = &client.outlet {
        outlet.set_log_level(level);
    }
    for server in active.usable(client) {
        let declared = active.declared(client, &server);
        if let Some(connection) = context.servers.existing(&server, client, declared)
            && connection.era() == toolward_wire::Era::Legacy
        {
            connection.log_from(level);
        }
    }
    result_body(id, b"{}").into()
}
