//! `toolward allow`: the narrowest change of a policy that permits a tool to an agent.

use std::io::{IsTerminal, Write};

use clap::ArgMatches;
use serde_json::json;
use toolward_config::sanitize;

use crate::allow::proposal::{FileChange, Proposal};
use crate::allow::{Effect, load_changed, unified_diff};
use crate::cli::AllowArgs;
use crate::clients::replace_file;
use crate::commands::init::ask;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::{Input, options};
use crate::render::{GREEN, RED, paint};

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
    let after = load_changed(&options(&args.policy, matches), &changes, &input.catalogue)?;
    let effect = Effect::new(&input.policy, &after, &args.agent, (server, tool));
    if !effect.reaches((server, tool)) {
        let why = "the change would not be enough: the agent still could not use the tool";
        writeln!(anstream::stderr(), "error: {why}\n  help: run `toolward explain`")?;
        return Ok(exit::NO);
    }
    let Effect { gained, others } = effect;
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
        unified_diff(&name, &before, &after)
    }
}
