//! Transports to servers: stdio, Streamable HTTP, and legacy HTTP+SSE.
//!
//! Child processes and HTTP+SSE share one line-based transport: both deliver messages one by one over a
//! connection that outlives a request.

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

/// What a transport reports beside responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The server says that its list has changed.
    ListChanged,
    /// A new session began on the same connection: what it offers may be another list.
    Renewed,
    /// The connection ended after it had worked for a while: what comes next may offer another list.
    Ended,
    /// It ended soon after its start; it is started again when it is needed.
    Failed,
}
