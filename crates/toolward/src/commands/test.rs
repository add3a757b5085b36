//! `toolward test`: runs the tests of a policy.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_policy::Policy;
use toolward_policy::analyse::{Ever, NeverOutcome, never_tests};
use toolward_policy::testing::TestOutcome;

use crate::cli::TestArgs;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::{CheckedPolicy, Input};
use crate::report::points;
use crate::report::policy_tests::{never_call, never_reasons, never_to_line, reason, to_line};

pub(crate) fn run(args: TestArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let mut input = Input::load(&args.policy, &args.tools, matches)?;
    fetch_tools::ask_for_tests(&mut input)?;
    let outcomes =
        toolward_policy::testing::run(&input.policy, &input.catalogue, &input.loaded.tests);
    let never = never_tests(&input.policy, &input.loaded.tests);
    let count = outcomes.len() + never.len();
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count()
        + never.iter().filter(|outcome| !outcome.passed()).count();
    let (checked, mut out) = (input.checked(), anstream::stdout());
    if args.output.json {
        let rows = outcomes.iter().map(|outcome| to_json(&checked, outcome));
        let never = never.iter().map(|outcome| never_to_json(&input.policy, outcome));
        let rows: Vec<_> = rows.chain(never).collect();
        writeln!(out, "{}", json!({"passed": count - failed, "failed": failed, "cases": rows}))?;
    } else {
        for outcome in &outcomes {
            writeln!(out, "{}", to_line(&checked, outcome))?;
        }
        for outcome in &never {
            writeln!(out, "{}", never_to_line(&input.policy, outcome))?;
        }
        if count == 0 {
            writeln!(out, "the policy has no tests; add them under `tests:`")?;
        }
        writeln!(out, "{} passed, {failed} failed", count - failed)?;
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

fn never_to_json(policy: &Policy, outcome: &NeverOutcome<'_>) -> serde_json::Value {
    let witness = match &outcome.answer {
        Ever::Yes(witness) | Ever::Asks(witness) | Ever::Depends(witness) => Some(witness),
        Ever::Never | Ever::Undecided(_) => None,
    };
    json!({
        "as": outcome.test.agents,
        "expect": "never",
        "case": never_call(outcome),
        "passed": outcome.passed(),
        "verdict": witness.map(|witness| witness.decision.verdict.as_str()),
        "step": witness.map(|witness| witness.decision.step.as_str()),
        "example": witness.map(|witness| points::to_json(&witness.point)),
        "reason": never_reasons(policy, outcome).join("; "),
    })
}
