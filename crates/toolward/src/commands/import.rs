//! `toolward import`: another system's policy as native YAML.

use std::io::{Read, Write};

use serde_json::json;

use crate::cli::ImportArgs;
use crate::exit::{self, Failure};
use crate::policy_input::invalid;

pub(crate) fn run(args: ImportArgs) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let unreadable = |error| Failure::usage(format!("error: {name}: {error}"));
    let mut text = String::new();
    if name == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
    } else {
        text = std::fs::read_to_string(&args.file).map_err(unreadable)?;
    }
    let servers: Vec<&str> = args.servers.iter().map(String::as_str).collect();
    let imported = toolward_config::import(args.format.native(), &name, &text, &servers)
        .map_err(|failed| invalid(&failed.diagnostics))?;
    let mut stderr = anstream::stderr();
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
