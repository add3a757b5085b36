//! Invariants that hold after every test of the whole program: the audit log is one hash chain, each
//! refusal that a client received has one record, each forwarded call has one outcome, and no file
//! contains a secret. This reads the files with its own code, so that the program does not check
//! itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use toolward_testkit::wait::eventually;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Decision ids that clients received, from all gateways of this process.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Credentials that clients sent.
static SENT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Registers a message that a client received.
pub fn received(message: &Value) {
    let listed = &message["result"]["_meta"]["io.toolward/refusal"]["decision_id"];
    let id = listed.as_str().or(message["error"]["data"]["decision_id"].as_str());
    if let Some(id) = id {
        TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(id.into());
    }
}

/// Statuses with which a gateway rejects a request, by the port that it listens on.
static AWAY: Mutex<BTreeMap<u16, u64>> = Mutex::new(BTreeMap::new());

/// Registers the status of a response from a port.
pub fn answered(port: u16, status: u16) {
    if [400, 401, 403, 404, 406, 413, 415, 431].contains(&status) {
        *AWAY.lock().unwrap_or_else(PoisonError::into_inner).entry(port).or_default() += 1;
    }
}

/// Checks that all requests that a gateway rejected are counted in its audit log. One that was killed,
/// or that could not write, may lack some.
pub fn are_counted(port: u16, audit: &Path, said: &str) {
    let heard = AWAY.lock().unwrap_or_else(PoisonError::into_inner).get(&port).copied();
    let (Some(heard), Ok(entries)) = (heard, std::fs::read_dir(audit)) else { return };
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let texts = files.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let text: String = texts.collect();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let records: Vec<Value> = records.collect();
    let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    let removed = of("gap") + of("retention") > 0;
    if of("start") != of("stop") || removed || said.contains("cannot be written") {
        return;
    }
    let counts = records.iter().filter(|record| record["kind"] == "turned-away");
    let counted: u64 = counts.filter_map(|record| record["count"].as_u64()).sum();
    // A server's own error about a missing capability has status 400 too.
    let lacking = records.iter().filter(|record| record["error_code"] == -32021).count() as u64;
    // A call for which the token lacks a scope has status 403 and a record of its own.
    let scopes = records.iter().filter_map(|record| record["reason"].as_str());
    let scopes = scopes.filter(|reason| reason.ends_with("which the caller's token lacks")).count();
    let heard = heard.saturating_sub(lacking + scopes as u64);
    assert!(counted >= heard, "{heard} were rejected, and {counted} are counted: {text}");
}

/// Registers a credential that a client sent.
pub fn sent(secret: &str) {
    SENT.lock().unwrap_or_else(PoisonError::into_inner).push(secret.into());
}

/// Shuts a program down gracefully, if it still runs and exits soon.
pub fn end(child: &mut Child) {
    child.stdin = None;
    if let Ok(None) = child.try_wait() {
        let pid = child.id().to_string();
        let _ = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        // A second signal ends it without waiting for calls in flight.
        let mut polls = 0;
        eventually("the program ends after a signal", || {
            polls += 1;
            if polls == 300 {
                let _ = std::process::Command::new("kill").args(["-TERM", &pid]).status();
            }
            !matches!(child.try_wait(), Ok(None))
        });
    }
    let _ = child.wait();
}

/// A program that has ended, to be checked.
pub struct Ended<'t> {
    pub audit: &'t Path,
    /// Texts that must be nowhere.
    pub secrets: Vec<String>,
    /// Its standard error.
    pub said: &'t str,
    /// The program was configured to continue if the audit log cannot be written.
    pub unrecorded: bool,
}

