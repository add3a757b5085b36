//! The position of a sink in a stream, in a file that only one process may use at a time.

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::audit::segment::{Head, Stream, open_file};
use crate::audit::sink_state::{position_path, read_position};

/// A claimed position. The lock is released when the file is closed.
#[derive(Debug)]
pub(super) struct Position {
    file: File,
    /// The end of the last record that was delivered.
    pub(super) at: Head,
}

impl Position {
    /// Claims the position of a sink in a stream; `None` if another process has it.
    pub(super) fn claim(folder: &Path, sink: &str, stream: &Stream) -> Result<Option<Position>> {
        let path = position_path(folder, sink, stream);
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open_file(&path, &mut options)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // A position that cannot be read means: from the beginning. Nothing is missed.
        let at = read_position(&file).unwrap_or(Head::NOTHING);
        Ok(Some(Position { file, at }))
    }

    pub(super) fn store(&mut self, at: Head) -> Result<()> {
        at.overwrite(&self.file)?;
        self.at = at;
        Ok(())
    }
}
