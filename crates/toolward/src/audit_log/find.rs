//! Looks up one decision by its id.

use std::path::Path;

use memchr::memmem;
use serde_json::Value;
use toolward_config::sanitize;
use toolward_gateway::audit::line::{hash, previous};
use toolward_gateway::audit::read::lines::{Line, Reader};
use toolward_gateway::audit::read::{HeadState, StreamSnapshot, opening};

use super::clock::{Clock, Precision};
use super::dir::look;
use super::filter::intent_of;
use super::row::{subject, took};
use super::scan::first_segment;
use crate::exit::Failure;

/// Whether a word has the form of a decision's id, or of its first part, as tables on a terminal show it.
pub(crate) fn is_id(word: &str) -> bool {
    let hex = |part: &&str| {
        !part.is_empty() && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let parts: Vec<&str> = word.split('-').collect();
    parts.len() <= 3 && word.len() <= 64 && parts.iter().all(hex) && parts[0].len() >= 12
}

/// A decision from the audit log.
pub(crate) struct Decision {
    pub(crate) record: Value,
    pub(crate) outcome: Option<Value>,
    /// File and line.
    pub(crate) place: String,
    /// Whether the next record, or the head, has this record's hash; `None` if neither exists.
    pub(crate) fits: Option<bool>,
}

/// Finds a decision in all streams of a directory. For an outcome, its call is returned.
pub(crate) fn decision(folder: &Path, id: &str) -> Result<Option<Decision>, Failure> {
    let of = |id: &str| -> Result<Option<Decision>, Failure> {
        for found in look(folder)? {
            if let Some(decision) = find(&found, id)? {
                return Ok(Some(decision));
            }
        }
        Ok(None)
    };
    let Some(decision) = of(id)? else { return Ok(None) };
    let call = match decision.record["intent"].as_str().filter(|intent| *intent != id) {
        Some(intent) => of(intent)?,
        None => None,
    };
    Ok(Some(call.unwrap_or(decision)))
}

/// Finds a record by its id, which starts with its time.
fn find(found: &StreamSnapshot, id: &str) -> Result<Option<Decision>, Failure> {
    let begin = format!("{{\"id\":\"{id}");
    // The first parts of an id are enough.
    let is_meant = |line: &[u8]| {
        let rest = line.strip_prefix(begin.as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), Some(b'"' | b'-')))
    };
    let mut decision: Option<(Decision, [u8; 32])> = None;
    for segment in found.segments.iter().skip(first_segment(found, id)) {
        let Ok(file) = segment.open() else { continue };
        let mut reader = Reader::new(file, segment.bytes);
        let (mut lines, mut known) = (0, false);
        while let (false, Some(line)) = (known, reader.next()?) {
            lines += 1;
            let Line::Whole(line) = line else { continue };
            match &mut decision {
                None if is_meant(line) => {
                    let record = serde_json::from_slice(line).unwrap_or_default();
                    let place = format!("{}:{lines}", segment.path.display());
                    let found = Decision { record, outcome: None, place, fits: None };
                    decision = Some((found, hash(line)));
                }
                None => {}
                Some((decision, own)) => {
                    decision.fits.get_or_insert_with(|| previous(line) == Some(*own));
                    let is_outcome = memmem::find(line, b"\"intent\":\"").is_some()
                        && opening(line).is_some_and(|opening| opening.kind == "outcome")
                        && intent_of(line) == decision.record["id"].as_str();
                    if is_outcome {
                        decision.outcome = serde_json::from_slice(line).ok();
                    }
                    known = decision.outcome.is_some() || decision.record["kind"] != "intent";
                }
            }
        }
        if known {
            break;
        }
    }
    Ok(decision.map(|(mut decision, own)| {
        if let (None, HeadState::To(head)) = (decision.fits, found.known) {
            decision.fits = Some(head.hash == own);
        }
        decision
    }))
}

