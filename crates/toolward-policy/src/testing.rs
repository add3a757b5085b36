//! Policy tests: expectations in a policy file that are checked before every load.

use serde_json::{Map, Value};

use crate::call::{Arguments, Call, Caller};
use crate::catalogue::Catalogue;
use crate::cell::Cell;
use crate::decision::{Decision, Step, Verdict};
use crate::hints::Annotations;
use crate::policy::{Family, Policy, Subject};
use crate::scope::claims_with;
use crate::source::Place;
use crate::tool::Tool;

/// One entry of `tests`.
#[derive(Debug, Clone, Default)]
pub struct PolicyTest {
    /// `None` for an unnamed caller.
    pub agent: Option<String>,
    pub cases: Vec<TestCase>,
    pub never: Option<NeverTest>,
}

/// Calls that must never be allowed, also of tools that do not exist yet. [`analyse`](crate::analyse) runs it.
#[derive(Debug, Clone, Default)]
pub struct NeverTest {
    /// A name or pattern of agents; `None`: everyone, unnamed callers included.
    pub agents: Option<String>,
    pub calls: Vec<NeverCall>,
    /// Calls that a person must approve are accepted.
    pub unless_ask: bool,
}

/// One kind of call of a `never` test.
#[derive(Debug, Clone)]
pub struct NeverCall {
    pub family: Family,
    /// A name or a pattern.
    pub server: String,
    pub selector: String,
    /// The call as written.
    pub written: String,
    pub place: Place,
}

/// One expectation of a test.
#[derive(Debug, Clone)]
pub struct TestCase {
    pub expect: Expect,
    pub family: Family,
    pub server: String,
    /// The original name of the tool or prompt, or the resource's URI.
    pub name: String,
    pub arguments: Option<TestArguments>,
    /// The scopes of the caller's token.
    pub scope: Option<String>,
    /// The case as written.
    pub written: String,
    pub place: Place,
}

/// The arguments of a test, with its numbers as written: a JSON tree loses digits that a double
/// cannot hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TestArguments {
    pub members: Map<String, Value>,
    pub numbers: Vec<WrittenNumber>,
}

/// A number as written, and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenNumber {
    /// The keys that lead to it; `None` for an element of an array.
    pub path: Vec<Option<Box<str>>>,
    pub text: Box<str>,
}

impl Arguments for TestArguments {
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>)) {
        self.members.members(show);
    }

    fn to_json(&self) -> Value {
        self.members.to_json()
    }

    fn numbers(&self, path: &[Box<str>], show: &mut dyn FnMut(&str)) {
        let is_below = |number: &&WrittenNumber| {
            let keys = number.path.iter().map(Option::as_ref);
            number.path.len() >= path.len()
                && keys.zip(path).all(|(key, wanted)| key == Some(wanted))
        };
        self.numbers.iter().filter(is_below).for_each(|number| show(&number.text));
    }
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

    fn is_met(self, verdict: Verdict) -> bool {
        match self {
            Expect::Allow => verdict == Verdict::Allow,
            Expect::Ask => verdict == Verdict::Ask,
            Expect::Deny | Expect::Hidden => verdict == Verdict::Deny,
        }
    }
}

/// The outcome of one case.
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
            let passed = case.expect.is_met(decision.verdict);
            TestOutcome { agent, case, decision, passed }
        })
        .collect()
}

/// Whether a case fails regardless of the tool's definition, if the server has the tool.
pub fn fails_anyway(policy: &Policy, agent: Option<&str>, case: &TestCase) -> bool {
    let claimed = [None, Some(true), Some(false)];
    let mut all = Vec::new();
    for read_only in claimed {
        for destructive in claimed {
            for idempotent in claimed {
                let worlds = claimed.map(|open_world| Annotations {
                    read_only,
                    destructive,
                    idempotent,
                    open_world,
                });
                all.extend(worlds);
            }
        }
    }
    all.into_iter().all(|claims| {
        let tool = Tool::named(&case.name).with_annotations(claims);
        [tool.clone().with_declared_action(), tool].iter().all(|tool| {
            let cell = cell(policy, agent, case, tool);
            let verdict = answer(&cell, agent, case).verdict;
            !cell.reads_definition() && !case.expect.is_met(verdict)
        })
    })
}

fn decide(
    policy: &Policy,
    catalogue: &Catalogue,
    agent: Option<&str>,
    case: &TestCase,
) -> Decision {
    // Only tools have definitions that a decision may depend on.
    let tool = match case.family {
        Family::Tools => catalogue.tool(&case.server, &case.name),
        Family::Prompts | Family::Resources => Some(Tool::named(&case.name)),
    };
    match tool {
        Some(tool) => answer(&cell(policy, agent, case, &tool), agent, case),
        None => Decision::outside(Verdict::Deny, Step::NoSuchTool),
    }
}

fn cell(policy: &Policy, agent: Option<&str>, case: &TestCase, tool: &Tool) -> Cell {
    let hints = policy.hints(&case.server, tool);
    let subject = match case.family {
        Family::Tools => Subject::Tool(tool, &hints),
        Family::Prompts => Subject::Prompt(&case.name),
        Family::Resources => Subject::Resource(&case.name),
    };
    policy.cell(agent, &case.server, subject)
}

fn answer(cell: &Cell, agent: Option<&str>, case: &TestCase) -> Decision {
    let claims = case.scope.as_deref().map(claims_with);
    let caller = Caller { agent, claims: claims.as_ref() };
    match case.expect {
        Expect::Hidden => cell.list(caller).decision,
        _ => {
            let arguments = case.arguments.as_ref().map(|arguments| arguments as _);
            cell.decide_listed(caller, &Call { action: None, arguments })
        }
    }
}
