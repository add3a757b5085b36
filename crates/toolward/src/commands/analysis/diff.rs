//! `toolward diff`: what a policy change allows and denies.

use std::io::Write;

use serde_json::{Value, json};
use toolward_config::sanitize;
use toolward_policy::analyse::{self, Change, Differences, Subjects};
use toolward_policy::{Caller, Policy, Verdict};

use super::{load, unanalyzed};
use crate::cli::{DiffArgs, ReportFormat};
use crate::commands::markdown::{cell, code};
use crate::exit::{self, Failure};
use crate::load::Input;
use crate::render::{BOLD, DIM, GREEN, RED, YELLOW, count, paint};
use crate::report::points;

pub(crate) fn run(args: &DiffArgs) -> Result<u8, Failure> {
    let (old, new) = (load(&args.old, &[])?, load(&args.new, &args.lists)?);
    let subjects = Subjects { agent: args.agent.as_deref(), ..Subjects::default() };
    let found = analyse::diff(&old.policy, &new.policy, &subjects);
    let report = Report {
        unanalyzed: match args.policy_only {
            true => Vec::new(),
            false => unanalyzed::changed(&old, &new),
        },
        known: known(&old.policy, &new, args.agent.as_deref()),
        old: &old.policy,
        new: &new.policy,
        found,
    };
    let text = match args.format {
        _ if args.output.json => report.json(),
        ReportFormat::Json => report.json(),
        ReportFormat::Text => report.text(),
        ReportFormat::Markdown => report.markdown(),
    };
    write!(anstream::stdout(), "{text}")?;
    Ok(match report.is_wider() {
        Some(true) if args.allow_wider => exit::OK,
        Some(true) => exit::NO,
        Some(false) => exit::OK,
        None => exit::UNDECIDED,
    })
}

/// A known tool that an agent sees otherwise.
struct KnownTool {
    agent: Option<String>,
    name: String,
    before: Verdict,
    after: Verdict,
}

/// Tools of the given lists whose listing changes.
fn known(old: &Policy, new: &Input, only: Option<&str>) -> Vec<KnownTool> {
    let mut agents: Vec<Option<&str>> = old.agents().into_iter().map(Some).collect();
    for agent in new.policy.agents().into_iter().map(Some).chain([None]) {
        if !agents.contains(&agent) {
            agents.push(agent);
        }
    }
    agents.retain(|agent| only.is_none() || *agent == only);
    let mut found = Vec::new();
    for (server, tools) in new.catalogue.lists() {
        for agent in &agents {
            let caller = Caller { agent: *agent, claims: None };
            let (before, after) =
                (old.row(*agent, server, tools), new.policy.row(*agent, server, tools));
            for ((tool, one), (_, other)) in before.iter().zip(after.iter()) {
                let verdicts = [one, other].map(|cell| cell.list(caller).decision.verdict);
                if let [before, after] = verdicts
                    && before != after
                {
                    let name = format!("{server}/{}", tool.name());
                    found.push(KnownTool { agent: agent.map(String::from), name, before, after });
                }
            }
        }
    }
    found
}

struct Report<'a> {
    old: &'a Policy,
    new: &'a Policy,
    found: Differences,
    known: Vec<KnownTool>,
    unanalyzed: Vec<&'static str>,
}

