//! The result of `plan` as text, JSON and Markdown.

use std::io::{Result, Write};

use anstyle::Style;
use serde_json::{Value, json};
use toolward_config::sanitize;
use toolward_policy::Policy;

use crate::audit_log::clock::{Clock, Precision};
use crate::audit_log::row;
use crate::commands::markdown;
use crate::render::{BOLD, DIM, GREEN, RED, Table, YELLOW, paint};
use crate::replay::record::ListedKind;
use crate::replay::report::{CallGroup, ChangedName, Report, noun, why_open};

/// The maximum number of rows of each kind in text and Markdown; JSON has all.
const MAX_ROWS: usize = 200;

pub(super) struct Printed<'a> {
    pub(super) report: &'a Report,
    pub(super) policy: &'a Policy,
    pub(super) clock: &'a Clock,
}

impl Printed<'_> {
    pub(super) fn text(&self) -> String {
        let Report { changes, undecided, .. } = self.report;
        let mut text = String::new();
        let mut table =
            Table::new(&["CHANGE", "AGENT", "CALL", "VERDICT", "CALLS", "LAST", "EXAMPLE", "RULE"]);
        let rows = changes.iter().take(MAX_ROWS).chain(undecided.iter().take(MAX_ROWS));
        for group in rows {
            let style = match group.direction() {
                "wider" => RED,
                "narrower" => GREEN,
                _ => YELLOW,
            };
            let (verdict, last) = (verdict(group), self.clock.show(&group.last, Precision::Short));
            table.row(vec![
                (group.direction().into(), style),
                (who(group.agent.as_deref()), BOLD),
                (sanitize(&group.subject()).into_owned(), Style::new()),
                (verdict, Style::new()),
                (group.calls.to_string(), BOLD),
                (last, DIM),
                (group.examples.first().map(|id| short_id(id)).unwrap_or_default(), DIM),
                (self.rule(group), DIM),
            ]);
        }
        if !changes.is_empty() || !undecided.is_empty() {
            text.push_str(&table.render());
        }
        let hidden =
            changes.len().saturating_sub(MAX_ROWS) + undecided.len().saturating_sub(MAX_ROWS);
        if hidden > 0 {
            text.push_str(&format!("{hidden} more rows; --json has all\n"));
        }
        let names = &self.report.listing_changes.names;
        if !names.is_empty() {
            text.push_str(&format!("{}\n", paint(BOLD, "listings:")));
        }
        for ((agent, name), listings) in names.iter().take(MAX_ROWS) {
            let word = if name.gained { paint(RED, "gained") } else { paint(GREEN, "lost  ") };
            let listings = crate::render::count(usize::try_from(*listings).unwrap_or(0), "listing");
            text.push_str(&format!(
                "  {word}  {}: {} ({listings})\n",
                who(agent.as_deref()),
                full(name)
            ));
        }
        if names.len() > MAX_ROWS {
            text.push_str(&format!("  {} more names; --json has all\n", names.len() - MAX_ROWS));
        }
        text.push_str(&format!("{}\n", self.report.summary()));
        let skipped = self.report.skipped.reasons();
        for (count, why) in skipped {
            text.push_str(&format!("{}\n", paint(DIM, format!("not compared: {count} {why}"))));
        }
        text
    }

    /// Writes JSON group by group: a report can have many.
    pub(super) fn write_json(&self, out: &mut impl Write) -> Result<()> {
        let Report { changes, undecided, listing_changes, skipped, .. } = self.report;
        let head = json!({
            "changed": self.report.is_changed(),
            "records": skipped.records,
            "calls": {
                "compared": self.report.calls,
                "changed": self.report.changed_calls(),
                "undecided": self.report.undecided_calls(),
            },
            "listings": {
                "compared": self.report.listings - listing_changes.unknown,
                "changed": listing_changes.changed,
                "undecided": listing_changes.open,
                "names_unknown": listing_changes.unknown,
            },
            "not_compared": skipped.to_json(),
        });
        let head = head.to_string();
        out.write_all(head.strip_suffix('}').unwrap_or(&head).as_bytes())?;
        write_list(out, "changes", changes.iter().map(|group| self.group(group)))?;
        write_list(out, "undecided", undecided.iter().map(|group| self.group(group)))?;
        let names = listing_changes.names.iter().map(|((agent, name), listings)| {
            json!({
                "change": if name.gained { "gained" } else { "lost" },
                "agent": agent,
                "server": name.server,
                "kind": kind(name.kind),
                "name": name.name,
                "listings": listings,
            })
        });
        write_list(out, "names", names)?;
        out.write_all(b"}\n")?;
        out.flush()
    }

    fn group(&self, group: &CallGroup) -> Value {
        json!({
            "change": group.direction(),
            "agent": group.agent,
            "server": group.server,
            "kind": kind(ListedKind::Of(group.family)),
            "name": group.name,
            "action": group.action,
            "before": group.before.as_str(),
            "after": group.after.verdict.as_str(),
            "step": group.after.step.as_str(),
            "rule": group.rule(self.policy).map(|rule| rule.path),
            "at": group.rule(self.policy).map(|rule| rule.location()),
            "calls": group.calls,
            "last": group.last,
            "examples": group.examples,
            "because": group.why_open.map(why_open),
        })
    }

    pub(super) fn markdown(&self) -> String {
        let Report { changes, undecided, listing_changes, .. } = self.report;
        let mut text = format!("**Replay of the audit log: {}**\n", self.report.summary());
        if !changes.is_empty() || !undecided.is_empty() {
            text.push_str(
                "\n| | agent | call | verdict | calls | rule |\n|---|---|---|---|---|---|\n",
            );
        }
        for group in changes.iter().take(MAX_ROWS).chain(undecided.iter().take(MAX_ROWS)) {
            let direction = match group.direction() {
                "wider" => "**wider**",
                other => other,
            };
            let cells = [
                direction.to_string(),
                markdown::code(&who(group.agent.as_deref())),
                markdown::code(&sanitize(&group.subject())),
                verdict(group).replace("->", "→"),
                group.calls.to_string(),
                markdown::cell(&self.rule(group)),
            ];
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        if !listing_changes.names.is_empty() {
            text.push_str("\n| listing | agent | name | listings |\n|---|---|---|---|\n");
        }
        for ((agent, name), listings) in listing_changes.names.iter().take(MAX_ROWS) {
            let word = if name.gained { "**gained**" } else { "lost" };
            let (agent, name) =
                (markdown::code(&who(agent.as_deref())), markdown::code(&full(name)));
            text.push_str(&format!("| {word} | {agent} | {name} | {listings} |\n"));
        }
        let skipped = self.report.skipped.reasons();
        for (count, why) in &skipped {
            text.push_str(&format!("\n- not compared: {count} {why}"));
        }
        if !skipped.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The deciding rule with its location, the step if there is no rule, or why the call is undecided.
    fn rule(&self, group: &CallGroup) -> String {
        if let Some(why) = group.why_open {
            return why_open(why).into();
        }
        let text = match group.rule(self.policy) {
            Some(rule) => format!("`{}` {}", rule.written(), rule.location()),
            None => group.after.step.as_str().to_owned(),
        };
        sanitize(&text).into_owned()
    }
}

/// A member with a list, after others.
fn write_list(out: &mut impl Write, name: &str, items: impl Iterator<Item = Value>) -> Result<()> {
    write!(out, ",\"{name}\":[")?;
    for (at, item) in items.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(out, "{comma}{}", row::json(&item))?;
    }
    out.write_all(b"]")
}

fn verdict(group: &CallGroup) -> String {
    match group.why_open {
        Some(_) => format!("{} -> ?", group.before),
        None => format!("{} -> {}", group.before, group.after.verdict),
    }
}

fn who(agent: Option<&str>) -> String {
    sanitize(agent.unwrap_or("an unnamed caller")).into_owned()
}

fn full(name: &ChangedName) -> String {
    let text = format!("{}{}/{}", noun(name.kind), name.server, name.name);
    sanitize(&text).into_owned()
}

/// The first part of an id, which is enough for `toolward explain`.
fn short_id(id: &str) -> String {
    sanitize(id.split('-').next().unwrap_or(id)).into_owned()
}

fn kind(kind: ListedKind) -> &'static str {
    match noun(kind).trim_end() {
        "" => "tool",
        other => other,
    }
}
