//! The way of a request through Toolward.
//!
//! ```text
//! client ──► listen ──► ingress ──► identity ──► decide ──► guard ──► audit ──► upstream ──► server
//! client ◄── listen ◄── present ◄──────────────────────────────────── audit ◄── upstream ◄── server
//! ```
//!
//! [`pipeline`] is the one file that shows the whole way. Each other module is a room on it:
//!
//! | room | is |
//! |---|---|
//! | [`listen`] | where clients come in: stdio, Streamable HTTP |
//! | [`ingress`] | what a message is, before anyone acts on it |
//! | [`identity`] | which agent a credential names |
//! | [`client`], [`session`], [`notes`] | who asks, what it has under way, and what it is told beside answers |
//! | [`hello`] | how a client begins: `initialize`, `server/discover` |
//! | [`sight`] | what a client sees at the moment |
//! | [`decide`] | what an agent may see ([`View`](decide::View)), and the [`Permit`](decide::Permit) that only a decision makes |
//! | [`guard`] | what stands in front of a call that policy allows: limits, hooks |
//! | [`audit`] | the record: an intent before forwarding, an outcome after |
//! | [`upstream`] | servers, and the links to them: child processes, HTTP |
//! | [`catalogue`], [`names`] | a server's list, entry by entry as it was sent, and what clients call its tools |
//! | `unseen` | why a name is refused that an agent does not see, for the record alone |
//! | [`builtin`] | the gateway's own server: tools by which an agent finds and calls others |
//! | [`counts`] | what has happened, in numbers |
//! | [`present`] | what a client gets to read: lists, refusals, failures |
//! | [`budget`] | how many bytes are held for clients, and for which agent |
//! | [`ownership`] | which files other users could change |
//! | [`program`], [`groups`] | how child processes are found, and how they end with the gateway |
//! | [`sealed`] | handles that only the gateway can make and only their agent can use |

pub mod audit;
pub mod budget;
pub mod builtin;
pub mod catalogue;
pub mod client;
pub mod counts;
pub mod decide;
pub mod groups;
pub mod guard;
pub mod hello;
pub mod identity;
pub mod ingress;
pub mod listen;
pub mod names;
pub mod notes;
pub mod ownership;
pub mod pipeline;
pub mod present;
pub mod program;
pub mod record;
mod refuse;
pub mod sealed;
pub mod session;
pub mod sight;
mod start;
mod unseen;
pub mod upstream;
