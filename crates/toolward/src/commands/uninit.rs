//! `toolward uninit`: restores the files of MCP clients.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};
use toolward_config::sanitize;

use crate::cli::UninitArgs;
use crate::clients::locate::Machine;
use crate::clients::plan::entry_name;
use crate::clients::undo::{Outcome, Undo, client_name};
use crate::commands::init::{ask, check_clients, home_path, machine, shown};
use crate::exit::{self, Failure};

pub(crate) fn run(args: &UninitArgs) -> Result<u8, Failure> {
    check_clients(&args.client)?;
    let machine = machine(None)?;
    let failed = |why: String| Failure::invalid(format!("error: {}", shown(&why)));
    let mut undo = Undo::new(&machine.home, &args.client).map_err(failed)?;
    let mut out = anstream::stdout().lock();
    let report = |out: &mut dyn Write, undo: &Undo| match args.output.json {
        true => writeln!(out, "{:#}", to_json(undo)),
        false => show(out, undo, &machine),
    };
    let is_needed = undo.changes() > 0 || !undo.undone.is_empty();
    let may_apply = match (is_needed, args.dry_run, args.yes) {
        (false, ..) | (_, true, _) => false,
        (_, _, true) => true,
        _ if std::io::stdin().is_terminal() && !args.output.json => {
            show(&mut out, &undo, &machine)?;
            if !ask("Make these changes?")? {
                return Ok(exit::OK);
            }
            true
        }
        _ => {
            report(&mut out, &undo)?;
            writeln!(
                anstream::stderr(),
                "nothing was changed: there is no terminal to ask on; use --yes"
            )?;
            return Ok(exit::USAGE);
        }
    };
    if may_apply {
        undo.apply().map_err(failed)?;
    }
    report(&mut out, &undo)?;
    Ok(if undo.is_partial() { exit::NO } else { exit::OK })
}

fn show(out: &mut dyn Write, undo: &Undo, machine: &Machine) -> std::io::Result<()> {
    if undo.undone.is_empty() {
        return writeln!(out, "there is nothing to undo");
    }
    for undone in &undo.undone {
        let file = home_path(&undone.record.file, machine);
        let name = entry_name(&undone.record.path);
        let place = format!("{}  {file}  {name}", client_name(&undone.record.client));
        let (what, lines): (String, &[String]) = match &undone.outcome {
            Outcome::Restored(lines) => ("restored".into(), lines),
            Outcome::Nothing => ("has its old text, or was removed".into(), &[]),
            Outcome::Edited(lines) => {
                ("not changed: it was edited after `init`; the difference:".into(), lines)
            }
            Outcome::Failed(why) => (format!("not changed: {why}"), &[]),
        };
        writeln!(out, "{}: {}", sanitize(&place), shown(&what))?;
        for line in lines {
            writeln!(out, "    {}", sanitize(line))?;
        }
    }
    match &undo.created {
        Some((path, _)) if undo.is_partial() => {
            let path = home_path(path, machine);
            writeln!(out, "{}: kept, because an entry may still use it", sanitize(&path))
        }
        Some((path, true)) => writeln!(out, "{}: removed", sanitize(&home_path(path, machine))),
        Some((path, false)) => {
            writeln!(out, "{}: kept, because it was edited", sanitize(&home_path(path, machine)))
        }
        None => Ok(()),
    }
}

fn to_json(undo: &Undo) -> Value {
    let entries = undo.undone.iter().map(|undone| {
        let (state, reason) = match &undone.outcome {
            Outcome::Restored(_) => ("restored", None),
            Outcome::Nothing => ("nothing", None),
            Outcome::Edited(_) => ("edited", None),
            Outcome::Failed(why) => ("failed", Some(why)),
        };
        json!({
            "client": undone.record.client,
            "file": undone.record.file,
            "name": entry_name(&undone.record.path),
            "state": state,
            "reason": reason,
        })
    });
    json!({"entries": entries.collect::<Vec<_>>()})
}