impl Ended<'_> {
    /// Checks all invariants.
    pub fn ask(&self) {
        let Ok(entries) = std::fs::read_dir(self.audit) else { return self.hold_no_secret("") };
        let mut streams: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            // A stream's name ends where its segments' numbers begin; the live file comes last.
            if let Some(stem) = name.strip_suffix(".jsonl").filter(|_| entry.path().is_file()) {
                let stream = stem.split('-').next().unwrap_or_default();
                streams.entry(stream.into()).or_default().push(stem.into());
            }
        }
        let mut records = Vec::new();
        let mut whole = true;
        for (_, mut segments) in streams {
            segments.sort_by_key(|stem| (!stem.contains('-'), stem.clone()));
            let mut lines = Vec::new();
            for stem in &segments {
                let path = self.audit.join(format!("{stem}.jsonl"));
                let text = std::fs::read_to_string(path).unwrap_or_default();
                self.hold_no_secret(&text);
                let end = text.rfind('\n').map_or(0, |end| end + 1);
                lines.extend(text[..end].lines().map(String::from));
            }
            let read: Vec<Value> =
                lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            whole &= is_chain(&lines, &read);
            records.extend(read);
        }
        self.hold_no_secret("");
        // Segments that a test removed on purpose cannot be checked.
        if whole && !self.unrecorded {
            refusals_have_records(&records);
            let failed = self.said.contains("cannot be written");
            calls_have_outcomes(&records, failed);
        }
    }

    fn hold_no_secret(&self, text: &str) {
        let sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
        // A plain word proves nothing if it is found.
        let telling = |secret: &&String| {
            secret.len() >= 6 && !secret.bytes().all(|byte| byte.is_ascii_lowercase())
        };
        for secret in self.secrets.iter().chain(&*sent).filter(telling) {
            assert!(!text.contains(secret.as_str()), "the secret {secret} was recorded: {text}");
            assert!(!self.said.contains(secret.as_str()), "{secret} was said: {}", self.said);
        }
    }
}

/// Checks that each record has the hash of the previous one; false if some are missing, and the log has
/// a record of that.
fn is_chain(lines: &[String], records: &[Value]) -> bool {
    let mut whole = true;
    let mut before: Option<String> = Some("0".repeat(64));
    for (at, (line, record)) in lines.iter().zip(records).enumerate() {
        let next = records.get(at + 1).map(|next| next["kind"].as_str().unwrap_or_default());
        let missing =
            record["kind"] == "gap" || (record["kind"] == "segment" && next == Some("gap"));
        let retained = at == 0 && record["segment"].as_u64() > Some(1);
        if missing || retained {
            (whole, before) = (false, None);
        }
        if let Some(before) = &before {
            assert_eq!(record["prev"], **before, "the chain is broken at {line}");
        }
        before = Some(Sha256::digest(line).iter().map(|byte| format!("{byte:02x}")).collect());
    }
    whole
}

/// The process that created an id.
fn process(id: &str) -> &str {
    id.split('-').nth(1).unwrap_or_default()
}

fn id(record: &Value) -> &str {
    record["id"].as_str().unwrap_or_default()
}

fn refusals_have_records(records: &[Value]) {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    told.sort_unstable();
    told.dedup();
    let processes: HashSet<&str> = records.iter().map(|record| process(id(record))).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    records.iter().for_each(|record| *counts.entry(id(record)).or_default() += 1);
    for decision in told.iter().filter(|decision| processes.contains(process(decision))) {
        let count = counts.get(decision.as_str()).copied().unwrap_or_default();
        assert_eq!(count, 1, "records of the refusal {decision}");
    }
}

fn calls_have_outcomes(records: &[Value], failed: bool) {
    let of = |kind: &'static str| records.iter().filter(move |record| record["kind"] == kind);
    let stopped: HashSet<&str> = of("stop").map(|record| process(id(record))).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for outcome in of("outcome") {
        *counts.entry(outcome["intent"].as_str().unwrap_or_default()).or_default() += 1;
    }
    for intent in of("intent") {
        let outcomes = counts.get(id(intent)).copied().unwrap_or_default();
        let due = stopped.contains(process(id(intent))) && !failed;
        assert!(outcomes == 1 || (outcomes == 0 && !due), "{outcomes} outcomes of {intent}");
    }
}
