//! Records on standard output, one per line.

use std::io::Write;

use super::records::Records;

/// Blocks while standard output is not read: the thread belongs to this sink alone.
pub(super) fn deliver(records: &Records) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(records.text()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}
