//! Runs the policy's own tests before it is activated, and again when tool lists change.

use toolward_gateway::upstream::built_in;
use toolward_policy::analyse::never_tests;
use toolward_policy::testing::{TestOutcome, fails_anyway, run};

use crate::exit::Failure;
use crate::load::{CheckedPolicy, Input};
use crate::render::count;
use crate::report::policy_tests::{never_to_line, to_line};

/// Failing tests that depend on tool lists. A test that depends on a server's tool list is skipped while the list is unknown.
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

/// Rejects a policy whose tests fail. `never` tests hold for all tools, so they are not run again when tool lists
/// change.
pub(crate) fn passes(input: &Input) -> Result<(), Failure> {
    let never = never_tests(&input.policy, &input.loaded.tests);
    let broken = never.iter().filter(|outcome| !outcome.passed());
    let broken = broken.map(|outcome| never_to_line(&input.policy, outcome));
    let failing: Vec<String> = failing(&input.checked()).into_iter().chain(broken).collect();
    match failing.as_slice() {
        [] => Ok(()),
        some => Err(Failure::invalid(format!(
            "error: {} of the policy failed\n{}\n  help: run `toolward test`",
            count(some.len(), "test"),
            some.join("\n")
        ))),
    }
}
