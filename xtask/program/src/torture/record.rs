//! Reads a record without the program that wrote it.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Result;

/// What is found in the record of a folder.
#[derive(Default)]
pub(super) struct Found {
    pub(super) records: usize,
    /// The ids of requests whose calls were about to be forwarded.
    pub(super) intents: HashSet<String>,
    pub(super) repairs: usize,
    pub(super) bytes: u64,
}

/// Reads every record, and follows the chain from the first to the last.
pub(super) fn read(folder: &Path) -> Result<Found> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|error| format!("the record: {error}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    // `audit-00000001.jsonl` comes before `audit.jsonl`.
    files.sort();
    let mut found = Found::default();
    let mut last = "0".repeat(64);
    for file in files {
        let text = std::fs::read(&file).map_err(|error| format!("the record: {error}"))?;
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
                Some("gap") => return Err("a record says that others are missing".into()),
                _ => {}
            }
        }
    }
    Ok(found)
}
