//! `toolward can-i`: whether a call is allowed.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_gateway::upstream::built_in;
use toolward_policy::Verdict;

use crate::cli::CanIArgs;
use crate::commands::question::Question;
use crate::exit::{self, Failure};
use crate::query::{Answer, Way, decision_json};
use crate::render::{DIM, paint, verdict};

pub(crate) fn run(args: CanIArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.question.output.json;
    let question = Question::new(args.question, matches)?;
    let asked = question.asked();
    let answer = asked.answer();
    let direct = asked.direct_way(&answer);
    let Answer { decision, why: reason, .. } = answer;
    question.warn_of_unknown_agent()?;
    let mut out = anstream::stdout();
    if json {
        let mut answer = decision_json(asked.policy, &decision, &reason);
        if asked.route_note().is_some() {
            answer["route"] = json!(asked.route.as_str());
        }
        if let Some(direct) = direct {
            answer["direct"] = direct.to_json(&asked);
        }
        writeln!(out, "{answer}")?;
    } else {
        // The direct call is also shown if its answer differs.
        let direct = direct.filter(|direct| direct.why != reason);
        let through = match direct {
            Some(_) => format!(", through `{}`", built_in::EXECUTE),
            None => String::new(),
        };
        let word = paint(verdict(decision.verdict), word(decision.verdict));
        writeln!(out, "{word}{through}: {reason}")?;
        if let Some(Way { decision, why, .. }) = direct {
            let word = paint(verdict(decision.verdict), self::word(decision.verdict));
            writeln!(out, "{word}, by a direct call: {why}")?;
        }
        if asked.list_unknown {
            writeln!(
                out,
                "{}",
                paint(
                    DIM,
                    format!(
                        "the tools of `{}` are not known, so the answer is based on the name alone; use --tools",
                        asked.server
                    )
                )
            )?;
        }
    }
    Ok(if decision.verdict == Verdict::Deny { exit::NO } else { exit::OK })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "yes",
        Verdict::Deny => "no",
        other => other.as_str(),
    }
}
