//! The report as text.

use std::io::Write;

use toolward_config::sanitize;

use super::agents::AgentReport;
use super::{EntryReport, Report, Start};
use crate::audit_log::clock::{Clock, Precision};
use crate::clients::activity::PERIOD;
use crate::clients::locate::Machine;
use crate::clients::plan::label;
use crate::clients::undo::client_name;
use crate::commands::init::{home_path, shown};
use crate::render::count;

/// The tools that are shown of those that are not read-only.
const MAX_SHOWN: usize = 5;

pub(super) fn show(out: &mut dyn Write, report: &Report, machine: &Machine) -> std::io::Result<()> {
    let mut last = None;
    for entry in &report.entries {
        let found = &entry.found;
        if last != Some(&found.file) {
            let file = home_path(&found.file, machine);
            writeln!(out, "{}  {}", found.client.name, sanitize(&file))?;
            last = Some(&found.file);
        }
        show_entry(out, entry)?;
    }
    for door in &report.doors {
        let (name, file) = (client_name(door.client), home_path(&door.file, machine));
        writeln!(out, "{name}  {}\n  unprotected: {}", sanitize(&file), door.what)?;
        writeln!(out, "    help: {}", door.help)?;
    }
    for limit in &report.limits {
        writeln!(out, "{}: {}", limit.client.name, sanitize(&limit.what))?;
        writeln!(out, "    help: {}", limit.help)?;
    }
    if let Some(why) = &report.config {
        let why = shown(why);
        writeln!(
            out,
            "the gateway's configuration is not valid, so no wrapped server starts\n{why}"
        )?;
    }
    show_agents(out, report)?;
    let fine = report.entries.iter().filter(|entry| entry.is_fine()).count();
    let rest = report.entries.len() - fine + report.doors.len();
    match (report.entries.len() + report.doors.len(), rest) {
        (0, _) => writeln!(out, "no server of an MCP client was found"),
        (_, 0) => writeln!(out, "\n{} protected", count(fine, "server")),
        _ => writeln!(out, "\n{} protected, {} not", count(fine, "server"), count(rest, "finding")),
    }
}

fn show_entry(out: &mut dyn Write, entry: &EntryReport) -> std::io::Result<()> {
    let found = &entry.found;
    let name = found.name.as_deref().map(|name| label(name, found.project.as_deref()));
    let name = name.map_or_else(String::new, |name| format!("{}: ", sanitize(&name)));
    let mut line = format!("  {name}{}", found.state.word());
    if let Some(why) = found.state.reason() {
        line.push_str(&format!(": {}", shown(why)));
    }
    match &entry.start {
        Start::Listed(tools) => line.push_str(&format!(", {}", count(tools.len(), "tool"))),
        Start::Failed(why) => line.push_str(&format!(", does not start: {}", shown(why))),
        Start::NeedsLogin(_) => line.push_str(", needs login"),
        Start::OnlyByClient(why) => line.push_str(&format!(", not started: {}", shown(why))),
        Start::No if found.wrapped.as_ref().is_some_and(|wrapped| wrapped.is_disabled) => {
            line.push_str(", disabled in the client");
        }
        Start::No => {}
    }
    if let Some(time) = &entry.last_used {
        let time = Clock::new(false).show(time, Precision::Short);
        line.push_str(&format!(", last used {}", sanitize(&time)));
    }
    if entry.overrides {
        line.push_str(", overrides a wrapped entry of the same name");
    }
    writeln!(out, "{line}")?;
    match (found.state.help(found.client), &entry.start) {
        (Some(help), _) => writeln!(out, "    help: {help}"),
        (None, Start::NeedsLogin(_)) => {
            let command = entry.login.as_deref().unwrap_or("toolward logins");
            writeln!(out, "    help: run `{}`", sanitize(command))
        }
        (None, Start::Failed(_)) => {
            writeln!(
                out,
                "    help: `toolward ls --server SERVER` and the client's own log may show more"
            )
        }
        _ => Ok(()),
    }
}

/// Which clients have connected, and the next step for each.
fn show_agents(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    if !report.agents.is_empty() {
        writeln!(out)?;
    }
    for agent in &report.agents {
        let name = agent.client.name;
        let Some(activity) = &agent.activity else {
            writeln!(out, "{name} has not connected yet")?;
            writeln!(out, "    next: {}", agent.client.restart)?;
            continue;
        };
        let days = PERIOD.trim_end_matches('d');
        let (calls, refused) = (activity.calls, activity.refused);
        let tools = count(activity.tools.len(), "tool");
        let calls = count(usize::try_from(calls).unwrap_or(usize::MAX), "call");
        writeln!(
            out,
            "{name} has connected: {calls} of {tools}, {refused} refused, in the last {days} days"
        )?;
        writeln!(out, "    next: {}", next_step(agent))?;
    }
    Ok(())
}

fn next_step(agent: &AgentReport) -> String {
    let name = sanitize(&agent.name);
    let called = agent.activity.as_ref().map_or(0, |activity| activity.tools.len());
    if !agent.is_observed {
        return format!("`toolward audit query --agent {name} --verdict deny` shows refused calls");
    }
    if called == 0 {
        return "nothing is denied to it yet; use it for a while, then run `toolward doctor` again"
            .into();
    }
    let learn = format!("`toolward learn --as {name}` proposes rules for them");
    let writing = &agent.writing;
    let known = if agent.unlisted == called {
        String::new()
    } else if writing.is_empty() {
        " The listed ones are read-only.".into()
    } else {
        let shown =
            writing.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match writing.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(" Not read-only: {}{more}.", sanitize(&shown))
    };
    format!("nothing is denied to it yet.{known} {learn}")
}
