//! Configuration files of MCP clients: finding them, putting the gateway in front of their servers, undoing it.
//!
//! `init`, `uninit` and `doctor` share these modules. The machine (platform, home directory, environment) is a
//! parameter, so that files of macOS and Windows are tested on Linux.
//!
//! | module | purpose |
//! |---|---|
//! | [`plan`] | what `init` would change, and applying it |
//! | [`undo`] | what `uninit` puts back |
//! | [`survey`] | which client files there are, and the state of their entries |
//! | [`state`] | the state of each entry, for `doctor` |
//! | [`launch`], [`probe`] | how a client starts an entry, and starting it to list its tools |
//! | [`activity`] | connections and calls of each agent, from the audit log |
//! | [`client_limits`] | tools that a client would drop, by its limits |
//! | [`second_doors`] | servers that a client takes from elsewhere |
//! | [`gateway_file`] | the gateway's own configuration, extended by servers and agents |
//! | [`journal`] | old and new text of every entry that was changed |
//! | [`wrapping`] | how an entry is changed, and which server it becomes |
//! | [`entry`] | an entry of a client's file, as the client reads it |
//! | [`locate`] | paths of the table on a machine |
//! | [`table`] | the clients: paths, formats, names of fields |
//! | [`replace_file`] | atomic replacement of a file that others may change at the same time |
//! | [`masked_diff`] | differences of two entries, with values masked |

pub(crate) mod activity;
pub(crate) mod client_limits;
pub(crate) mod entry;
pub(crate) mod gateway_file;
pub(crate) mod journal;
pub(crate) mod launch;
pub(crate) mod locate;
pub(crate) mod masked_diff;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod replace_file;
pub(crate) mod second_doors;
pub(crate) mod state;
pub(crate) mod survey;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod undo;
pub(crate) mod wrapping;
