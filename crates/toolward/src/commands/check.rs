//! `toolward check`: everything that is wrong, or probably not meant.

mod programs;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::ArgMatches;
use serde_json::{Value, json};
use toolward_config::neutral::neutralise;
use toolward_config::{Diagnostic, Disk, Level, ProcessEnv, suggest};
use toolward_gateway::methods::meta_tools;
use toolward_policy::lint::Lint;
use toolward_policy::testing::TestOutcome;
use toolward_policy::{Caller, Catalogue, Verdict};

use crate::cli::CheckArgs;
use crate::commands::test;
use crate::exit::{self, Failure};
use crate::guards;
use crate::fetch_tools;
use crate::ownership;
use crate::load::{Checked, Input, nothing_found};
use crate::render::{BOLD, GREEN, count, paint};
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
    // A file of rules alone is not a gateway's configuration.
    let is_main = input.loaded.main_file().is_some();
    if is_main {
        let mut refusals = startup::refusals(&input, !args.no_secrets);
        refusals.extend(startup::serve_refusals(&input, !args.no_secrets));
        // Without its secrets, the gateway is not for this machine.
        if !args.no_secrets {
            refusals.extend(startup::host_refusals(&input));
        }
        refusals.retain(|one| findings.iter().all(|other| other.message() != one.message()));
        findings.splice(0..0, refusals);
    }
    if args.no_secrets || !is_main {
        findings.extend(unset_secrets(&checked));
    }
    let outcomes =
        toolward_policy::testing::run(&input.policy, &input.catalogue, &input.loaded.tests);
    let failed: Vec<&TestOutcome<'_>> = outcomes.iter().filter(|outcome| !outcome.passed).collect();
    let failed: Vec<String> =
        failed.iter().map(|outcome| test::to_line(&checked, outcome)).collect();
    let invalid = findings.iter().any(|finding| finding.level == Level::Error);
    let warned = args.strict && findings.iter().any(|finding| finding.level == Level::Warning);
    let code = match (invalid, failed.is_empty() && !warned) {
        (true, _) => exit::INVALID,
        (false, false) => exit::NO,
        (false, true) => exit::OK,
    };
    let programs = programs::resolved(&input.loaded.config.servers);
    let summary = Summary { text: summary(&checked), tests: outcomes.len(), programs };
    report(&findings, Some(summary), &failed, json, code)
}

/// Everything that is wrong, or probably not meant.
pub(crate) fn findings(input: &Checked<'_>) -> Vec<Diagnostic> {
    let mut findings: Vec<Diagnostic> = Vec::new();
    findings.extend(unknown_names(input));
    findings.extend(guards::findings(&input.loaded.config));
    findings.extend(guards::unused(&input.loaded.config, input.policy, input.catalogue));
    if input.policy.layer_names().next().is_none() {
        let message = "there is no policy layer: everything that is exposed is allowed";
        let help = "add `agents` with `allow` or `deny`, or `allowed_tools`";
        findings.push(Diagnostic::warning(message).help(help));
    }
    if input.policy.hides_everything(&others(input)) == Some(true)
        && !input.policy.allows_nothing_on_purpose()
    {
        let message = "no agent sees any tool of the known servers";
        let help = "if that is meant, write `allowed_tools: []`";
        findings.push(Diagnostic::error(message).help(help));
    }
    findings.extend(untested_denies(input));
    findings.extend(ownership::findings(input.loaded));
    findings.extend(programs::findings(&input.loaded.config.servers));
    findings.extend(input.policy.lint(input.catalogue).iter().map(|lint| finding(input, lint)));
    // A lint and the loader can find the same; the lint knows more.
    let place = |finding: &Diagnostic| Some((finding.file()?.to_string(), finding.place()?));
    let seen: Vec<_> = findings.iter().filter_map(place).collect();
    let news = |warning: &&Diagnostic| place(warning).is_none_or(|place| !seen.contains(&place));
    findings.extend(input.loaded.warnings.iter().filter(news).cloned());
    findings
}

/// What is known of servers' tools, without the gateway's own: they are not what a policy is for.
fn others(input: &Checked<'_>) -> Catalogue {
    let mut others = Catalogue::default();
    for (server, tools) in input.catalogue.lists().filter(|(server, _)| *server != meta_tools::NAME)
    {
        others.insert(server, Some(tools.clone()));
    }
    others
}

