//! Outcomes of policy tests as text.

use toolward_config::sanitize;
use toolward_policy::Family;
use toolward_policy::reason::About;
use toolward_policy::testing::TestOutcome;

use crate::load::CheckedPolicy;
use crate::render::{DIM, GREEN, RED, paint};

pub(crate) fn who<'a>(outcome: &TestOutcome<'a>) -> &'a str {
    outcome.agent.unwrap_or("an unnamed caller")
}

pub(crate) fn to_line(input: &CheckedPolicy<'_>, outcome: &TestOutcome<'_>) -> String {
    let mark = if outcome.passed { paint(GREEN, "ok  ") } else { paint(RED, "FAIL") };
    let case = outcome.case;
    let said = format!("{} {} {}", who(outcome), case.expect.as_str(), case.written);
    let mut line = format!("{mark} {}", sanitize(&said));
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
