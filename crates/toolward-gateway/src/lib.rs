//! The request path of the gateway: from a client's bytes to a server's response.
//!
//! ```text
//! client ──► downstream ──► gateway ──► methods: resolve ─► authorize ─► guard ─► record ─► forward ──► server
//!            (authn,                    (call)   view        view         guard    audit     upstream
//!             validate)
//! client ◄── downstream ◄── gateway ◄────────── finish ◄─────────────────────────────────────────────── server
//! ```
//!
//! Modules in the order of the request path:
//!
//! | module | contains |
//! |---|---|
//! | [`downstream`] | listeners and client connections: Streamable HTTP, stdio, TLS, sessions |
//! | [`gateway`] | [`Gateway`](gateway::Gateway): the entry for both listeners, method dispatch |
//! | [`methods`] | one module per method: `initialize`, `tools/list`, `tools/call`, the meta tools; their audit events |
//! | [`context`] | what methods need beside the request |
//! | `validate` | envelope and protocol checks of a message |
//! | [`active`] | the active configuration: policy, guards, servers, names, identities |
//! | [`authn`] | authentication: tokens, JWTs, client certificates, peer credentials |
//! | [`view`] | what an agent may see and call: views, names, the search index |
//! | [`guard`] | rate limits and hooks in front of calls that the policy allows |
//! | [`audit`] | the audit log: an intent before forwarding, an outcome after |
//! | [`sinks`] | copies of the audit log for syslog, OTLP and PostgreSQL |
//! | [`upstream`] | servers and connections to them: child processes, HTTP, HTTP+SSE |
//! | [`login`] | OAuth logins of people at servers: discovery, flows, grants, refresh |
//! | [`http_client`] | the HTTP client for servers, hooks, signing keys and token endpoints |
//! | `otlp` | sends OTLP over HTTP |
//! | `postgres` | connections to PostgreSQL, for the audit sink and the shared stores |
//! | [`client`], `permit`, `in_flight`, `notifications`, [`opaque_id`], `responses`, [`metrics`], [`traces`], [`budget`], [`log`] | shared types |
//! | [`ownership`], [`truncated`], [`program`], [`groups`] | files that other users could change, or that were truncated; child processes and process groups |

pub mod active;
pub mod audit;
pub mod authn;
pub mod budget;
pub mod client;
pub mod clock;
pub mod context;
pub mod downstream;
pub mod gateway;
pub mod groups;
pub mod guard;
mod held;
pub mod http_client;
mod in_flight;
mod links;
pub mod lock;
pub mod log;
pub mod login;
mod made_tasks;
pub mod methods;
pub mod metrics;
mod notifications;
pub mod opaque_id;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod ownership;
mod parse;
mod permit;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod program;
mod random;
mod responses;
pub mod sinks;
pub mod traces;
pub mod truncated;
pub mod upstream;
mod validate;
pub mod view;
