//! `toolward test`: runs the tests of a policy.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_policy::testing::TestOutcome;

use crate::cli::TestArgs;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::{CheckedPolicy, Input};
use crate::report::policy_tests::{reason, to_line};

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

fn to_json(input: &CheckedPolicy<'_>, outcome: &TestOutcome<'_>) -> serde_json::Value {
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
