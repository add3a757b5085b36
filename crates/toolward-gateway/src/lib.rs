//! The way of a request through Toolward.
//!
//! ```text
//! client ──► listen ──► ingress ──► decide ──► guard ──► audit ──► upstream ──► server
//! client ◄── listen ◄── present ◄───────────────────── audit ◄──── upstream ◄── server
//! ```
//!
//! [`pipeline`] is the one file that shows the whole way. Each other module is a room on it:
//!
//! | room | is |
//! |---|---|
//! | [`listen`] | a client's connection: stdio |
//! | `session` | what stands behind a connection: the handshake, the agent's view of the server |
//! | [`decide`] | what an agent may see ([`View`](decide::View)), and the [`Permit`](decide::Permit) that only a decision makes |
//! | [`audit`] | the record: an intent before forwarding, an outcome after |
//! | [`upstream`] | a server's connection: a child process |
//! | [`catalogue`] | a server's list, entry by entry as it was sent |
//! | [`present`] | what a client gets to read: lists, refusals, failures |

pub mod audit;
pub mod catalogue;
pub mod decide;
pub mod listen;
pub mod pipeline;
pub mod present;
mod record;
mod session;
pub mod upstream;
