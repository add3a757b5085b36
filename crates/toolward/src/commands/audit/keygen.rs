//! `toolward audit keygen`: creates a key that signs the log.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use toolward_config::sanitize;
use toolward_gateway::audit::signatures::SigningKey;

use crate::cli::AuditKeygenArgs;
use crate::exit::{self, Failure};

pub(super) fn run(args: &AuditKeygenArgs) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| {
        let file = args.file.display().to_string();
        Failure::invalid(format!("error: {}: {error}", sanitize(&file)))
    };
    let document = SigningKey::generate().map_err(failed)?;
    let key = SigningKey::read(&document).map_err(failed)?;
    // An existing key is never replaced.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file);
    opened
        .and_then(|mut file| file.write_all(&document).and_then(|()| file.sync_all()))
        .map_err(failed)?;
    writeln!(anstream::stdout(), "{}", key.public())?;
    Ok(exit::OK)
}
