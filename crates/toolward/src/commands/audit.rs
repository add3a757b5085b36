//! `toolward audit`: reads the record of decisions.
//!
//! | part | is |
//! |---|---|
//! | `verify`, `query`, `export` | the commands |
//! | [`past`] | one decision, for `explain` |
//! | [`folder`] | where the record is |
//! | [`scan`] | all records of a folder, in order |
//! | [`filter`] | which ones are meant, and what came of calls |
//! | [`latest`], [`arriving`] | the last records, and those that come |
//! | [`row`], [`rows`] | a record as a person sees it, and calls with their outcomes |
//! | [`table`], [`clock`] | rows on a terminal, in local time |
//! | [`counting`] | how many calls, by agent, tool and so on |
//! | [`out`], [`progress`] | how rows and waiting look |
//! | [`when`] | points in time, as people write them |

pub(crate) mod follow;
mod cef;
mod clock;
mod counting;
mod csv;
mod export;
pub(crate) mod filter;
pub(crate) mod dir;
pub(crate) mod tail_rows;
pub(crate) mod out;
pub(crate) mod explain_id;
mod progress;
mod query;
pub(crate) mod row;
mod rows;
pub(crate) mod scan;
mod sought;
mod table;
mod verify;
mod time;

use crate::cli::{AuditArgs, AuditCommand};
use crate::exit::Failure;

pub(crate) fn run(args: AuditArgs) -> Result<u8, Failure> {
    match args.command {
        AuditCommand::Verify(args) => verify::run(args),
        AuditCommand::Query(args) => query::run(args),
        AuditCommand::Export(args) => export::run(args),
    }
}
