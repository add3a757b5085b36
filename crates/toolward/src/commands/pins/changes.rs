//! `toolward changes`: how the definitions of servers differ from the approved ones.

use std::io::Write;

use clap::ArgMatches;
use serde_json::{Value, json};
use toolward_config::sanitize;
use toolward_gateway::guard::pins::Approved;
use toolward_gateway::guard::pins::change::Class;
use toolward_gateway::guard::pins::screen::Outcome;

use super::diff::word_diff;
use super::load;
use crate::cli::ChangesArgs;
use crate::exit::{self, Failure};
use crate::pin_review::not_known;
use crate::pins::accept_command;
use crate::pins::compare::{ChangedEntry, Comparison, compare_server};
use crate::pins::survey::digest_of_server;
use crate::render::{BOLD, DIM, GREEN, RED, YELLOW, count, paint};

pub(crate) fn run(args: &ChangesArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let servers: Vec<String> = args.server.iter().cloned().collect();
    let pinned = load(&args.policy, matches, (&servers, args.timeout))?;
    let approved = pinned.approved()?;
    let is_locked = matches!(pinned.approved, Approved::Locked { .. });
    let Some((approved, path)) = approved.filter(|_| is_locked || !args.locked) else {
        let help = "approve the definitions as they are now with `toolward lock`";
        return Err(Failure::invalid(format!(
            "error: no definitions are approved\n  help: {help}"
        )));
    };
    let mut out = anstream::stdout();
    let (mut failed, mut changed, mut rows) = (false, 0, Vec::new());
    for definition in &pinned.definitions {
        let name = &*definition.name;
        let survey = match pinned.look(definition)? {
            Ok(survey) => survey,
            Err(why) => {
                failed = true;
                writeln!(anstream::stderr(), "error: {}", not_known(name, &why))?;
                continue;
            }
        };
        let offered = pinned.offered(name, &survey);
        let ignored = pinned.setup(name).map_or(&[][..], |setup| &setup.ignore);
        let compared = compare_server(name, (&offered, pinned.mode(name), ignored), &approved);
        let digest = digest_of_server(&offered).to_string();
        changed += compared.entries.len()
            + usize::from(compared.instructions.is_some())
            + usize::from(compared.identity);
        if args.output.json {
            rows.push(as_json(name, &compared, &digest));
        } else if !compared.is_empty() {
            print(&mut out, name, &compared, &digest)?;
        }
    }
    if args.output.json {
        writeln!(out, "{}", json!({"approved": path, "servers": rows}))?;
    } else if changed == 0 && !failed {
        let path = path.display().to_string();
        writeln!(out, "no changes since {} was written", sanitize(&path))?;
    }
    Ok(if failed || (changed > 0 && args.locked) { exit::NO } else { exit::OK })
}

fn as_json(server: &str, compared: &Comparison, digest: &str) -> Value {
    let entry = |one: &ChangedEntry| {
        let changes = one.changes.iter();
        let changes = changes.map(
            |change| json!({"at": change.at, "class": change.class.as_str(), "what": change.what}),
        );
        json!({
            "kind": one.kind.noun(),
            "name": one.name,
            "class": one.class.as_str(),
            "outcome": one.outcome.as_str(),
            "digest": one.digest.map(|digest| digest.to_string()),
            "changes": changes.collect::<Vec<_>>(),
            "approved": one.approved.as_ref().map(|one| one.readable()),
            "current": one.current.as_ref().map(|one| one.readable()),
        })
    };
    let instructions = compared.instructions.as_ref();
    json!({
        "server": server,
        "digest": digest,
        "identity_changed": compared.identity,
        "instructions": instructions.map(|(was, is)| json!({"approved": was, "current": is})),
        "entries": compared.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn print(
    out: &mut impl Write,
    server: &str,
    compared: &Comparison,
    digest: &str,
) -> Result<(), Failure> {
    let name = sanitize(server);
    writeln!(out, "{}", paint(BOLD, format!("{name}: {}", summary(compared))))?;
    if compared.identity {
        writeln!(out, "  its command line or URL is not the one that was approved")?;
    }
    if let Some((was, is)) = &compared.instructions {
        writeln!(out, "  instructions")?;
        let (was, is) = (was.as_deref().unwrap_or_default(), is.as_deref().unwrap_or_default());
        writeln!(out, "{}", word_diff(was, is, 4))?;
    }
    for one in &compared.entries {
        let style = match one.class {
            Class::Widening => RED,
            Class::Neutral => YELLOW,
            Class::Narrowing => GREEN,
        };
        let note = match one.outcome {
            Outcome::Quarantined => ", quarantined",
            Outcome::ApprovedShown => ", agents see the approved definition",
            Outcome::Reported => "",
        };
        let class = paint(style, one.class.as_str());
        writeln!(out, "  {} {}: {class}{note}", one.kind.noun(), sanitize(&one.name))?;
        for change in &one.changes {
            let place =
                if change.at.is_empty() { String::new() } else { format!("{} ", change.at) };
            let line = format!("{place}{} ({})", change.what, change.class.as_str());
            writeln!(out, "    {}", sanitize(&line))?;
        }
        let text = |one: &Option<_>| {
            one.as_ref().map(toolward_gateway::guard::pins::definition::Definition::readable)
        };
        if let (Some(was), Some(is)) = (text(&one.approved), text(&one.current)) {
            writeln!(out, "{}", word_diff(&was, &is, 6))?;
        } else if let Some(is) = text(&one.current) {
            writeln!(out, "{}", word_diff("", &is, 6))?;
        }
        if let Some(digest) = one.digest {
            let target = format!("{server}/{}", one.name);
            let command = accept_command(&target, &digest.to_string());
            writeln!(out, "    {}", paint(DIM, sanitize(&command)))?;
        }
    }
    let command = accept_command(server, digest);
    writeln!(out, "  {}", paint(DIM, format!("all of it: {}", sanitize(&command))))?;
    Ok(())
}

fn summary(compared: &Comparison) -> String {
    let mut parts = Vec::new();
    for class in [Class::Widening, Class::Neutral, Class::Narrowing] {
        let number = compared.entries.iter().filter(|one| one.class == class).count();
        if number > 0 {
            parts.push(format!("{} {}", number, class.as_str()));
        }
    }
    let total = compared.entries.len() + usize::from(compared.instructions.is_some());
    match parts.is_empty() {
        true => count(total, "change"),
        false => format!("{} ({})", count(total, "change"), parts.join(", ")),
    }
}
