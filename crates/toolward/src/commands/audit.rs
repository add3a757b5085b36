//! `toolward audit`: queries, exports and verifies the audit log.

mod cef;
mod counting;
mod csv;
mod ecs;
pub(crate) mod explain_id;
mod export;
mod keygen;
mod ocsf;
pub(crate) mod out;
mod query;
mod severity;
mod table;
mod verify;

use crate::cli::{AuditArgs, AuditCommand};
use crate::exit::Failure;

pub(crate) fn run(args: AuditArgs) -> Result<u8, Failure> {
    match args.command {
        AuditCommand::Verify(args) => verify::run(args),
        AuditCommand::Query(args) => query::run(args),
        AuditCommand::Export(args) => export::run(args),
        AuditCommand::Keygen(args) => keygen::run(&args),
    }
}
