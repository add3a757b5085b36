//! `toolward match`: which names a selector matches.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::json;
use toolward_config::sanitize;
use toolward_policy::selector::{Selector, fold};
use toolward_policy::source::Case;

use crate::cli::MatchArgs;
use crate::exit::{self, Failure};

pub(crate) fn run(args: MatchArgs) -> Result<u8, Failure> {
    if args.pattern.starts_with("hint:") {
        return Err(Failure::usage(format!(
            "error: `{}`: `hint:` selectors cannot be matched against names alone\n  help: use `toolward ls --tools FILE`",
            sanitize(&args.pattern)
        )));
    }
    let case = if args.ignore_case { Case::Insensitive } else { Case::Sensitive };
    let selector = Selector::new(&args.pattern, case);
    let terminal = std::io::stdout().is_terminal();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let name = line.strip_suffix('\r').unwrap_or(&line);
        if !selector.names_tool(&fold(name, case)) {
            continue;
        }
        if args.output.json {
            writeln!(out, "{}", json!(name))?;
        } else if terminal {
            writeln!(out, "{}", sanitize(name))?;
        } else {
            writeln!(out, "{name}")?;
        }
    }
    out.flush()?;
    Ok(exit::OK)
}
