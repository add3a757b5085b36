//! `toolward learn`: the narrowest policy that covers the recorded calls of an agent.
//!
//! | module | purpose |
//! |---|---|
//! | [`seen`] | the recorded calls |
//! | [`current`] | what the current policy decides about them |
//! | [`proposal`], [`generalize`], [`tighten`] | the proposed rules |
//! | [`real_calls`] | tests from recorded calls |
//! | [`yaml`] | the proposal as YAML |

mod current;
mod generalize;
mod proposal;
mod real_calls;
mod seen;
mod tighten;
mod yaml;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use toolward_config::{Loader, Options, PolicyFile, PolicyFlag, sanitize};
use toolward_policy::Family;
use toolward_policy::analyse::{self, Differences, Subjects};
use toolward_policy::fnmatch::is_pattern;

use self::current::CurrentPolicy;
use self::proposal::{Line, Proposal};
use self::real_calls::RealCalls;
use self::seen::SeenCalls;
use self::yaml::{PrintedPolicy, plural};
use super::history::History;
use crate::cli::LearnArgs;
use crate::exit::{self, Failure};
use crate::load::{Input, invalid};
use crate::render::{DIM, paint};
use crate::replay::candidate;
use crate::report::points;
use crate::server_settings::ServerSettings;

/// The maximum number of examples of calls that become allowed.
const MAX_EXAMPLES: usize = 10;

pub(crate) fn run(args: &LearnArgs) -> Result<u8, Failure> {
    let mut history = History::new(&args.history)?;
    let seen = SeenCalls::read(&mut history, &args.agent)?;
    let agent = args.agent.as_str();
    if seen.uses.is_empty() {
        return Err(no_calls(&history, args, &seen));
    }
    let current = CurrentPolicy::new(&history.current, &history.loaded, agent);
    let mut proposal = match args.tighten {
        true => Proposal::tightened(&current, &seen),
        false => Proposal::exact(&current, &seen, args.refused),
    };
    let learning = Learning { current: &current, servers: &history.current.servers };
    if args.generalise {
        learning.generalize(&mut proposal)?;
    }
    let mut tests = RealCalls::of(&current, &seen, &proposal);
    let left_out = learning.check_tests(&proposal, &mut tests)?;
    let differences = learning.differences(&proposal)?;
    let mut head = heading(args, &seen);
    head.extend(learning.wider(&differences, &proposal, args.refused));
    let printed = PrintedPolicy { agent, head, proposal: &proposal, tests: &tests };
    let text = printed.text();
    // It is printed only if it loads and its tests pass.
    learning.load(&text)?;
    let mut out = anstream::stdout();
    if args.output.json {
        let report = learning.to_json(&proposal, &tests, (&seen, &differences), &text);
        writeln!(out, "{}", crate::audit_log::row::json(&report))?;
    } else {
        write!(out, "{text}")?;
    }
    let mut stderr = anstream::stderr();
    for call in &left_out {
        let call = sanitize(call);
        writeln!(stderr, "warning: the proposal does not allow the recorded call {call}")?;
    }
    for (count, why) in seen.skipped.reasons() {
        writeln!(stderr, "{}", paint(DIM, format!("note: not used: {count} {why}")))?;
    }
    Ok(exit::OK)
}

fn no_calls(history: &History, args: &LearnArgs, seen: &SeenCalls) -> Failure {
    let agent = sanitize(&args.agent);
    if is_pattern(&args.agent) {
        let names: Vec<String> =
            seen.matching.iter().map(|name| format!("`{}`", sanitize(name))).collect();
        let help = match names.is_empty() {
            true => "the log has no calls of an agent that it matches".into(),
            false => format!("it matches {}, which made calls", names.join(", ")),
        };
        return Failure::usage(format!(
            "error: `{agent}` is a pattern, and --as needs the name of one agent\n  help: {help}"
        ));
    }
    let help = match history.current.unknown_agent(&args.agent) {
        Some(unknown) => unknown.help,
        None => "a longer --since, or `toolward audit query --agent`, may find some".into(),
    };
    let since = sanitize(&args.history.since);
    Failure::usage(format!(
        "error: the audit log has no calls of `{agent}` since {since}\n  help: {help}"
    ))
}

/// The comments at the top of a proposal.
fn heading(args: &LearnArgs, seen: &SeenCalls) -> Vec<String> {
    let day = |time: &Option<String>| {
        let time = time.as_deref().unwrap_or_default();
        time.get(..16).unwrap_or(time).replace('T', " ")
    };
    let calls = plural(seen.calls(), "recorded call");
    let period = format!("{} to {} UTC", day(&seen.first), day(&seen.last));
    let what = if args.tighten { "Tightened rules" } else { "Rules" };
    vec![
        format!("{what} for the agent {}, learned from {calls}, {period}.", args.agent),
        "A proposal: review each line, then replace `allow`, `deny` and `roles` of the agent by these.".into(),
    ]
}

/// Checks a proposal against the current policy.
struct Learning<'a> {
    current: &'a CurrentPolicy<'a>,
    servers: &'a ServerSettings,
}

