//! `toolward import`: another system's policy as native YAML.

use std::io::{Read, Write};

use serde_json::json;
use toolward_config::sanitize;
use toolward_config::{Inline, load_inline};

use crate::cli::{Format, ImportArgs};
use crate::exit::{self, Failure};
use crate::load::{Input, invalid};
use crate::reads::Reads;

pub(crate) fn run(args: ImportArgs) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let shown = sanitize(&name).into_owned();
    let unreadable = |error| Failure::usage(format!("error: {shown}: {error}"));
    let mut text = String::new();
    if name == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
    } else {
        text = std::fs::read_to_string(&args.file).map_err(unreadable)?;
    }
    let servers: Vec<&str> = args.servers.iter().map(String::as_str).collect();
    let imported = toolward_config::import(args.format.native(), &name, &text, &servers)
        .map_err(|failed| invalid(&failed.diagnostics))?;
    // The output must be a policy that loads.
    let loaded = load_inline(Inline::Text(&imported.yaml));
    loaded
        .map_err(|failed| failed.diagnostics)
        .and_then(|loaded| Input::compile(loaded, Vec::new(), Reads::default()))
        .map_err(|findings| invalid(&findings))?;
    let mut stderr = anstream::stderr();
    if args.format == Format::Plugin {
        let note = "this belongs in the main file, next to `command` or `url` of each server";
        writeln!(stderr, "note: {note}")?;
    }
    for warning in &imported.warnings {
        writeln!(stderr, "{}", warning.render(true))?;
    }
    let mut out = std::io::stdout();
    if args.output.json {
        writeln!(out, "{}", json!({ "yaml": imported.yaml }))?;
    } else {
        write!(out, "{}", imported.yaml)?;
    }
    Ok(exit::OK)
}
