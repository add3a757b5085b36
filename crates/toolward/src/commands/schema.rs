//! `toolward schema`: the JSON Schema of the configuration.

use std::io::Write;

use crate::cli::SchemaArgs;
use crate::exit::{self, Failure};

pub(crate) fn run(_args: SchemaArgs) -> Result<u8, Failure> {
    writeln!(std::io::stdout(), "{:#}", toolward_config::schema())?;
    Ok(exit::OK)
}
