//! `toolward reload`: makes running gateways reload their configuration.

use std::io::Write;

use serde_json::json;
use toolward_config::sanitize;

use crate::cli::ReloadArgs;
use crate::commands::status::{none, say_silent, states};
use crate::control_client::{self, Replies};
use crate::exit::{self, Failure};
use crate::running;

pub(crate) fn run(args: &ReloadArgs) -> Result<u8, Failure> {
    let states = states(&args.running, false)?;
    let word = match (args.accept, &args.running.state) {
        (false, _) => "reload".into(),
        (true, Some(_)) => "reload --accept".into(),
        (true, None) => {
            let main = running::places(args.running.config.as_deref()).main;
            let help = "error: there is no configuration here\n  help: choose one with -c FILE";
            control_client::accept(&main.ok_or_else(|| Failure::usage(help))?)
        }
    };
    let Replies { answers, silent } =
        control_client::ask(&states, &word, control_client::CONTROL_TIMEOUT);
    if answers.is_empty() && silent.is_empty() {
        return Err(none(&states));
    }
    say_silent(&silent)?;
    let mut out = anstream::stdout();
    let mut refused = false;
    let mut rows = Vec::new();
    for (process, answer) in answers {
        let error = answer["error"].as_str();
        refused |= error.is_some();
        if args.output.json {
            let reloaded = error.is_none();
            rows.push(json!({"process": process, "reloaded": reloaded, "error": error}));
            continue;
        }
        match error {
            None => {
                let said = answer["message"].as_str().unwrap_or("reloaded");
                writeln!(out, "process {process}: {}", sanitize(said))?;
            }
            Some(why) => {
                writeln!(
                    out,
                    "process {process}: not reloaded, the old configuration stays active:"
                )?;
                for line in why.lines() {
                    writeln!(out, "  {}", sanitize(line))?;
                }
            }
        }
    }
    if args.output.json {
        writeln!(out, "{}", json!(rows))?;
    }
    Ok(match (refused, silent.is_empty()) {
        (true, _) => exit::INVALID,
        (false, true) => exit::OK,
        (false, false) => exit::UNREACHABLE,
    })
}