impl Report<'_> {
    /// Wider outranks undecided.
    fn is_wider(&self) -> Option<bool> {
        match self.found.is_wider() {
            Some(false) if !self.unanalyzed.is_empty() => None,
            answer => answer,
        }
    }

    fn part(&self, wider: bool) -> Vec<&Change> {
        self.found.changes.iter().filter(|change| change.is_wider() == wider).collect()
    }

    fn summary(&self) -> String {
        match self.is_wider() {
            Some(true) => format!("wider in {}", count(self.part(true).len(), "way")),
            Some(false) if self.found.is_none() == Some(true) => "no difference".into(),
            Some(false) => "nothing becomes wider".into(),
            None => "undecided whether something becomes wider".into(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (wider, title, style) in [(true, "wider", RED), (false, "narrower", GREEN)] {
            for change in self.part(wider) {
                text.push_str(&self.change_text(change, &paint(style, title)));
            }
        }
        for change in &self.found.possible {
            let title = if change.is_wider() { "possibly wider" } else { "possibly narrower" };
            text.push_str(&self.change_text(change, &paint(YELLOW, title)));
            let conditions = sanitize(&change.depends_on.join("`, `")).into_owned();
            text.push_str(&format!("  depends on `{conditions}`\n"));
        }
        for undecided in &self.found.undecided {
            let title = paint(YELLOW, "undecided");
            text.push_str(&format!("{title}  {}\n", points::undecided(undecided)));
        }
        for part in &self.unanalyzed {
            let title = paint(YELLOW, "not analyzed");
            text.push_str(&format!("{title}  {part} changed (--policy-only ignores it)\n"));
        }
        if !self.known.is_empty() {
            text.push_str(&format!("{}\n", paint(BOLD, "known tools:")));
        }
        for tool in &self.known {
            let agent = tool.agent.as_deref().unwrap_or("an unnamed caller");
            let line = format!("{agent}: {} {} -> {}", tool.name, tool.before, tool.after);
            text.push_str(&format!("  {}\n", sanitize(&line)));
        }
        text + &format!("{}\n", paint(DIM, self.summary()))
    }

    fn change_text(&self, change: &Change, title: &str) -> String {
        let (before, after) = (change.before.verdict, change.after.verdict);
        format!(
            "{title}  {}: {before} -> {after}\n  {}\n  {}\n",
            points::text(&change.point),
            paint(DIM, format!("before: {}", points::rule(self.old, &change.before))),
            paint(DIM, format!("after:  {}", points::rule(self.new, &change.after))),
        )
    }

    fn json(&self) -> String {
        let change = |change: &Change| {
            json!({
                "wider": change.is_wider(),
                "example": points::to_json(&change.point),
                "before": points::decision_json(self.old, &change.before),
                "after": points::decision_json(self.new, &change.after),
                "depends_on": change.depends_on,
            })
        };
        let known = |tool: &KnownTool| {
            let (before, after) = (tool.before.as_str(), tool.after.as_str());
            json!({"agent": tool.agent, "tool": tool.name, "before": before, "after": after})
        };
        let undecided: Vec<String> = self.found.undecided.iter().map(points::undecided).collect();
        let report = json!({
            "wider": self.is_wider(),
            "equal": self.found.is_none(),
            "changes": self.found.changes.iter().map(change).collect::<Vec<Value>>(),
            "possible": self.found.possible.iter().map(change).collect::<Vec<Value>>(),
            "undecided": undecided,
            "not_analyzed": self.unanalyzed,
            "known_tools": self.known.iter().map(known).collect::<Vec<Value>>(),
        });
        format!("{report}\n")
    }

    fn markdown(&self) -> String {
        let mut text = format!("**Policy change: {}**\n", self.summary());
        let rows: Vec<&Change> = self
            .part(true)
            .into_iter()
            .chain(self.part(false))
            .chain(&self.found.possible)
            .collect();
        if !rows.is_empty() {
            text.push_str("\n| | example | verdict | before | after |\n|---|---|---|---|---|\n");
        }
        for change in rows {
            let possibly = if change.depends_on.is_empty() { "" } else { "possibly " };
            let direction = if change.is_wider() { "**wider**" } else { "narrower" };
            let cells = [
                format!("{possibly}{direction}"),
                code(&points::text(&change.point)),
                format!("{} → {}", change.before.verdict, change.after.verdict),
                cell(&points::rule(self.old, &change.before)),
                cell(&points::rule(self.new, &change.after)),
            ];
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        let notes = self.found.undecided.iter().map(points::undecided);
        let notes = notes.map(|note| format!("Undecided: {note}"));
        let parts = self.unanalyzed.iter().map(|part| format!("Not analyzed: {part} changed"));
        for note in notes.chain(parts) {
            text.push_str(&format!("\n- {}", cell(&note)));
        }
        if !self.known.is_empty() {
            text.push_str("\n| agent | known tool | before | after |\n|---|---|---|---|\n");
        }
        for tool in &self.known {
            let agent = tool.agent.as_deref().unwrap_or("an unnamed caller");
            let (agent, name) = (code(&sanitize(agent)), code(&sanitize(&tool.name)));
            text.push_str(&format!("| {agent} | {name} | {} | {} |\n", tool.before, tool.after));
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}
