//! `toolward tools save`: tool lists of servers as files, for `--tools`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use serde_json::Value;
use toolward_config::sanitize;
use toolward_config::suggest;
use toolward_gateway::upstream::{Definition, Inherit, Launch, Listed, Reach, Timeouts};

use crate::cli::{ToolsArgs, ToolsCommand, ToolsCommandArgs, ToolsSaveArgs};
use crate::commands::wrap::name::of_command;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::load::Input;
use crate::prepared::definitions;
use crate::render::count;

/// The maximum size of a list.
const MAX_LIST_BYTES: usize = 64 << 20;

pub(crate) fn run(args: ToolsCommandArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    match args.command {
        ToolsCommand::Save(args) => save(&args, matches),
    }
}

fn save(args: &ToolsSaveArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let servers = match args.command.is_empty() {
        true => configured(args, matches)?,
        false => vec![of_command_line(args)],
    };
    if servers.len() > 1 && !args.output.is_dir() {
        let count = servers.len();
        return Err(Failure::usage(format!(
            "error: there are {count} servers, and `--output` is not a directory\n  help: name a \
             server, or an existing directory"
        )));
    }
    let mut failed = false;
    for (server, listed) in fetch_tools::lists(servers, Duration::from_secs(args.timeout), true)? {
        match listed {
            Ok(listed) => write(args, &server, &listed)?,
            Err(why) => {
                failed = true;
                let (server, why) = (sanitize(&server), why.to_string());
                writeln!(
                    anstream::stderr(),
                    "error: the tools of {server} are not known: {}",
                    sanitize(&why)
                )?;
            }
        }
    }
    Ok(if failed { exit::NO } else { exit::OK })
}

/// The servers of the configuration, or the one that is named.
fn configured(
    args: &ToolsSaveArgs,
    matches: Option<&ArgMatches>,
) -> Result<Vec<Definition>, Failure> {
    let mut input = Input::load(&args.policy, &ToolsArgs { lists: Vec::new() }, matches)?;
    let config = &mut input.loaded.config;
    if let Some(name) = &args.server {
        let names: Vec<&str> = config.servers.iter().map(|server| server.name.as_str()).collect();
        if !names.contains(&name.as_str()) {
            let near = suggest::nearest(name, names.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "to run a command, write it after `--`".into(),
            };
            let name = sanitize(name);
            return Err(Failure::usage(format!("error: no server `{name}`\n  help: {help}")));
        }
        // The others need no secrets now.
        config.servers.retain(|server| server.name == *name);
    }
    if config.servers.is_empty() {
        let help = "give a configuration with -c, or a command after `--`";
        return Err(Failure::usage(format!("error: there are no servers\n  help: {help}")));
    }
    config.builtin = false;
    definitions(config, &toolward_config::Disk)
}

/// The server that the command line starts, with the whole environment as `wrap` does.
fn of_command_line(args: &ToolsSaveArgs) -> Definition {
    let name = args.name.clone().unwrap_or_else(|| of_command(&args.command));
    let launch = Launch {
        name: name.clone(),
        program: args.command.first().cloned().unwrap_or_default(),
        file: None,
        arguments: args.command.get(1..).unwrap_or_default().to_vec(),
        environment: Vec::new(),
        inherit: Inherit::Everything,
        folder: None,
    };
    Definition {
        name: name.into(),
        reach: Reach::Child(launch.resolved()),
        timeouts: Timeouts::default(),
        share: false,
        max_children: 8,
        eager: false,
        answer_bytes: MAX_LIST_BYTES,
        cache: false,
        results: Default::default(),
        schemes: Vec::new(),
        roots: None,
    }
}

fn write(args: &ToolsSaveArgs, server: &str, listed: &Listed) -> Result<(), Failure> {
    let text = list(server, listed);
    if args.output == Path::new("-") {
        writeln!(anstream::stdout(), "{}", text.trim_end())?;
        return Ok(());
    }
    let file: PathBuf = match args.output.is_dir() {
        true => args.output.join(format!("{server}.json")),
        false => args.output.clone(),
    };
    let shown = file.display().to_string();
    std::fs::write(&file, text)
        .map_err(|error| Failure::usage(format!("error: {}: {error}", sanitize(&shown))))?;
    let tools = count(listed.catalogue.tools().tools().len(), "tool");
    writeln!(anstream::stdout(), "{}: {tools} of {}", sanitize(&shown), sanitize(server))?;
    Ok(())
}

/// One tool per line, each entry as the server sent it.
fn list(server: &str, listed: &Listed) -> String {
    let mut text = format!("{{\"server\": {}, \"tools\": [", Value::from(server));
    for (at, entry) in listed.catalogue.entries().iter().enumerate() {
        text.push_str(if at == 0 { "\n  " } else { ",\n  " });
        text.push_str(&entry.raw().to_json().to_string());
    }
    text.push_str("\n]}\n");
    text
}
