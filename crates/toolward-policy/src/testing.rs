//! Tests that stand in a policy: who may do what, said once more, and checked before every load.

use serde_json::{Map, Value};

use crate::call::{Call, Caller};
use crate::catalogue::Catalogue;
use crate::decision::{Decision, Step, Verdict};
use crate::policy::{Policy, Subject};
use crate::source::Place;

/// One entry of `tests`.
#[derive(Debug, Clone, Default)]
pub struct PolicyTest {
    /// `None`: a caller without a name.
    pub agent: Option<String>,
    pub cases: Vec<TestCase>,
}

/// One thing that a test says.
#[derive(Debug, Clone)]
pub struct TestCase {
    pub expect: Expect,
    pub server: String,
    pub tool: String,
    pub arguments: Option<Map<String, Value>>,
    /// The case as written.
    pub written: String,
    pub place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Allow,
    Deny,
    Ask,
    /// Not in the agent's listing.
    Hidden,
}

impl Expect {
    pub fn as_str(self) -> &'static str {
        match self {
            Expect::Allow => "allow",
            Expect::Deny => "deny",
            Expect::Ask => "ask",
            Expect::Hidden => "hidden",
        }
    }
}

/// What came of one case.
#[derive(Debug, Clone)]
pub struct TestOutcome<'t> {
    pub agent: Option<&'t str>,
    pub case: &'t TestCase,
    pub decision: Decision,
    pub passed: bool,
}

/// Runs tests, in order.
pub fn run<'t>(
    policy: &Policy,
    catalogue: &Catalogue,
    tests: &'t [PolicyTest],
) -> Vec<TestOutcome<'t>> {
    let cases = tests.iter().flat_map(|test| test.cases.iter().map(move |case| (test, case)));
    cases
        .map(|(test, case)| {
            let agent = test.agent.as_deref();
            let decision = decide(policy, catalogue, agent, case);
            let passed = match case.expect {
                Expect::Allow => decision.verdict == Verdict::Allow,
                Expect::Ask => decision.verdict == Verdict::Ask,
                Expect::Deny | Expect::Hidden => decision.verdict == Verdict::Deny,
            };
            TestOutcome { agent, case, decision, passed }
        })
        .collect()
}

fn decide(
    policy: &Policy,
    catalogue: &Catalogue,
    agent: Option<&str>,
    case: &TestCase,
) -> Decision {
    let Some(tool) = catalogue.tool(&case.server, &case.tool) else {
        return Decision::outside(Verdict::Deny, Step::NoSuchTool);
    };
    let caller = Caller { agent, claims: None };
    let hints = policy.hints(&case.server, &tool);
    let cell = policy.cell(agent, &case.server, Subject::Tool(&tool, &hints));
    match case.expect {
        Expect::Hidden => cell.list(caller).decision,
        _ => {
            let arguments = case.arguments.as_ref().map(|arguments| arguments as _);
            cell.decide_listed(caller, &Call { action: None, arguments })
        }
    }
}
