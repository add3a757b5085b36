//! `toolward audit verify`: checks the integrity of the audit log.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use toolward_config::sanitize;
use toolward_gateway::audit::read::chain::{Finding, Place, Report, verify};
use toolward_gateway::audit::read::repair::{Repair, repair};
use toolward_gateway::audit::segment::Stream;
use toolward_gateway::audit::signatures::{self, signatures_path};

use crate::audit_log::dir::{folder, look};
use crate::audit_log::progress::Progress;
use crate::audit_log::row;
use crate::cli::VerifyArgs;
use crate::exit::{self, Failure};
use crate::render::{BOLD, DIM, GREEN, RED, count, paint};

pub(super) fn run(args: VerifyArgs) -> Result<u8, Failure> {
    let folder = folder(&args.record)?;
    let found = look(&folder)?;
    let mut notes = Vec::new();
    if args.repair {
        for found in &found {
            notes.extend(take_off(&found.stream)?);
        }
    }
    let mut progress = Progress::new(found.iter().map(|found| found.bytes()).sum());
    let mut reports = Vec::new();
    for found in &found {
        let report = verify(&found.stream, &mut |bytes| progress.add(bytes));
        let report = report.map_err(|error| {
            let name = folder.join(found.stream.name()).display().to_string();
            Failure::invalid(format!("error: {}: {error}", sanitize(&name)))
        })?;
        reports.push((found.stream.name(), report));
    }
    progress.end();
    let mut signed = true;
    if let Some(key) = &args.key {
        for found in &found {
            let (holds, said) = signatures_of(&found.stream, key, args.signatures.as_deref())?;
            signed &= holds;
            notes.extend(said);
        }
    }
    let whole = signed && reports.iter().all(|(_, report)| report.is_whole());
    let mut out = anstream::stdout();
    if args.output.json {
        writeln!(out, "{}", row::json(&to_json(&folder, &reports, &notes, whole)))?;
    } else {
        write!(out, "{}", to_text(&folder, &reports, &notes, whole))?;
    }
    Ok(if whole { exit::OK } else { exit::NO })
}

/// Checks the signatures of a stream. Returns whether they hold, and a report.
fn signatures_of(
    stream: &Stream,
    key: &str,
    file: Option<&Path>,
) -> Result<(bool, Vec<String>), Failure> {
    let own = signatures_path(stream);
    let found = signatures::verify(stream, file.unwrap_or(&own), key)
        .map_err(|error| Failure::invalid(format!("error: signatures: {error}")))?;
    let mut said = found.problems.clone();
    if let Some(last) = &found.last {
        let (name, valid) = (stream.name(), count_of(found.valid, "valid signature"));
        said.push(format!("{name}: {valid}, the last of {last}; later records are not signed yet"));
    }
    Ok((found.problems.is_empty(), said))
}

