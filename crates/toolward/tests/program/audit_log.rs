//! The audit log that a program under test writes.

// Not every test sends credentials, or receives refusals.
#[allow(dead_code)]
#[path = "witness.rs"]
pub mod witness;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

/// All records of the current file. Outcomes are written just after their responses: those still due
/// are waited for.
pub fn all(folder: &Path) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let records: Vec<Value> =
            whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let count = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
        if count("intent") <= count("outcome") || begun.elapsed() > Duration::from_secs(3) {
            return records;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Records of decisions, without those about the file itself.
pub fn decisions(folder: &Path) -> Vec<Value> {
    let own = ["segment", "start", "stop"];
    let kept = |record: &Value| !own.iter().any(|kind| record["kind"] == *kind);
    all(folder).into_iter().filter(kept).collect()
}
