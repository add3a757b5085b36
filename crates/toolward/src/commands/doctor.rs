//! `toolward doctor`: which servers of MCP clients are not protected, and how to fix it.

use std::io::Write;

use serde_json::{Value, json};
use toolward_config::sanitize;

use crate::cli::DoctorArgs;
use crate::clients::gateway_file::GatewayFile;
use crate::clients::journal::Journal;
use crate::clients::locate::Machine;
use crate::clients::plan::label;
use crate::clients::second_doors::{SecondDoor, second_doors};
use crate::clients::state::{EntryState, State, states};
use crate::clients::survey::{Wanted, survey};
use crate::clients::undo::client_name;
use crate::commands::init::{check_clients, config_path, home_path, machine, shown};
use crate::exit::{self, Failure};
use crate::render::count;

/// All findings.
struct Findings {
    entries: Vec<EntryState>,
    doors: Vec<SecondDoor>,
    /// The errors in the gateway's configuration.
    config: Option<String>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    check_clients(&args.client)?;
    let machine = machine(args.project.as_deref())?;
    let path = config_path(args.config.as_deref(), &machine)?;
    let failed = |why: String| Failure::invalid(format!("error: {}", shown(&why)));
    let journal = Journal::load(&Journal::file(&machine.home)).map_err(failed)?;
    let wanted = Wanted { clients: args.client.clone(), paths: journal.paths.clone() };
    let files = survey(&machine, &wanted);
    let gateway = match path.symlink_metadata() {
        Err(_) => Ok(None),
        Ok(_) => GatewayFile::load(&path, &machine.home)
            .and_then(|file| file.validate_now().map(|()| Some(file))),
    };
    let (gateway, config) = match gateway {
        Ok(gateway) => (gateway, None),
        Err(why) => (None, Some(format!("{}: {why}", home_path(&path, &machine)))),
    };
    let found = Findings {
        entries: states(&files, gateway.as_ref(), &journal),
        doors: second_doors(&machine, &args.client),
        config,
    };
    let mut out = anstream::stdout().lock();
    match args.output.json {
        true => writeln!(out, "{:#}", to_json(&found))?,
        false => show(&mut out, &found, &machine)?,
    }
    let is_fine = |entry: &EntryState| matches!(entry.state, State::Wrapped | State::Drifted);
    let is_whole =
        found.entries.iter().all(is_fine) && found.doors.is_empty() && found.config.is_none();
    Ok(if is_whole { exit::OK } else { exit::NO })
}

fn show(out: &mut dyn Write, found: &Findings, machine: &Machine) -> std::io::Result<()> {
    let mut last = None;
    for entry in &found.entries {
        if last != Some(&entry.file) {
            let file = home_path(&entry.file, machine);
            writeln!(out, "{}  {}", entry.client.name, sanitize(&file))?;
            last = Some(&entry.file);
        }
        let name = entry.name.as_deref().map(|name| label(name, entry.project.as_deref()));
        let name = name.map_or_else(String::new, |name| format!("{}: ", sanitize(&name)));
        let reason =
            entry.state.reason().map_or_else(String::new, |why| format!(": {}", shown(why)));
        writeln!(out, "  {name}{}{reason}", entry.state.word())?;
        if let Some(help) = entry.state.help(entry.client) {
            writeln!(out, "    help: {help}")?;
        }
    }
    for door in &found.doors {
        let file = home_path(&door.file, machine);
        writeln!(
            out,
            "{}  {}\n  unprotected: {}",
            client_name(door.client),
            sanitize(&file),
            door.what
        )?;
        writeln!(out, "    help: {}", door.help)?;
    }
    if let Some(why) = &found.config {
        writeln!(
            out,
            "the gateway's configuration is not valid, so no wrapped server starts\n{}",
            shown(why)
        )?;
    }
    let of =
        |wanted: fn(&State) -> bool| found.entries.iter().filter(|one| wanted(&one.state)).count();
    let wrapped = of(|state| matches!(state, State::Wrapped | State::Drifted));
    let rest = found.entries.len() - wrapped + found.doors.len();
    match (found.entries.len() + found.doors.len(), rest) {
        (0, _) => writeln!(out, "no server of an MCP client was found"),
        (_, 0) => writeln!(out, "\n{} protected", count(wrapped, "server")),
        _ => writeln!(
            out,
            "\n{} protected, {} not",
            count(wrapped, "server"),
            count(rest, "finding")
        ),
    }
}

fn to_json(found: &Findings) -> Value {
    let entries = found.entries.iter().map(|entry| {
        json!({
            "client": entry.client.id,
            "file": entry.file,
            "name": entry.name,
            "project": entry.project,
            "state": entry.state.word(),
            "reason": entry.state.reason(),
            "help": entry.state.help(entry.client),
        })
    });
    let doors = found.doors.iter().map(|door| {
        json!({"client": door.client, "file": door.file, "what": door.what, "help": door.help})
    });
    json!({
        "entries": entries.collect::<Vec<_>>(),
        "second_doors": doors.collect::<Vec<_>>(),
        "config": found.config,
    })
}
