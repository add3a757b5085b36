//! `toolward test`: the tests that stand in a policy.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::neutral::neutralise;
use toolward_policy::reason::About;
use toolward_policy::testing::TestOutcome;

use crate::cli::TestArgs;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::{Checked, Input};
use crate::render::{DIM, GREEN, RED, paint};

pub(crate) fn run(args: TestArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let mut input = Input::load(&args.policy, &args.tools, matches)?;
    fetch_tools::ask_for_tests(&mut input)?;
    let outcomes =
        toolward_policy::testing::run(&input.policy, &input.catalogue, &input.loaded.tests);
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    let (checked, mut out) = (input.checked(), anstream::stdout());
    if args.output.json {
        let rows: Vec<_> = outcomes.iter().map(|outcome| to_json(&checked, outcome)).collect();
        writeln!(
            out,
            "{}",
            json!({"passed": outcomes.len() - failed, "failed": failed, "cases": rows})
        )?;
    } else {
        for outcome in &outcomes {
            writeln!(out, "{}", to_line(&checked, outcome))?;
        }
        if outcomes.is_empty() {
            writeln!(out, "the policy has no tests; add them under `tests:`")?;
        }
        writeln!(out, "{} passed, {failed} failed", outcomes.len() - failed)?;
    }
    Ok(if failed > 0 { exit::NO } else { exit::OK })
}

pub(crate) fn who<'a>(outcome: &TestOutcome<'a>) -> &'a str {
    outcome.agent.unwrap_or("a caller without a name")
}

pub(crate) fn to_line(input: &Checked<'_>, outcome: &TestOutcome<'_>) -> String {
    let mark = if outcome.passed { paint(GREEN, "ok  ") } else { paint(RED, "FAIL") };
    let case = outcome.case;
    let said = format!("{} {} {}", who(outcome), case.expect.as_str(), case.written);
    let mut line = format!("{mark} {}", neutralise(&said));
    if !outcome.passed {
        line.push_str(&format!(
            "\n     got {}: {}",
            outcome.decision.verdict,
            neutralise(&reason(input, outcome))
        ));
        if input.catalogue.tools(&case.server).is_none() {
            let note = format!("the tools of `{}` are not known; give --tools", case.server);
            line.push_str(&format!("\n     {}", paint(DIM, neutralise(&note))));
        }
    }
    line
}

/// Why a case came out as it did, in a sentence.
pub(crate) fn reason(input: &Checked<'_>, outcome: &TestOutcome<'_>) -> String {
    let case = outcome.case;
    let arguments = case.arguments.as_ref().map(|arguments| arguments as _);
    let action =
        toolward_policy::call::stated_action(&toolward_policy::Call { action: None, arguments });
    let about = About {
        agent: outcome.agent,
        server: &case.server,
        subject: &case.tool,
        action: action.as_deref(),
    };
    input.policy.reason(&outcome.decision, about)
}

fn to_json(input: &Checked<'_>, outcome: &TestOutcome<'_>) -> serde_json::Value {
    json!({
        "as": outcome.agent,
        "expect": outcome.case.expect.as_str(),
        "case": outcome.case.written,
        "passed": outcome.passed,
        "verdict": outcome.decision.verdict.as_str(),
        "step": outcome.decision.step.as_str(),
        "reason": reason(input, outcome),
    })
}