/// The fields of a decision's record, each with a label. Its time is formatted by the clock, or shown as
/// recorded.
pub(crate) fn facts(decision: &Decision, clock: Option<&Clock>) -> Vec<(String, String)> {
    let Decision { record, outcome, place, .. } = decision;
    let text = |name: &str| record[name].as_str().map(|text| sanitize(text).into_owned());
    let mut facts = Vec::new();
    let mut said =
        vec!["kind", "agent", "server", "tool", "action", "verdict", "prev", "intent", "refusal"];
    let noun = match subject(record) {
        Some((noun, _)) if !noun.is_empty() => noun.trim_end(),
        _ => "tool",
    };
    let mut row = |label: &str, names: &[&'static str], value: Option<String>| {
        said.extend(names);
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.push((label.to_string(), value));
        }
    };
    let time = text("time").map(|time| match clock {
        Some(clock) => clock.show(&time, Precision::Full),
        None => time,
    });
    row("when", &["time"], time);
    row("id", &["id"], text("id"));
    let identity = match (text("identity"), text("subject")) {
        (Some(how), Some(subject)) => Some(format!("{how}, subject {subject}")),
        (how, subject) => how.or(subject),
    };
    row("identity", &["identity", "subject"], identity);
    row("client", &["client"], text("client"));
    row("called as", &["exposed_name"], text("exposed_name"));
    let step = text("step").map(|step| match record["layer"].as_u64() {
        Some(layer) => format!("{step}, in layer {layer}"),
        None => step,
    });
    row("step", &["step", "layer"], step);
    row("rule", &["rule"], text("rule"));
    row("rule text", &["rule_text"], text("rule_text").map(|rule| format!("`{rule}`")));
    row("rule at", &["rule_at"], text("rule_at"));
    let unlisted = record["kind"] == "refusal" && record["step"].is_null();
    let reason = text("reason").or(unlisted.then(|| {
        let agent = text("agent").map_or(String::new(), |agent| format!("--as {agent} "));
        format!(
            "no tool of this name is in the agent's list: it is hidden or does not exist; \
             `toolward explain {agent}SERVER/TOOL` shows which"
        )
    }));
    row("because", &["reason"], reason);
    row("policy", &["policy"], text("policy").map(|policy| format!("version {policy}")));
    if record["kind"] == "refusal" {
        let listed = match record["listed"].as_bool() {
            Some(true) => "is in the agent's list",
            _ => "is not in the agent's list",
        };
        row("listed", &["listed"], Some(format!("the {noun} {listed}")));
    }
    let arguments = match &record["arguments"] {
        Value::Null => None,
        Value::String(hash) => Some(sanitize(hash).into_owned()),
        value => Some(sanitize(&value.to_string()).into_owned()),
    };
    row("arguments", &["arguments", "arguments_hash"], arguments);
    if record["kind"] == "intent" {
        row("outcome", &["outcome"], Some(ended(outcome.as_ref())));
    }
    let none = serde_json::Map::new();
    let rest: Vec<(String, String)> = record
        .as_object()
        .unwrap_or(&none)
        .iter()
        .filter(|(name, value)| !said.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), String::from);
            (sanitize(name).into_owned(), sanitize(&value).into_owned())
        })
        .collect();
    facts.extend(rest);
    // The text that the agent got, line by line.
    for (at, line) in record["refusal"].as_str().unwrap_or_default().lines().enumerate() {
        let label = if at == 0 { "agent got" } else { "" };
        facts.push((label.into(), sanitize(line).into_owned()));
    }
    facts.push(("recorded".into(), sanitize(place).into_owned()));
    facts
}

fn ended(outcome: Option<&Value>) -> String {
    let Some(outcome) = outcome else { return "none is recorded: the call was in flight".into() };
    let mut words = sanitize(outcome["outcome"].as_str().unwrap_or("?")).into_owned();
    if let Some(code) = outcome["error_code"].as_i64() {
        words.push_str(&format!(" ({code})"));
    }
    if let Some(micros) = outcome["duration_us"].as_u64() {
        words.push_str(&format!(" after {}", took(micros)));
    }
    if let Some(bytes) = outcome["bytes_out"].as_u64() {
        words.push_str(&format!(", {bytes} bytes"));
    }
    words
}
