//! Transports to servers: stdio, Streamable HTTP, and legacy HTTP+SSE.
//!
//! Child processes and HTTP+SSE share one line-based transport: both deliver messages one by one
//! over a connection that outlives a request.

pub(crate) mod environment;
pub(crate) mod event_stream;
pub(crate) mod http;
pub(crate) mod ids;
pub(crate) mod legacy_sse;
pub(crate) mod line_orders;
pub(crate) mod line_server;
pub(crate) mod line_session;
pub(crate) mod line_transport;
pub(crate) mod reusable_process;
pub(crate) mod stdio;
pub(crate) mod writer;

use toolward_wire::Message;
use toolward_wire::list::ListKind;

/// Events of a transport other than responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The server announced a change of a list. For resources, that includes templates.
    ListChanged(ListKind),
    /// A resource changed, by its URI.
    Updated(Box<str>),
    /// A new session began on the same connection; its lists may differ.
    Renewed,
    /// The connection, or the stream of announcements, ended after it had worked for a while; lists may have changed
    /// unannounced.
    Ended,
    /// The connection ended soon after its start; it is restarted on the next use.
    Failed,
}

impl Signal {
    /// The signal of a server's notification, if it is one that concerns the whole connection.
    pub(crate) fn of(message: &Message) -> Option<Signal> {
        let method = message.method()?;
        if method == "notifications/resources/updated" {
            return message.param("uri")?.as_str().map(|uri| Signal::Updated(uri.as_ref().into()));
        }
        let announced = ListKind::ALL.into_iter().find(|kind| kind.changed() == method);
        announced.map(Signal::ListChanged)
    }
}
