//! Outcomes of policy tests as text.

use toolward_config::sanitize;
use toolward_policy::analyse::{Ever, NeverOutcome, Witness};
use toolward_policy::reason::About;
use toolward_policy::testing::TestOutcome;
use toolward_policy::{Family, Policy};

use super::points;
use crate::load::CheckedPolicy;
use crate::render::{DIM, GREEN, RED, paint};

pub(crate) fn who<'a>(outcome: &TestOutcome<'a>) -> &'a str {
    outcome.agent.unwrap_or("an unnamed caller")
}

pub(crate) fn to_line(input: &CheckedPolicy<'_>, outcome: &TestOutcome<'_>) -> String {
    let case = outcome.case;
    let said = format!("{} {} {}", who(outcome), case.expect.as_str(), case.written);
    let mut line = format!("{} {}", mark(outcome.passed), sanitize(&said));
    if !outcome.passed {
        line.push_str(&format!(
            "\n     got {}: {}",
            outcome.decision.verdict,
            sanitize(&reason(input, outcome))
        ));
        if case.family == Family::Tools && input.catalogue.tools(&case.server).is_none() {
            let note = format!("the tools of `{}` are not known; give --tools", case.server);
            line.push_str(&format!("\n     {}", paint(DIM, sanitize(&note))));
        }
    }
    line
}

fn mark(passed: bool) -> String {
    if passed { paint(GREEN, "ok  ") } else { paint(RED, "FAIL") }
}

/// The reason of a test's result, in a sentence.
pub(crate) fn reason(input: &CheckedPolicy<'_>, outcome: &TestOutcome<'_>) -> String {
    let case = outcome.case;
    let arguments = case.arguments.as_ref().map(|arguments| arguments as _);
    let action =
        toolward_policy::call::stated_action(&toolward_policy::Call { action: None, arguments });
    let about = About {
        agent: outcome.agent,
        server: &case.server,
        subject: &case.name,
        action: action.as_deref().filter(|_| case.family == Family::Tools),
    };
    input.policy.reason(&outcome.decision, about)
}

/// The agents that a `never` test is about.
pub(crate) fn agent_of<'a>(outcome: &NeverOutcome<'a>) -> &'a str {
    outcome.test.agents.as_deref().filter(|agents| *agents != "*").unwrap_or("everyone")
}

/// `*/hint:destructive unless ask`.
pub(crate) fn never_call(outcome: &NeverOutcome<'_>) -> String {
    let unless = if outcome.test.unless_ask { " unless ask" } else { "" };
    format!("{}{unless}", outcome.call.written)
}

pub(crate) fn never_to_line(policy: &Policy, outcome: &NeverOutcome<'_>) -> String {
    let said = format!("{} never {}", agent_of(outcome), never_call(outcome));
    let mut line = format!("{} {}", mark(outcome.passed()), sanitize(&said));
    for reason in never_reasons(policy, outcome) {
        line.push_str(&format!("\n     {reason}"));
    }
    line
}

/// Why a `never` test does not hold: an example and the rule responsible for it, or why it is undecided.
pub(crate) fn never_reasons(policy: &Policy, outcome: &NeverOutcome<'_>) -> Vec<String> {
    let by = |witness: &Witness, what: &str| {
        let point = points::text(&witness.point);
        vec![format!("{what} {point}"), format!("by {}", points::rule(policy, &witness.decision))]
    };
    match &outcome.answer {
        Ever::Never => outcome.vacuous.iter().map(|why| sanitize(why).into_owned()).collect(),
        Ever::Yes(witness) => by(witness, "allowed:"),
        Ever::Asks(witness) => {
            let mut reasons = by(witness, "allowed after approval:");
            reasons.push("`unless: ask` accepts this".into());
            reasons
        }
        Ever::Depends(witness) => {
            let mut reasons = by(witness, "undecided, perhaps allowed:");
            let conditions = witness.depends_on.join("`, `");
            reasons.push(format!("depends on `{}`", sanitize(&conditions)));
            reasons
        }
        Ever::Undecided(why) => vec![format!("undecided: {}", points::undecided(why))],
    }
}
