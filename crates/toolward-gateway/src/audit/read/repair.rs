//! Removes an incomplete last line, and records the repair.

use std::fs::File;
use std::io::{Result, Write};

use crate::audit::Ids;
use crate::audit::facts::Facts;
use crate::audit::line::Lines;
use crate::audit::segment::{Head, Stream, first_line, open_file, tail};

/// The result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// This many bytes were removed.
    Done(u64),
    /// The last line is complete.
    NotNeeded,
    /// A gateway is writing to the stream, and repairs it.
    Written,
    /// The head includes more: the line is not just the result of a killed process. The next
    /// gateway to start records that.
    RecordsMissing,
    /// The file contains nothing else. The next gateway to start removes the line, and records it.
    OnlyLine,
}

/// Repairs a stream's last line, and nothing else.
pub fn repair(stream: &Stream) -> Result<Repair> {
    let Some(head) = stream.lock()? else { return Ok(Repair::Written) };
    let file = open_file(&stream.live_path(), File::options().read(true).append(true))?;
    let end = tail(&file)?;
    if end.torn.is_empty() {
        return Ok(Repair::NotNeeded);
    }
    let Some(last) = end.last else { return Ok(Repair::OnlyLine) };
    let segment = first_line(&file).unwrap_or_default()["segment"].as_u64().unwrap_or(1);
    if stream.head().is_some_and(|head| (head.segment, head.bytes) > (segment, end.whole)) {
        return Ok(Repair::RecordsMissing);
    }
    let ids = Ids::new()?;
    let bytes = end.torn.len() as u64;
    let mut facts = Facts::default();
    facts.number("bytes", bytes);
    let shown = end.torn.get(..4096).unwrap_or(&end.torn);
    facts.text("torn", &String::from_utf8_lossy(shown));
    let mut lines = Lines::default();
    lines.push(&ids.next(), "repair", &facts);
    let mut out = Vec::new();
    let hash = lines.chain(last, &mut out);
    file.set_len(end.whole)?;
    (&file).write_all(&out)?;
    Head { segment, bytes: end.whole + out.len() as u64, hash }.write(&head)?;
    Ok(Repair::Done(bytes))
}