/// A `deny` that gets lost in an edit goes unnoticed if no test expects it.
fn untested_denies(input: &Checked<'_>) -> Option<Diagnostic> {
    let file = input.loaded.denying_files.first().filter(|_| input.loaded.tests.is_empty())?;
    let message = format!("{} has `deny` rules and there are no `tests`", neutralise(file));
    let help = "add `tests` with `deny`: a policy whose tests fail is not loaded";
    Some(Diagnostic::warning(message).help(help))
}

/// Names that exposures and tests use, and nobody has.
fn unknown_names(input: &Checked<'_>) -> Vec<Diagnostic> {
    let config = &input.loaded.config;
    let own = config.builtin.then_some(meta_tools::NAME);
    let servers = config.servers.iter().map(|server| server.name.as_str()).chain(own);
    let servers: Vec<&str> = servers.collect();
    let agents = input.policy.agents();
    let unknown = |what: &str, name: &str, words: &[&str]| {
        let nearest = suggest::nearest(name, words.iter().copied());
        let message = format!("{what} `{name}`, which nothing else mentions");
        let help = nearest.map(|nearest| format!("did you mean `{nearest}`?"));
        Diagnostic::warning(message).maybe_help(help)
    };
    let mut findings = Vec::new();
    if !servers.is_empty() {
        let exposed = input.exposed.iter().filter(|name| !servers.contains(&name.as_str()));
        findings
            .extend(exposed.map(|name| unknown("tools are exposed on the server", name, &servers)));
    }
    for test in &input.loaded.tests {
        // Whoever is not named may be meant where `default` stands in.
        let named = agents.is_empty() || agents.contains(&"default");
        if let Some(agent) = test.agent.as_deref().filter(|name| !named && !agents.contains(name)) {
            findings.push(unknown("a test is about the agent", agent, &agents));
        }
        let cases = test.cases.iter().filter(|_| !servers.is_empty());
        for case in cases.filter(|case| !servers.contains(&case.server.as_str())) {
            findings.push(unknown("a test is about the server", &case.server, &servers));
        }
    }
    findings
}

/// References that have no value here, as warnings: a gateway that starts here needs them.
pub(crate) fn unset_secrets(input: &Checked<'_>) -> Vec<Diagnostic> {
    let mut unset = input.loaded.config.clone().resolve_secrets(&ProcessEnv, &Disk);
    unset.iter_mut().for_each(|finding| finding.level = Level::Warning);
    unset
}

struct Summary {
    text: String,
    tests: usize,
    /// Bare commands of servers, and the programs that they are.
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
            writeln!(out, "{} runs {}", neutralise(server), neutralise(&program))?;
        }
    }
    Ok(code)
}

/// What is in force, in numbers.
pub(crate) fn summary(input: &Checked<'_>) -> String {
    let layers = input.policy.layer_names().count();
    let agents = input.policy.agents();
    let mut text = format!(
        "{}, {}, {}",
        count(layers, "layer"),
        count(agents.len(), "agent"),
        count(input.selectors, "selector")
    );
    let known = others(input);
    let offered: usize = known.lists().map(|(_, tools)| tools.tools().len()).sum();
    if offered > 0 {
        let mut visible = 0;
        for (server, tools) in known.lists() {
            let mut seen = vec![false; tools.tools().len()];
            for agent in agents.iter().map(|agent| Some(*agent)).chain([None]) {
                let row = input.policy.row(agent, server, tools);
                for (seen, (_, cell)) in seen.iter_mut().zip(row.iter()) {
                    let caller = Caller { agent, claims: None };
                    *seen |= cell.list(caller).decision.verdict != Verdict::Deny;
                }
            }
            visible += seen.iter().filter(|seen| **seen).count();
        }
        text.push_str(&format!("; {visible} of {} visible to someone", count(offered, "tool")));
    }
    text
}

fn finding(input: &Checked<'_>, lint: &Lint) -> Diagnostic {
    let message = format!("{} ({})", lint.message, lint.kind.as_str());
    let mut finding = input.loaded.diagnostic_at(Level::Warning, &lint.layer, lint.place, &message);
    if finding.mark().is_none() {
        finding = Diagnostic::warning(format!("{}: {message}", lint.path));
    }
    let words = lint.misspelt.as_ref();
    let nearest =
        words.and_then(|(word, valid)| suggest::nearest(word, valid.iter().map(String::as_str)));
    finding.maybe_help(nearest.map(|nearest| format!("did you mean `{nearest}`?")))
}
