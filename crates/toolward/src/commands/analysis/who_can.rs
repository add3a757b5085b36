//! `toolward who-can`: the agents that may make a call.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::sanitize;
use toolward_policy::Verdict;

use crate::cli::{Kind, QuestionArgs, WhoCanArgs};
use crate::commands::question::Question;
use crate::exit::{self, Failure};
use crate::render::{BOLD, DIM, Table, paint, verdict};
use crate::report::points;

pub(crate) fn run(args: WhoCanArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.output.json;
    let question = Question::new(
        QuestionArgs {
            scope: None,
            agent: None,
            subject: args.subject,
            arguments: args.arguments,
            kind: Kind::Tool,
            list: false,
            policy: args.policy,
            tools: args.tools,
            output: args.output,
        },
        matches,
    )?;
    let policy = &question.input.policy;
    let mut agents: Vec<Option<&str>> = policy.agents().into_iter().map(Some).collect();
    agents.push(None);
    let mut table = Table::new(&["AGENT", "VERDICT", "RULE"]);
    let mut rows = Vec::new();
    for agent in agents {
        let decision = question.asked_as(agent).answer().decision;
        if decision.verdict == Verdict::Deny {
            continue;
        }
        let name = agent.unwrap_or("an unnamed caller");
        let mut row = points::decision_json(policy, &decision);
        row["agent"] = json!(agent);
        rows.push(row);
        table.row(vec![
            (sanitize(name).into_owned(), BOLD),
            (decision.verdict.as_str().into(), verdict(decision.verdict)),
            (points::rule(policy, &decision), DIM),
        ]);
    }
    let mut out = anstream::stdout();
    let nobody = rows.is_empty();
    match (json, nobody) {
        (true, _) => writeln!(out, "{}", json!(rows))?,
        (false, true) => writeln!(out, "nobody")?,
        (false, false) => write!(out, "{}", table.render())?,
    }
    if question.asked().list_unknown && !json {
        let note =
            "the tools of this server are not known, so the answer rests on the name; give --tools";
        writeln!(out, "{}", paint(DIM, note))?;
    }
    Ok(if nobody { exit::NO } else { exit::OK })
}
