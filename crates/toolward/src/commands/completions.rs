//! `toolward completions`: shell completion scripts.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::{self, Failure};

pub(crate) fn run(args: CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "toolward", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(exit::OK)
}
