//! The commands, one module each.

pub(crate) mod analysis;
pub(crate) mod audit;
pub(crate) mod can_i;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod matching;
mod question;
pub(crate) mod reload;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod stdio;
pub(crate) mod tail;
pub(crate) mod test;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod uninit;
pub(crate) mod wrap;
