//! The loaded configuration that is active, for inspection: its files, findings and reports.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use toolward_config::{Diagnostic, Level, LoadedConfig};
use toolward_gateway::active::Active;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::lock::LockUnpoisoned;
use toolward_gateway::upstream::Server;
use toolward_policy::analyse::never_tests;
use toolward_policy::{Caller, Catalogue, Family, Verdict};

use crate::load::{CheckedPolicy, Input};
use crate::policy_gate;
use crate::report::unlisted::Names;
use crate::report::{findings, policy_tests};
use crate::server_settings::ServerSettings;

/// The active configuration, apart from the compiled policy.
pub(crate) struct ActiveConfig {
    /// Its secrets are not resolved.
    pub(crate) loaded: LoadedConfig,
    /// Callers that are accepted: agents of the policy, agents with credentials and no rules of their own,
    /// and `None` for unnamed callers, if they are accepted.
    pub(crate) callers: Arc<Vec<Option<String>>>,
    exposed: Vec<String>,
    selectors: usize,
    pub(crate) servers: ServerSettings,
    report: Cached<Report>,
    names: Cached<Names>,
    sees: Cached<Vec<ToolVisibility>>,
}

/// A value cached per policy version and tool lists.
struct Cached<T>(Mutex<Option<CacheEntry<T>>>);

/// A cached value with the versions it was computed for.
type CacheEntry<T> = ((u64, u64), Arc<T>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Cached(Mutex::default())
    }
}

impl<T> Cached<T> {
    fn get(&self, gateway: &Gateway, active: &Active, make: impl FnOnce() -> T) -> Arc<T> {
        let about = (active.serial(), gateway.context.servers.generation());
        let mut kept = self.0.locked();
        if let Some((of, made)) = kept.as_ref()
            && *of == about
        {
            return made.clone();
        }
        let made = Arc::new(make());
        *kept = Some((about, made.clone()));
        made
    }
}

/// Which tools of a server each caller sees.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolVisibility {
    pub(crate) server: String,
    pub(crate) offered: usize,
    /// Tools shown to at least one agent.
    pub(crate) shown: usize,
    /// By agent; `None`: unnamed callers.
    pub(crate) by_agent: Vec<(Option<String>, usize)>,
}

/// The findings of `check` and `test`.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) summary: String,
    pub(crate) findings: Vec<Finding>,
    pub(crate) tests: Vec<Case>,
    /// Servers whose tools are not known.
    pub(crate) unknown: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) error: bool,
    pub(crate) message: String,
    /// `file:line:column`
    pub(crate) place: Option<String>,
    pub(crate) help: Option<String>,
}

/// One test of the policy's own.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) passed: bool,
    /// The server's tools are unknown, so the test has no result.
    pub(crate) unknown: bool,
    pub(crate) agent: String,
    pub(crate) expected: &'static str,
    pub(crate) written: String,
    pub(crate) verdict: &'static str,
    pub(crate) why: String,
}

impl ActiveConfig {
    /// Keeps the loaded configuration, before its secrets are resolved.
    pub(crate) fn of(input: &Input) -> Arc<ActiveConfig> {
        Arc::new(ActiveConfig {
            loaded: input.loaded.clone(),
            callers: Arc::new(callers(input)),
            exposed: input.exposed.clone(),
            selectors: input.selectors,
            servers: input.servers.clone(),
            report: Cached::default(),
            names: Cached::default(),
            sees: Cached::default(),
        })
    }

    /// The report of the active policy, with the servers' current tool lists.
    pub(crate) fn report(&self, gateway: &Gateway, active: &Active) -> Arc<Report> {
        self.report.get(gateway, active, || self.make(active))
    }

    /// The names by which clients may call tools.
    pub(crate) fn names(&self, gateway: &Gateway, active: &Active) -> Arc<Names> {
        self.names.get(gateway, active, || Names::new(gateway, active))
    }

    /// How many tools of each server each caller sees; servers whose tools are not known are left out.
    pub(crate) fn sees(&self, gateway: &Gateway, active: &Active) -> Arc<Vec<ToolVisibility>> {
        self.sees.get(gateway, active, || {
            active.servers.iter().filter_map(|server| seen(active, &self.callers, server)).collect()
        })
    }

    /// Tests of the policy that fail with the current tool lists.
    pub(crate) fn failing_tests(&self, active: &Active) -> Vec<String> {
        policy_gate::failing(&self.checked(active, &known(active)))
    }

