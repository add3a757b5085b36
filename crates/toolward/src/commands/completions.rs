//! `toolward completions`: the script that lets a shell ask this program for completions.

use clap_complete::env::Shells;

use crate::cli::CompletionsArgs;
use crate::completion::VARIABLE;
use crate::exit::{self, Failure};

const PROGRAM: &str = "toolward";

pub(crate) fn run(args: CompletionsArgs) -> Result<u8, Failure> {
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let Some(shell) = shells.completer(&name) else {
        return Err(Failure::usage(format!("error: {name} is not supported")));
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(exit::OK)
}
