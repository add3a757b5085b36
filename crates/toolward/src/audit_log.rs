//! Reading the audit log, for commands and the admin UI.
//!
//! | module | purpose |
//! |---|---|
//! | [`dir`] | finds the directory of the log |
//! | [`scan`] | reads all records of a directory, in order |
//! | [`filter`], [`argument_search`] | selects records, and joins calls with their outcomes |
//! | [`tail_rows`], [`follow`] | the last records, and new ones as they are written |
//! | [`find`] | looks up one decision by its id |
//! | [`row`], [`rows`] | a record as a table row, and calls with their outcomes |
//! | [`time`], [`clock`] | parses and prints points in time |
//! | [`progress`] | the progress line of long reads |

pub(crate) mod argument_search;
pub(crate) mod clock;
pub(crate) mod dir;
pub(crate) mod filter;
pub(crate) mod find;
pub(crate) mod follow;
pub(crate) mod progress;
pub(crate) mod row;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod tail_rows;
pub(crate) mod time;
