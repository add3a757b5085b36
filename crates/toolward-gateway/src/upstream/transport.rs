//! Transports to servers: stdio, Streamable HTTP, and legacy HTTP+SSE.
//!
//! Child processes and HTTP+SSE share one line-based transport: both deliver messages one by one over a
//! connection that outlives a request.

pub(crate) mod environment;
pub(crate) mod event_stream;
pub(crate) mod http;
pub(crate) mod ids;
pub(crate) mod legacy_sse;
pub(crate) mod line_session;
pub(crate) mod line_transport;
pub(crate) mod reusable_process;
pub(crate) mod stdio;
pub(crate) mod writer;
