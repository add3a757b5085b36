//! `toolward man`: manual pages.

use std::io::Write;

use clap::CommandFactory;
use clap_mangen::Man;
use toolward_config::{sanitize, suggest};

use crate::cli::{Cli, ManArgs};
use crate::exit::{self, Failure};

pub(crate) fn run(args: &ManArgs) -> Result<u8, Failure> {
    let mut command = Cli::command();
    if let Some(directory) = &args.dir {
        std::fs::create_dir_all(directory)?;
        clap_mangen::generate_to(command, directory)?;
        return Ok(exit::OK);
    }
    command.build();
    let mut page = &command;
    for word in &args.command {
        page = page.find_subcommand(word).ok_or_else(|| {
            let names = page.get_subcommands().map(clap::Command::get_name);
            let help = match suggest::nearest(word, names) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => "`toolward --help` lists the commands".into(),
            };
            let word = sanitize(word);
            Failure::usage(format!("error: no command is called `{word}`\n  help: {help}"))
        })?;
    }
    let mut text = Vec::new();
    Man::new(page.clone()).render(&mut text)?;
    std::io::stdout().write_all(&text)?;
    Ok(exit::OK)
}
