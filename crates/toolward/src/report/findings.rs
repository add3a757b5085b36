//! Warnings and errors about a loaded policy, for `toolward check` and the admin UI.

use toolward_config::config::Config;
use toolward_config::sanitize;
use toolward_config::{Diagnostic, Disk, Level, ProcessEnv, suggest};
use toolward_gateway::budget::SHARES;
use toolward_gateway::upstream::built_in;
use toolward_policy::fnmatch::is_pattern;
use toolward_policy::lint::Lint;
use toolward_policy::{Caller, Catalogue, Verdict};

use super::{hint_sets, programs};
use crate::guards;
use crate::load::CheckedPolicy;
use crate::ownership;
use crate::render::count;

/// All errors and likely mistakes.
pub(crate) fn findings(input: &CheckedPolicy<'_>) -> Vec<Diagnostic> {
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
        let help = "if that is intended, write `allowed_tools: []`";
        findings.push(Diagnostic::error(message).help(help));
    }
    findings.extend(untested_denies(input));
    findings.extend(oversized_requests(&input.loaded.config));
    findings.extend(ownership::findings(input.loaded));
    findings.extend(programs::findings(&input.loaded.config.servers));
    findings.extend(hint_sets::findings(input));
    findings.extend(input.policy.lint(input.catalogue).iter().map(|lint| finding(input, lint)));
    // A lint and the loader can report the same problem; the lint is more precise.
    let place = |finding: &Diagnostic| Some((finding.file()?.to_string(), finding.place()?));
    let seen: Vec<_> = findings.iter().filter_map(place).collect();
    let news = |warning: &&Diagnostic| place(warning).is_none_or(|place| !seen.contains(&place));
    findings.extend(input.loaded.warnings.iter().filter(news).cloned());
    findings
}

/// The known tools without those of the built-in server, which a policy is not about.
fn others(input: &CheckedPolicy<'_>) -> Catalogue {
    let mut others = Catalogue::default();
    for (server, tools) in input.catalogue.lists().filter(|(server, _)| *server != built_in::NAME) {
        others.insert(server, Some(tools.clone()));
    }
    others
}

/// A request that is within `request_bytes`, and larger than the memory that an agent may use, is always refused.
fn oversized_requests(config: &Config) -> Option<Diagnostic> {
    let limits = &config.limits_of;
    let share = limits.buffered_bytes / SHARES as u64;
    if limits.request_bytes <= share {
        return None;
    }
    let message = format!(
        "requests above {share} bytes are always refused: `limits_of.request_bytes` is larger than one agent's \
         share of `limits_of.buffered_bytes`, a quarter"
    );
    let least = limits.request_bytes.saturating_mul(SHARES as u64);
    let help = format!("set `buffered_bytes` to at least {least}, or lower `request_bytes`");
    Some(Diagnostic::warning(message).help(help))
}

/// A `deny` that gets lost in an edit goes unnoticed if no test expects it.
fn untested_denies(input: &CheckedPolicy<'_>) -> Option<Diagnostic> {
    let file = input.loaded.denying_files.first().filter(|_| input.loaded.tests.is_empty())?;
    let message = format!("{} has `deny` rules and there are no `tests`", sanitize(file));
    let help = "add `tests` with `deny`: a policy whose tests fail is not loaded";
    Some(Diagnostic::warning(message).help(help))
}

/// Warns about unknown names in exposures and tests.
fn unknown_names(input: &CheckedPolicy<'_>) -> Vec<Diagnostic> {
    let config = &input.loaded.config;
    let own = config.builtin.then_some(built_in::NAME);
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
        // With `default`, an agent without rules may be intended.
        let named = agents.is_empty() || agents.contains(&"default");
        let is_known = |name: &&str| named || input.policy.knows_agent(name);
        if let Some(agent) = test.agent.as_deref().filter(|name| !is_known(name)) {
            findings.push(unknown("a test is about the agent", agent, &agents));
        }
        let agents_of_never = test.never.as_ref().and_then(|never| never.agents.as_deref());
        if let Some(agent) = agents_of_never.filter(|name| !is_pattern(name) && !is_known(name)) {
            findings.push(unknown("a test is about the agent", agent, &agents));
        }
        let calls = test.never.iter().flat_map(|never| &never.calls);
        let calls = calls.filter(|call| !servers.is_empty() && !is_pattern(&call.server));
        for call in calls.filter(|call| !servers.contains(&call.server.as_str())) {
            findings.push(unknown("a test is about the server", &call.server, &servers));
        }
        let cases = test.cases.iter().filter(|_| !servers.is_empty());
        for case in cases.filter(|case| !servers.contains(&case.server.as_str())) {
            findings.push(unknown("a test is about the server", &case.server, &servers));
        }
    }
    findings
}

/// References without a value, as warnings: a gateway on this machine would need them.
pub(crate) fn unset_secrets(input: &CheckedPolicy<'_>) -> Vec<Diagnostic> {
    let mut unset = input.loaded.config.clone().resolve_secrets(&ProcessEnv, &Disk);
    unset.iter_mut().for_each(|finding| finding.level = Level::Warning);
    unset
}

/// A summary of the active policy, in numbers.
pub(crate) fn summary(input: &CheckedPolicy<'_>) -> String {
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

fn finding(input: &CheckedPolicy<'_>, lint: &Lint) -> Diagnostic {
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
