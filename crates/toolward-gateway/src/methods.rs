//! Handlers of the protocol's methods, and the audit events they write.
//!
//! | module | method |
//! |---|---|
//! | [`initialize`] | `initialize`, `server/discover` |
//! | `capabilities` | the capabilities in the handshake |
//! | [`list`] | `tools/list`, `prompts/list`, `resources/list`, `resources/templates/list` |
//! | [`call`] | `tools/call`, `prompts/get`, `resources/read`, `completion/complete`, `tasks/*`, in six stages |
//! | [`approvals`] | decisions of people about calls that wait for them |
//! | [`logging`] | `logging/setLevel` |
//! | [`tasks`] | `tasks/list`; other requests about tasks go through [`call`] |
//! | [`subscriptions`] | `resources/subscribe`, `resources/unsubscribe`, `subscriptions/listen` |
//! | [`meta_tools`] | calls of the gateway's own tools |
//! | [`request`] | a request as a listener admitted it |
//! | [`views`] | the view of a client, over the lists of its servers |
//! | [`refusals`] | refused calls and listings |
//! | [`events`] | audit events |

pub mod approvals;
pub(crate) mod call;
mod capabilities;
pub mod edits;
pub mod events;
pub(crate) mod initialize;
pub(crate) mod list;
pub(crate) mod logging;
pub mod logins;
pub(crate) mod meta_tools;
mod refusals;
pub mod request;
pub(crate) mod subscriptions;
pub(crate) mod tasks;
pub(crate) mod views;
