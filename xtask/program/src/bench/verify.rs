//! The speed of reading the audit log: `toolward audit verify` and `audit query` over 1 GB.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::spread::Spread;
use super::table::Table;
use super::{Bench, Result};

const BYTES: u64 = 1_000_000_000;
/// The default size of a segment.
const SEGMENT: u64 = 256 << 20;

pub(super) fn run(bench: &Bench) -> Result<Table> {
    let folder = bench.subfolder("record")?;
    let bytes = write(&folder).map_err(|error| format!("no record to read: {error}"))?;
    let mut table = Table::new(format!("a record of {} MB", bytes / 1_000_000), &["MB/s"]);
    let mut measure = |what: &str, words: &[&str]| -> Result<Spread> {
        let mut rates = Vec::new();
        for _ in 0..bench.rounds.min(5) {
            let begun = Instant::now();
            let status = Command::new(&bench.toolward)
                .args(words)
                .arg("--dir")
                .arg(&folder)
                .stdout(Stdio::null())
                .status()
                .map_err(|error| format!("toolward cannot be started: {error}"))?;
            rates.push(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
            if !status.success() {
                return Err(format!("`{}` ends with {status}", words.join(" ")));
            }
        }
        let rate = Spread::of(rates);
        table.row(what, [rate.to_string()]);
        Ok(rate)
    };
    let verified = measure("audit verify", &["audit", "verify"])?;
    measure("audit query, one agent", &["audit", "query", "--agent", "seldom"])?;
    measure("audit export, jsonl", &["audit", "export", "--format", "jsonl"])?;
    table.finding("verify, MB/s", verified, "at least 200", verified.median >= 200.0);
    Ok(table)
}

/// Writes an audit log as a gateway does; returns its size.
fn write(folder: &Path) -> std::io::Result<u64> {
    let (mut total, mut segment, mut written, mut count) = (0, 1_u64, 0, 0_u64);
    let mut previous = "0".repeat(64);
    let mut out = BufWriter::new(File::create(folder.join("audit.jsonl"))?);
    let mut members = format!("\"kind\":\"segment\",\"segment\":{segment}");
    loop {
        let id = format!("{:012x}-0badcafe-{count:x}", 1_790_000_000_000_000 + count * 50);
        let time = format!("2026-11-16T04:{:02}:{:02}.000000Z", count / 60 % 60, count % 60);
        let line =
            format!("{{\"id\":\"{id}\",\"time\":\"{time}\",{members},\"prev\":\"{previous}\"}}");
        previous = Sha256::digest(&line).iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "{line}")?;
        let length = line.len() as u64 + 1;
        (total, written, count) = (total + length, written + length, count + 1);
        if total >= BYTES {
            out.flush()?;
            let head =
                format!("{{\"hash\":\"{previous}\",\"segment\":{segment},\"bytes\":{written}}}\n");
            std::fs::write(folder.join("audit.head"), head)?;
            return Ok(total);
        }
        members = match count % 2 {
            1 => intent(count),
            _ => format!(
                "\"kind\":\"outcome\",\"intent\":\"{id}\",\"outcome\":\"ok\",\"error_code\":null,\
                 \"duration_us\":{count},\"bytes_out\":90"
            ),
        };
        if written >= SEGMENT {
            out.flush()?;
            let closed = folder.join(format!("audit-{segment:08}.jsonl"));
            std::fs::rename(folder.join("audit.jsonl"), closed)?;
            out = BufWriter::new(File::create(folder.join("audit.jsonl"))?);
            (segment, written) = (segment + 1, 0);
            members = format!("\"kind\":\"segment\",\"segment\":{segment}");
        }
    }
}

fn intent(count: u64) -> String {
    let tool = format!("tool_{}", count % 100);
    format!(
        "\"kind\":\"intent\",\"agent\":\"agent-{}\",\"identity\":\"token\",\"client\":\"test 1\",\
         \"request_id\":\"{count}\",\"policy\":\"a2a3039b9f0177e2\",\"exposed_name\":\"files__{tool}\",\
         \"action\":null,\"server\":\"files\",\"tool\":\"{tool}\",\"verdict\":\"allow\",\"layer\":0,\
         \"step\":\"3-exact-allow\",\"rule\":\"agents.a.allow.tools.files[{}]\",\"rule_text\":\"{tool}\",\
         \"rule_at\":\"toolward.yaml:21:19\",\"reason\":\"`{tool}` in the allow list of agent `a` \
         covers `files/{tool}` (toolward.yaml:21:19)\",\"arguments\":\"sha256:{:064x}\",\
         \"bytes_in\":108",
        count % 10,
        count % 100,
        count
    )
}