    fn checked<'a>(&'a self, active: &'a Active, catalogue: &'a Catalogue) -> CheckedPolicy<'a> {
        CheckedPolicy {
            loaded: &self.loaded,
            policy: &active.policy,
            catalogue,
            exposed: &self.exposed,
            selectors: self.selectors,
        }
    }

    fn make(&self, active: &Active) -> Report {
        let catalogue = known(active);
        let servers = active.servers.iter().filter(|server| server.listed().is_none());
        let unknown = servers.map(|server| server.name().to_string()).collect();
        let checked = self.checked(active, &catalogue);
        let mut findings = findings::findings(&checked);
        findings.extend(findings::unset_secrets(&checked));
        Report {
            summary: findings::summary(&checked),
            findings: findings.iter().map(Finding::of).collect(),
            tests: cases(&checked),
            unknown,
        }
    }
}

/// The results of a policy's own tests.
pub(crate) fn cases(checked: &CheckedPolicy<'_>) -> Vec<Case> {
    let CheckedPolicy { loaded, policy, catalogue, .. } = checked;
    let outcomes = toolward_policy::testing::run(policy, catalogue, &loaded.tests);
    let case = |outcome: &toolward_policy::testing::TestOutcome<'_>| Case {
        passed: outcome.passed,
        unknown: !outcome.passed
            && outcome.case.family == Family::Tools
            && catalogue.tools(&outcome.case.server).is_none(),
        agent: policy_tests::who(outcome).into(),
        expected: outcome.case.expect.as_str(),
        written: outcome.case.written.clone(),
        verdict: outcome.decision.verdict.as_str(),
        why: policy_tests::reason(checked, outcome),
    };
    let never = never_tests(policy, &loaded.tests);
    let never = never.iter().map(|outcome| Case {
        passed: outcome.passed(),
        unknown: false,
        agent: policy_tests::agent_of(outcome).into(),
        expected: "never",
        written: policy_tests::never_call(outcome),
        verdict: if outcome.passed() { "never" } else { "allow" },
        why: policy_tests::never_reasons(policy, outcome).join("; "),
    });
    outcomes.iter().map(case).chain(never).collect()
}

/// The tools that servers have listed so far.
pub(crate) fn known(active: &Active) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for server in active.servers.iter() {
        let listed = server.listed().map(|listed| listed.catalogue.tools().clone());
        catalogue.insert(server.name(), listed);
    }
    catalogue
}

fn callers(input: &Input) -> Vec<Option<String>> {
    let mut names: Vec<String> = input.policy.agents().into_iter().map(String::from).collect();
    let mut known: HashSet<String> = names.iter().cloned().collect();
    let configured = input.loaded.config.agents.iter().map(|agent| agent.name.clone());
    names.extend(configured.filter(|name| known.insert(name.clone())));
    // There must be at least one caller to show verdicts for.
    let nameless = names.is_empty() || !input.needs_name();
    names.into_iter().map(Some).chain(nameless.then_some(None)).collect()
}

fn seen(active: &Active, callers: &[Option<String>], server: &Server) -> Option<ToolVisibility> {
    let listed = server.listed()?;
    let tools = listed.catalogue.tools();
    let mut by_someone = vec![false; tools.tools().len()];
    let mut sees = ToolVisibility { server: server.name().into(), ..ToolVisibility::default() };
    let policy = &active.policy;
    for agent in callers.iter().map(Option::as_deref) {
        let row = policy.row(agent, server.name(), tools);
        // With progressive discovery, the agent's list has the built-in server's tools only.
        let direct = server.is_own() || !active.discovery.is_progressive(agent);
        let mut shown = 0;
        for ((_, cell), by_someone) in row.iter().zip(&mut by_someone) {
            let listing = cell.list(Caller { agent, claims: None });
            let visible = direct && (listing.decision.verdict != Verdict::Deny || !active.enforced);
            shown += usize::from(visible);
            *by_someone |= visible;
        }
        sees.by_agent.push((agent.map(String::from), shown));
    }
    sees.offered = by_someone.len();
    sees.shown = by_someone.iter().filter(|shown| **shown).count();
    Some(sees)
}

impl Finding {
    /// A finding without the line of the file, which may contain a secret.
    pub(crate) fn of(found: &Diagnostic) -> Finding {
        let place = found.file().zip(found.place());
        let help = found.help_text();
        Finding {
            error: found.level == Level::Error,
            message: found.message().into(),
            place: place.map(|(file, at)| format!("{file}:{}:{}", at.line, at.column)),
            help: (!help.is_empty()).then_some(help),
        }
    }
}
