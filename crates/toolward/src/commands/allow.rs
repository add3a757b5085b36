//! `toolward allow`: the narrowest change of a policy that permits a tool to an agent.

mod proposal;

use std::io::{IsTerminal, Write};

use clap::ArgMatches;
use serde_json::json;
use similar::TextDiff;
use toolward_config::sanitize;
use toolward_policy::analyse::{self, Point, PointKind, Subjects};
use toolward_policy::{Caller, Policy, Verdict};

use self::proposal::{FileChange, Proposal};
use crate::cli::AllowArgs;
use crate::clients::replace_file;
use crate::commands::init::ask;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::{Input, invalid, options};
use crate::policy_gate;
use crate::reads::Reads;
use crate::render::{GREEN, RED, paint};
use crate::report::points;

pub(crate) fn run(args: &AllowArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let Some((server, tool)) = args
        .subject
        .split_once('/')
        .filter(|(server, tool)| !server.is_empty() && !tool.is_empty())
    else {
        let subject = sanitize(&args.subject);
        return Err(Failure::usage(format!("error: `{subject}` is not SERVER/TOOL")));
    };
    let mut input = Input::load(&args.policy, &args.tools, matches)?;
    if args.tools.lists.is_empty() {
        fetch_tools::ask(&mut input, None)?;
    }
    let proposed = Proposal::new(&input, &args.agent, (server, tool), args.when.as_deref());
    let changes = match proposed {
        Proposal::Change(changes) => changes,
        Proposal::Allowed(reason) => {
            writeln!(anstream::stdout(), "nothing to change: {}", sanitize(&reason))?;
            return Ok(exit::OK);
        }
        Proposal::Refused(why) => {
            writeln!(anstream::stderr(), "error: {}", sanitize_lines(&why))?;
            return Ok(exit::NO);
        }
    };
    let after = load_changed(args, matches, &changes, &input)?;
    let gained = gained(&input.policy, &after, &args.agent);
    let reached = gained.iter().any(|(name, _)| *name == args.subject);
    if !reached {
        let why = "the change would not be enough: the agent still could not use the tool";
        writeln!(anstream::stderr(), "error: {why}\n  help: run `toolward explain`")?;
        return Ok(exit::NO);
    }
    let others = others(&input.policy, &after.policy, &args.agent, (server, tool));
    let mut out = anstream::stdout();
    if args.output.json {
        let files = changes.iter().map(|one| json!({"file": one.path, "diff": one.diff()}));
        let gained =
            gained.iter().map(|(name, verdict)| json!({"tool": name, "verdict": verdict.as_str()}));
        let row = json!({
            "files": files.collect::<Vec<_>>(),
            "gained": gained.collect::<Vec<_>>(),
            "also_wider": others,
            "written": args.yes && others.is_empty(),
        });
        writeln!(out, "{row}")?;
    } else {
        for change in &changes {
            write!(out, "{}", colored(&change.diff()))?;
        }
        writeln!(out, "{} sees in addition:", sanitize(&args.agent))?;
        for (name, verdict) in &gained {
            writeln!(out, "  {} ({verdict})", sanitize(name))?;
        }
        if !others.is_empty() {
            writeln!(out, "the change also allows:")?;
        }
        for other in &others {
            writeln!(out, "  {}", sanitize(other))?;
        }
        writeln!(out, "all tests of the policy pass")?;
    }
    if args.yes && !others.is_empty() {
        let help = "review it on a terminal, without --yes, or edit the policy by hand";
        let why = "error: nothing was written: the change also allows other calls";
        writeln!(anstream::stderr(), "{why}\n  help: {help}")?;
        return Ok(exit::NO);
    }
    let write = match args.yes {
        true => true,
        false if std::io::stdin().is_terminal() && !args.output.json => ask("Write this change?")?,
        false => {
            writeln!(
                anstream::stderr(),
                "nothing was written: there is no terminal to ask on; use --yes"
            )?;
            false
        }
    };
    if write {
        for change in &changes {
            replace_file::replace(&change.path, &change.before, &change.after).map_err(|why| {
                let path = change.path.display().to_string();
                Failure::invalid(format!("error: {}: {why}", sanitize(&path)))
            })?;
        }
    }
    Ok(exit::OK)
}

/// The configuration with the changed files, whose tests pass.
fn load_changed(
    args: &AllowArgs,
    matches: Option<&ArgMatches>,
    changes: &[FileChange],
    input: &Input,
) -> Result<Input, Failure> {
    let reads = Reads::default();
    changes.iter().for_each(|change| reads.assume(&change.path, &change.after));
    let after = Input::from(&options(&args.policy, matches), Vec::new(), &reads);
    let mut after = after.map_err(|diagnostics| invalid(&diagnostics))?;
    after.catalogue = input.catalogue.clone();
    policy_gate::passes(&after)?;
    Ok(after)
}

/// The tools that an agent sees in addition.
fn gained(before: &Policy, after: &Input, agent: &str) -> Vec<(String, Verdict)> {
    let caller = Caller::named(agent);
    let mut gained = Vec::new();
    for (server, tools) in after.catalogue.lists() {
        for tool in tools.tools() {
            let verdict = |policy: &Policy| policy.list(caller, server, tool).decision.verdict;
            let (was, is) = (verdict(before), verdict(&after.policy));
            if is < was {
                gained.push((format!("{server}/{}", tool.name()), is));
            }
        }
    }
    gained
}

/// Calls that a change allows besides those of the tool that it is for, such as calls of other agents.
fn others(
    before: &Policy,
    after: &Policy,
    agent: &str,
    (server, tool): (&str, &str),
) -> Vec<String> {
    let found = analyse::diff(before, after, &Subjects::default());
    let is_meant = |point: &Point| {
        let named = point.agent.as_deref() == Some(agent) && point.server == server;
        // Requests of a server to the client come with the use of its tools.
        let of_tool = point.kind == PointKind::Tool && point.name == tool;
        named && (of_tool || point.kind == PointKind::ClientRequest)
    };
    let changes = found.changes.iter().chain(&found.possible);
    let wider = changes.filter(|change| change.is_wider() && !is_meant(&change.point));
    let mut others: Vec<String> = wider.map(|change| points::text(&change.point)).collect();
    if found.undecided.iter().any(|one| !one.narrower_only) {
        others.push("perhaps more: the change could not be analyzed completely".into());
    }
    others
}

fn sanitize_lines(text: &str) -> String {
    text.lines().map(|line| sanitize(line).into_owned()).collect::<Vec<_>>().join("\n")
}

fn colored(diff: &str) -> String {
    let line = |line: &str| {
        let shown = sanitize(line);
        match line.as_bytes().first() {
            Some(b'+') => paint(GREEN, shown),
            Some(b'-') => paint(RED, shown),
            _ => shown.into_owned(),
        }
    };
    diff.lines().map(|one| line(one) + "\n").collect()
}

impl FileChange {
    /// The change as a unified diff.
    fn diff(&self) -> String {
        let name = self.path.display().to_string();
        let (before, after) =
            (String::from_utf8_lossy(&self.before), String::from_utf8_lossy(&self.after));
        let diff = TextDiff::from_lines(&*before, &*after);
        diff.unified_diff().context_radius(2).header(&name, &name).to_string()
    }
}
