//! `toolward check`: reports errors and likely mistakes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::ArgMatches;
use serde_json::{Value, json};
use toolward_config::sanitize;
use toolward_config::{Diagnostic, Level};
use toolward_policy::analyse::never_tests;
use toolward_policy::testing::TestOutcome;
use toolward_wire::list::ListKind;

use crate::cli::CheckArgs;
use crate::clients;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::{Input, nothing_found};
use crate::render::{BOLD, GREEN, count, paint};
use crate::report::findings::{findings, summary, unset_secrets};
use crate::report::policy_tests::{never_to_line, to_line};
use crate::report::programs;
use crate::report::shared_resources;
use crate::startup;

pub(crate) fn run(args: CheckArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let json = args.output.json;
    let mut input = match Input::try_load(&args.policy, &args.tools, matches)? {
        Ok(input) => input,
        Err(findings) => return report(&findings, None, &[], json, exit::INVALID),
    };
    if args.policy.search && input.is_empty() {
        let mut nothing = nothing_found();
        nothing.level = Level::Error;
        return report(&[nothing], None, &[], json, exit::INVALID);
    }
    fetch_tools::ask_for_tests(&mut input)?;
    fetch_tools::ask_for_names(&mut input)?;
    let checked = input.checked();
    let mut findings = findings(&checked);
    for kind in [ListKind::Resources, ListKind::ResourceTemplates] {
        let lists = fetch_tools::running_names(&input, kind);
        findings.extend(shared_resources::findings(&shared_resources::hidden(&lists)));
    }
    // A policy file alone is not the configuration of a gateway.
    let is_main = input.loaded.main_file().is_some();
    if is_main {
        let mut refusals = startup::refusals(&input, !args.no_secrets);
        refusals.extend(startup::serve_refusals(&input, !args.no_secrets));
        refusals.extend(startup::unusable_pins(&input));
        // With `--no-secrets`, the gateway is meant for another machine.
        if !args.no_secrets {
            refusals.extend(startup::host_refusals(&input));
        }
        refusals.retain(|one| !clients::wrapping::is_set_by_client(one.message()));
        refusals.retain(|one| findings.iter().all(|other| other.message() != one.message()));
        findings.splice(0..0, refusals);
    }
    if args.no_secrets || !is_main {
        findings.extend(unset_secrets(&checked));
    }
    let outcomes =
        toolward_policy::testing::run(&input.policy, &input.catalogue, &input.loaded.tests);
    let failed: Vec<&TestOutcome<'_>> = outcomes.iter().filter(|outcome| !outcome.passed).collect();
    let mut failed: Vec<String> = failed.iter().map(|outcome| to_line(&checked, outcome)).collect();
    let never = never_tests(&input.policy, &input.loaded.tests);
    let broken = never.iter().filter(|outcome| !outcome.passed());
    failed.extend(broken.map(|outcome| never_to_line(&input.policy, outcome)));
    let invalid = findings.iter().any(|finding| finding.level == Level::Error);
    let warned = args.strict && findings.iter().any(|finding| finding.level == Level::Warning);
    let code = match (invalid, failed.is_empty() && !warned) {
        (true, _) => exit::INVALID,
        (false, false) => exit::NO,
        (false, true) => exit::OK,
    };
    let programs = programs::resolved(&input.loaded.config.servers);
    let summary =
        Summary { text: summary(&checked), tests: outcomes.len() + never.len(), programs };
    report(&findings, Some(summary), &failed, json, code)
}

struct Summary {
    text: String,
    tests: usize,
    /// Bare commands of servers, and the programs that they resolve to.
    programs: Vec<(String, PathBuf)>,
}

fn report(
    findings: &[Diagnostic],
    summary: Option<Summary>,
    failed: &[String],
    json: bool,
    code: u8,
) -> Result<u8, Failure> {
    if json {
        let findings: Vec<Value> = findings.iter().map(Diagnostic::to_json).collect();
        let answer = json!({
            "ok": code == exit::OK,
            "findings": findings,
            "failed_tests": failed,
            "programs": summary.iter().flat_map(|summary| &summary.programs).cloned().collect::<BTreeMap<_, _>>(),
            "summary": summary.map(|summary| summary.text),
        });
        writeln!(anstream::stdout(), "{answer}")?;
        return Ok(code);
    }
    let mut err = anstream::stderr();
    for finding in findings {
        writeln!(err, "{}\n", finding.render(true))?;
    }
    for test in failed {
        writeln!(err, "{test}")?;
    }
    let mut out = anstream::stdout();
    if let Some(summary) = summary {
        let state = if code == exit::OK { paint(GREEN, "ok") } else { paint(BOLD, "not ok") };
        writeln!(out, "{state}: {}", summary.text)?;
        if summary.tests > 0 {
            let passed = summary.tests - failed.len();
            writeln!(out, "{passed} of {} passed", count(summary.tests, "test"))?;
        }
        for (server, program) in &summary.programs {
            let program = program.display().to_string();
            writeln!(out, "{} runs {}", sanitize(server), sanitize(&program))?;
        }
    }
    Ok(code)
}
