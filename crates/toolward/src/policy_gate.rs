//! Runs the policy's own tests before it is activated, and again when tool lists change.

use toolward_gateway::upstream::built_in;
use toolward_policy::testing::{TestOutcome, fails_anyway, run};

use crate::exit::Failure;
use crate::load::{CheckedPolicy, Input};
use crate::render::count;
use crate::report::policy_tests::to_line;

/// Failing tests. A test that depends on a server's tool list is skipped while the list is unknown.
pub(crate) fn failing(checked: &CheckedPolicy<'_>) -> Vec<String> {
    let config = &checked.loaded.config;
    // A configuration without servers is for servers that it does not name.
    let nobody_s = |server: &str| {
        let own = config.builtin && server == built_in::NAME;
        !config.servers.is_empty() && !own && config.servers.iter().all(|one| one.name != server)
    };
    let counts = |outcome: &&TestOutcome<'_>| {
        let server = &outcome.case.server;
        !outcome.passed
            && (checked.catalogue.tools(server).is_some()
                || nobody_s(server)
                || fails_anyway(checked.policy, outcome.agent, outcome.case))
    };
    let outcomes = run(checked.policy, checked.catalogue, &checked.loaded.tests);
    outcomes.iter().filter(counts).map(|outcome| to_line(checked, outcome)).collect()
}

/// Rejects a policy whose tests fail.
pub(crate) fn passes(input: &Input) -> Result<(), Failure> {
    match failing(&input.checked()).as_slice() {
        [] => Ok(()),
        some => Err(Failure::invalid(format!(
            "error: {} of the policy failed\n{}\n  help: run `toolward test`",
            count(some.len(), "test"),
            some.join("\n")
        ))),
    }
}