impl Learning<'_> {
    /// Loads a proposal, with the servers of the current configuration.
    fn load(&self, text: &str) -> Result<Input, Failure> {
        let path = PathBuf::from("learned.yaml");
        let files = HashMap::from([(path.clone(), text)]);
        let loader = Loader { files, env: HashMap::<String, String>::new() };
        let file = PolicyFile { path, flag: PolicyFlag::Policy, format: None };
        let options = Options { policies: vec![file], ..Options::default() };
        candidate::load(&loader, &options, Some(self.servers)).map_err(|found| invalid(&found))
    }

    fn rendered(&self, proposal: &Proposal, tests: &RealCalls) -> String {
        let agent = self.current.agent;
        PrintedPolicy { agent, head: Vec::new(), proposal, tests }.text()
    }

    /// How the proposal differs from the current policy.
    fn differences(&self, proposal: &Proposal) -> Result<Differences, Failure> {
        let new = self.load(&self.rendered(proposal, &RealCalls::default()))?;
        let subjects = Subjects { agent: Some(self.current.agent), ..Subjects::default() };
        Ok(analyse::diff(&self.current.input.policy, &new.policy, &subjects))
    }

    /// Generalizes the lines of each server, unless that allows more than the current policy.
    fn generalize(&self, proposal: &mut Proposal) -> Result<(), Failure> {
        let before = self.differences(proposal)?;
        for server in proposal.generalizable() {
            let Some(lines) = proposal.generalize(self.current, &server) else { continue };
            let after = self.differences(proposal)?;
            // Refused calls that are covered are wider already.
            if after.is_wider() != Some(false) && wider(&after) > wider(&before) {
                proposal.restore(&server, lines);
            }
        }
        Ok(())
    }

    /// Runs the tests, and keeps those that pass. Returns the others.
    fn check_tests(
        &self,
        proposal: &Proposal,
        tests: &mut RealCalls,
    ) -> Result<Vec<String>, Failure> {
        let new = self.load(&self.rendered(proposal, tests))?;
        let catalogue = &self.current.input.catalogue;
        let outcomes = toolward_policy::testing::run(&new.policy, catalogue, &new.loaded.tests);
        Ok(tests.keep_passing(&outcomes))
    }

    /// Comments about calls that become allowed.
    fn wider(&self, found: &Differences, proposal: &Proposal, refused: bool) -> Vec<String> {
        let example = |change: &analyse::Change| format!("  {}", points::text(&change.point));
        match found.is_wider() {
            Some(false) => {
                vec!["It allows nothing that the current policy denies, also no tool that does not exist yet.".into()]
            }
            Some(true) => {
                let changes = found.changes.iter().filter(|change| change.is_wider());
                let title = match refused {
                    true => "It allows calls that the current policy refuses, for example:".into(),
                    false => {
                        let why = self.why_wider(proposal);
                        format!("WIDER than the current policy{why}, for example:")
                    }
                };
                let examples = changes.take(MAX_EXAMPLES).map(example);
                std::iter::once(title).chain(examples).collect()
            }
            None => {
                vec!["Undecided whether it allows more than the current policy: compare with `toolward diff`.".into()]
            }
        }
    }

    /// The reasons why exact names can allow more than the rules that allowed the calls.
    fn why_wider(&self, proposal: &Proposal) -> String {
        let is_name = |line: &&Line| !line.entry.selector.starts_with("hint:");
        let mut targets =
            proposal.lists.values().flatten().filter(is_name).flat_map(|line| &line.targets);
        let by_hints = targets.any(|target| self.current.is_allowed_by_hints(target));
        let by_hints = by_hints.then_some("a name also covers the tool if its hints change");
        let by_layers =
            self.current.has_other_layers.then_some("its other layers are not in the proposal");
        let reasons: Vec<&str> = by_hints.into_iter().chain(by_layers).collect();
        match reasons.is_empty() {
            true => String::new(),
            false => format!(", because {}", reasons.join(", and ")),
        }
    }

    fn to_json(
        &self,
        proposal: &Proposal,
        tests: &RealCalls,
        (seen, found): (&SeenCalls, &Differences),
        text: &str,
    ) -> Value {
        let line = |family: Family, key: &str, line: &Line| {
            json!({
                "server": key,
                "kind": match family {
                    Family::Tools => "tool",
                    Family::Prompts => "prompt",
                    Family::Resources => "resource",
                },
                "selector": line.entry.selector,
                "when": line.entry.when,
                "ask": line.entry.ask.is_some(),
                "calls": line.uses.made,
                "refused": line.uses.refused,
                "last": line.uses.last,
                "covers": line.targets.iter().map(|target| target.text()).collect::<Vec<_>>(),
                "attention": line.attention,
                "new": line.is_new,
            })
        };
        let lists = proposal.lists.iter();
        let grants: Vec<Value> = lists
            .flat_map(|((family, key), lines)| lines.iter().map(|one| line(*family, key, one)))
            .collect();
        let unused = proposal
            .unused
            .iter()
            .map(|grant| json!({"list": grant.list, "entry": grant.written, "at": grant.location}));
        let uncovered = proposal
            .uncovered
            .iter()
            .map(|one| json!({"call": one.target.text(), "calls": one.calls, "because": one.why}));
        json!({
            "agent": self.current.agent,
            "calls": seen.calls(),
            "first": seen.first,
            "last": seen.last,
            "policy": text,
            "wider": found.is_wider(),
            "grants": grants,
            "unused": unused.collect::<Vec<_>>(),
            "uncovered": uncovered.collect::<Vec<_>>(),
            "tests": {"allow": tests.allow, "ask": tests.ask, "deny": tests.deny},
            "not_used": seen.skipped.to_json(),
        })
    }
}

/// How much certainly or possibly becomes wider.
fn wider(found: &Differences) -> usize {
    let changes = found.changes.iter().chain(&found.possible);
    let undecided = found.undecided.iter().filter(|one| !one.narrower_only);
    changes.filter(|change| change.is_wider()).count() + undecided.count()
}
