//! `toolward lock`: approves the definitions of servers as they are now.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::sanitize;
use toolward_gateway::guard::pins::Approved;
use toolward_gateway::guard::pins::canonical::Pointer;
use toolward_gateway::guard::pins::lock_file::{LockFile, PINNED_KINDS};

use super::load;
use crate::cli::LockArgs;
use crate::clients::replace_file;
use crate::exit::{self, Failure};
use crate::pin_review::{Pinned, not_known, not_written};
use crate::pins::compare::compare_server;
use crate::render::count;

pub(crate) fn run(args: &LockArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let pinned = load(&args.policy, matches, (&args.servers, args.timeout))?;
    if pinned.definitions.is_empty() {
        let help = "servers are defined under `servers`";
        return Err(Failure::usage(format!("error: there are no servers\n  help: {help}")));
    }
    // A lock file that cannot be read is replaced as a whole: this is the repair.
    let before = match &pinned.approved {
        Approved::Locked { file, .. } => file.clone(),
        Approved::FirstUse(_) | Approved::Refused(_) => LockFile::default(),
    };
    let mut file = before.clone();
    // Servers that are no longer configured are dropped.
    file.servers.retain(|name, _| pinned.setup.iter().any(|server| server.name == *name));
    let (mut out, mut errors) = (anstream::stdout(), anstream::stderr());
    let (mut failed, mut rows) = (false, Vec::new());
    for definition in &pinned.definitions {
        let name = definition.name.to_string();
        let survey = match pinned.look(definition)? {
            Ok(survey) => survey,
            Err(why) => {
                failed = true;
                writeln!(errors, "error: {}", not_known(&name, &why))?;
                continue;
            }
        };
        let setup = pinned.setup(&name);
        let mut ignored = setup.map(|setup| setup.ignore.clone()).unwrap_or_default();
        let volatile = survey.volatile(&ignored);
        ignored.extend(volatile.iter().filter_map(|text| Pointer::parse(text)));
        let identity = setup.map(|setup| setup.identity.clone()).unwrap_or_default();
        let offered = survey.offered(identity, &ignored);
        let entries: Vec<usize> = PINNED_KINDS
            .iter()
            .map(|kind| offered.list(*kind).map_or(0, |list| list.len()))
            .collect();
        let compared = compare_server(&name, (&offered, pinned.mode(&name), &ignored), &before);
        let is_new = !before.servers.contains_key(&name);
        if args.output.json {
            let changed = compared.entries.iter().filter(|_| !is_new);
            let changed = changed.map(|one| json!({"name": one.name, "class": one.class.as_str()}));
            rows.push(json!({
                "server": name,
                "tools": entries.first(),
                "prompts": entries.get(1),
                "resource_templates": entries.get(2),
                "changed": changed.collect::<Vec<_>>(),
                "volatile": volatile,
            }));
        } else {
            let words = ["tool", "prompt", "resource template"];
            let counts =
                entries.iter().zip(words).filter(|(number, word)| **number > 0 || *word == "tool");
            let counts: Vec<String> = counts.map(|(number, word)| count(*number, word)).collect();
            writeln!(out, "{}: {}", sanitize(&name), counts.join(", "))?;
            for one in compared.entries.iter().filter(|_| !is_new) {
                let (class, what) = (one.class.as_str(), &one.changes);
                let what = what.first().map(|change| format!("{} {}", change.at, change.what));
                let what = what.unwrap_or_default();
                writeln!(
                    out,
                    "  approved {} ({class}: {})",
                    sanitize(&one.name),
                    sanitize(what.trim())
                )?;
            }
        }
        if !volatile.is_empty() {
            let list: Vec<String> = volatile.iter().map(|one| format!("\"{one}\"")).collect();
            writeln!(
                errors,
                "warning: definitions of {} differ from one session to the next\n  help: add to `servers.{}`:\n    pins: {{ ignore: [{}] }}",
                sanitize(&name),
                sanitize(&name),
                sanitize(&list.join(", "))
            )?;
        }
        file.servers.insert(name, offered);
    }
    let lock = &pinned.places.lock;
    if !failed || file != before {
        write(&pinned, &file)?;
    }
    if args.output.json {
        writeln!(out, "{}", json!({"file": lock, "servers": rows}))?;
    } else if !failed || file != before {
        let shown = lock.display().to_string();
        writeln!(out, "{}: {}", sanitize(&shown), count(file.servers.len(), "server"))?;
    }
    Ok(if failed { exit::NO } else { exit::OK })
}

fn write(pinned: &Pinned, file: &LockFile) -> Result<(), Failure> {
    let (lock, text) = (&pinned.places.lock, file.render());
    let written = match std::fs::read(lock) {
        Ok(old) if old == text.as_bytes() => Ok(()),
        Ok(old) => replace_file::replace(lock, &old, text.as_bytes()),
        Err(_) => replace_file::create(lock, text.as_bytes()).map_err(Into::into),
    };
    written.map_err(|why| not_written(lock, &why))
}
