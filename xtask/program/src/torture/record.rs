//! Reads an audit log independently of the program that wrote it.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Result;

/// The contents of the audit log of a directory.
#[derive(Default)]
pub(super) struct LogContents {
    pub(super) records: usize,
    /// The ids of requests whose calls were about to be forwarded.
    pub(super) intents: HashSet<String>,
    pub(super) repairs: usize,
    pub(super) bytes: u64,
}

/// Reads every record, and follows the chain from the first to the last.
pub(super) fn read(folder: &Path) -> Result<LogContents> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|error| format!("the audit log: {error}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    // `audit-00000001.jsonl` comes before `audit.jsonl`.
    files.sort();
    let mut found = LogContents::default();
    let mut last = "0".repeat(64);
    for file in files {
        let text = std::fs::read(&file).map_err(|error| format!("the audit log: {error}"))?;
        found.bytes += text.len() as u64;
        if !text.is_empty() && !text.ends_with(b"\n") {
            return Err(format!("{}: the last line is torn", file.display()));
        }
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let record: Value = serde_json::from_slice(line).map_err(|error| {
                format!("not a record: {error}: {}", String::from_utf8_lossy(line))
            })?;
            if record["prev"] != last {
                return Err(format!("the chain breaks at {}", record["id"]));
            }
            last = Sha256::digest(line).iter().map(|byte| format!("{byte:02x}")).collect();
            found.records += 1;
            match record["kind"].as_str() {
                Some("intent") => {
                    let id = record["request_id"].as_str().unwrap_or_default();
                    found.intents.insert(id.trim_matches('"').into());
                }
                Some("repair") => found.repairs += 1,
                Some("gap") => return Err("a record reports that others are missing".into()),
                _ => {}
            }
        }
    }
    Ok(found)
}
