//! Handlers of the protocol's methods, and the audit events they write.
//!
//! | module | method |
//! |---|---|
//! | [`initialize`] | `initialize`, `server/discover` |
//! | [`list`] | `tools/list` |
//! | [`call`] | `tools/call`, in six stages |
//! | [`meta_tools`] | calls of the gateway's own tools |
//! | [`request`] | a request as a listener admitted it |
//! | [`views`] | the view of a client, over the lists of its servers |
//! | [`refusals`] | refused calls and listings |
//! | [`events`] | audit events |

pub(crate) mod call;
pub mod events;
pub(crate) mod initialize;
pub(crate) mod list;
pub(crate) mod meta_tools;
mod refusals;
pub mod request;
pub(crate) mod views;
