//! `toolward can-i`: whether a call is allowed.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;

use crate::cli::CanIArgs;
use crate::commands::question::Question;
use crate::exit::{self, Failure};
use crate::query::{Answer, decision_json};
use crate::render::{DIM, paint, verdict};

pub(crate) fn run(args: CanIArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.question.output.json;
    let question = Question::new(args.question, matches)?;
    let asked = question.asked();
    let Answer { decision, why: reason, .. } = asked.answer();
    question.warn_of_unknown_agent()?;
    let mut out = anstream::stdout();
    if json {
        let mut answer = decision_json(asked.policy, &decision, &reason);
        if asked.route_note().is_some() {
            answer["route"] = json!(asked.route.as_str());
        }
        writeln!(out, "{answer}")?;
    } else {
        let word = match decision.verdict {
            toolward_policy::Verdict::Allow => "yes",
            toolward_policy::Verdict::Deny => "no",
            other => other.as_str(),
        };
        writeln!(out, "{}: {reason}", paint(verdict(decision.verdict), word))?;
        let denied = decision.verdict == toolward_policy::Verdict::Deny;
        if let Some(note) = asked.route_note().filter(|_| !denied) {
            writeln!(out, "{}", paint(DIM, note))?;
        }
        if asked.list_unknown {
            writeln!(
                out,
                "{}",
                paint(
                    DIM,
                    format!(
                        "the tools of `{}` are not known, so the answer rests on the name; give --tools",
                        asked.server
                    )
                )
            )?;
        }
    }
    Ok(if decision.verdict == toolward_policy::Verdict::Deny { exit::NO } else { exit::OK })
}