/// Repairs a stream; returns a report.
fn take_off(stream: &Stream) -> Result<Option<String>, Failure> {
    let name = format!("{}.jsonl", stream.name());
    let refused = |why: &str| Err(Failure::invalid(format!("error: {name}: {why}")));
    match repair(stream) {
        Ok(Repair::Done(bytes)) => {
            Ok(Some(format!("{name}: the incomplete last line was removed ({bytes} bytes)")))
        }
        Ok(Repair::NotNeeded) => Ok(None),
        Ok(Repair::Written) => refused("it is not repaired while a gateway writes to it"),
        Ok(Repair::RecordsMissing) => Ok(Some(format!(
            "{name}: the last line is not removed: the head covers more, so the file was truncated \
             after it was written"
        ))),
        Ok(Repair::OnlyLine) => Ok(Some(format!(
            "{name}: the only line is incomplete; the next gateway removes it and records the repair"
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => refused(&error.to_string()),
    }
}

/// Remarks that are not findings.
fn remarks(stream: &str, report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(torn) = &report.torn {
        let (file, line, bytes) = (&torn.file, torn.line, torn.bytes);
        said.push(match report.is_written {
            true => format!("{file}:{line}: a line is being written"),
            false => format!(
                "{file}:{line}: torn: the last line is incomplete ({bytes} bytes); --repair or the \
                 next gateway removes it and records the repair"
            ),
        });
    }
    if report.killed > 0 {
        let records = count_of(report.killed, "record");
        said.push(format!(
            "{stream}: a gateway was killed: its head does not cover the last {records}, which \
             continue the chain"
        ));
    }
    if report.repairs > 0 {
        said.push(format!("{stream}: {} removed earlier", count_of(report.repairs, "torn line")));
    }
    if let Some(upto) = report.removed_up_to {
        said.push(format!("{stream}: segments up to {upto} expired and were removed"));
    }
    if report.more > 0 {
        said.push(format!("{stream}: {} more", count_of(report.more, "place")));
    }
    said
}

fn count_of(number: u64, thing: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), thing)
}

fn to_text(folder: &Path, reports: &[(String, Report)], notes: &[String], whole: bool) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    for (_, report) in reports {
        for Finding { place, problem, .. } in &report.findings {
            let place = sanitize(&place.to_string()).into_owned();
            let word = paint(RED, problem.word());
            let problem = problem.to_string();
            line(format!("{}: {word}: {}", paint(BOLD, place), sanitize(&problem)));
        }
    }
    for note in notes {
        line(paint(DIM, sanitize(note)));
    }
    for remark in reports.iter().flat_map(|(stream, report)| remarks(stream, report)) {
        line(paint(DIM, sanitize(&remark)));
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(|(_, report)| of(report)).sum::<u64>();
    let records = sum(|report| report.records);
    let first = reports.iter().filter_map(|(_, report)| report.first.as_deref()).min();
    let last = reports.iter().filter_map(|(_, report)| report.last.as_deref()).max();
    let span = match (first, last) {
        (Some(first), Some(last)) => format!(", {first} to {last}"),
        _ => String::new(),
    };
    let wrong = sum(|report| report.findings.len() as u64 + report.more);
    let verdict = match whole {
        true => paint(GREEN, "whole"),
        false => paint(RED, format!("not whole: {}", count_of(wrong, "place"))),
    };
    let name = folder.display().to_string();
    line(format!(
        "{}: {}, {}, {}{}: {verdict}",
        sanitize(&name),
        count(reports.len(), "stream"),
        count_of(sum(|report| report.segments as u64), "segment"),
        count_of(records, "record"),
        sanitize(&span),
    ));
    text
}

fn to_json(folder: &Path, reports: &[(String, Report)], notes: &[String], whole: bool) -> Value {
    let place = |place: &Place| {
        let word = |text: &str| (!text.is_empty()).then(|| text.to_string());
        json!({
            "file": place.file,
            "line": (place.line > 0).then_some(place.line),
            "id": word(&place.id),
            "time": word(&place.time),
        })
    };
    let streams = reports.iter().map(|(name, report)| {
        let findings = report.findings.iter().map(|finding| {
            let mut said = place(&finding.place);
            said["what"] = finding.problem.word().into();
            said["message"] = finding.problem.to_string().into();
            said
        });
        let torn = report.torn.as_ref();
        json!({
            "stream": name,
            "segments": report.segments,
            "records": report.records,
            "first": report.first,
            "last": report.last,
            "whole": report.is_whole(),
            "findings": findings.collect::<Vec<_>>(),
            "more_findings": report.more,
            "torn": torn.map(|torn| json!({"file": torn.file, "line": torn.line, "bytes": torn.bytes})),
            "killed": report.killed,
            "repairs": report.repairs,
            "removed_up_to": report.removed_up_to,
        })
    });
    json!({
        "folder": folder.display().to_string(),
        "whole": whole,
        "streams": streams.collect::<Vec<_>>(),
        "notes": notes,
    })
}
