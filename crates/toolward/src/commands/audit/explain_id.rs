//! `toolward explain DECISION_ID`: a past decision, with the rule as it was at that time.

use std::io::Write;

use serde_json::json;
use toolward_config::sanitize;
use toolward_policy::Verdict;

use crate::audit_log::clock::Clock;
use crate::audit_log::dir::{candidates, has_log};
use crate::audit_log::find::{Decision, decision, facts};
use crate::audit_log::row::{self, joined};
use crate::cli::RecordArgs;
use crate::exit::{self, Failure};
use crate::render::{BOLD, DIM, RED, paint, verdict};

pub(crate) fn run(id: &str, args: &RecordArgs, utc: bool, as_json: bool) -> Result<u8, Failure> {
    let folders = candidates(args)?;
    let mut found = None;
    for folder in folders.iter().filter(|folder| args.dir.is_some() || has_log(folder)) {
        found = decision(folder, id)?;
        if found.is_some() {
            break;
        }
    }
    let Some(decision) = found else {
        let folders: Vec<String> = folders.iter().map(|one| one.display().to_string()).collect();
        let folders = folders.join(", ");
        let mut stderr = anstream::stderr();
        writeln!(stderr, "no record in {} has the id {id}", sanitize(&folders))?;
        let help = "give the directory of the audit log: --dir DIR, or -c FILE";
        writeln!(stderr, "  help: {help}")?;
        return Ok(exit::NO);
    };
    let mut out = anstream::stdout();
    if as_json {
        let mut row = joined(decision.record, decision.outcome.as_ref());
        row["place"] = json!(decision.place);
        row["fits"] = json!(decision.fits);
        writeln!(out, "{}", row::json(&row))?;
    } else {
        write!(out, "{}", to_text(&decision, &Clock::new(utc)))?;
    }
    Ok(exit::OK)
}

fn to_text(decision: &Decision, clock: &Clock) -> String {
    let Decision { record, fits, .. } = decision;
    let text = |name: &str| record[name].as_str().map(|text| sanitize(text).into_owned());
    let mut lines = Vec::new();
    let who = text("agent").unwrap_or_else(|| "an unnamed caller".into());
    let about = row::what(record);
    let about = paint(BOLD, sanitize(&about));
    lines.push(match record["kind"].as_str() {
        Some("intent" | "refusal") => {
            let decided = text("verdict").unwrap_or_else(|| "-".into());
            let style = match decided.as_str() {
                "deny" => verdict(Verdict::Deny),
                "ask" => verdict(Verdict::Ask),
                _ => verdict(Verdict::Allow),
            };
            format!("{} called {about}: {}", paint(BOLD, who), paint(style, decided))
        }
        Some("unavailable") => format!("{} called {about}: not decided", paint(BOLD, who)),
        _ => about,
    });
    let fact = |(label, value): (String, String)| {
        format!("  {} {value}", paint(DIM, format!("{label:<10}")))
    };
    lines.extend(facts(decision, Some(clock)).into_iter().map(fact));
    if *fits == Some(false) {
        let warning = "the next record does not match it: it may have been changed";
        lines.push(format!("{} {warning}; see `toolward audit verify`", paint(RED, "warning:")));
    }
    lines.join("\n") + "\n"
}
