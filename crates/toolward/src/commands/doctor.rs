//! `toolward doctor`: which servers of MCP clients are not protected or do not work, and how to fix it.

mod agents;
mod json;
mod text;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use toolward_config::Options;
use toolward_config::config::{Connect, LoginOf};

use self::agents::{AgentReport, agent_reports};
use crate::cli::DoctorArgs;
use crate::clients::activity::{AgentActivity, activity};
use crate::clients::client_limits::{Exceeded, exceeded};
use crate::clients::gateway_file::GatewayFile;
use crate::clients::journal::Journal;
use crate::clients::launch::Launch;
use crate::clients::probe::{self, NotListed};
use crate::clients::second_doors::{SecondDoor, second_doors};
use crate::clients::state::{EntryState, State, states};
use crate::clients::survey::{Wanted, survey};
use crate::clients::table::CLIENTS;
use crate::commands::init::{check_clients, config_path, home_path, machine, shown};
use crate::exit::{self, Failure};
use crate::load::Input;
use crate::reads::Reads;

/// How long a server may take to start and list its tools. The gateway itself gives up earlier, with a reason.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// All findings.
struct Report {
    entries: Vec<EntryReport>,
    doors: Vec<SecondDoor>,
    limits: Vec<Exceeded>,
    agents: Vec<AgentReport>,
    /// The errors in the gateway's configuration.
    config: Option<String>,
    /// No server was started.
    is_offline: bool,
}

/// One entry, with the result of starting it.
struct EntryReport {
    found: EntryState,
    start: Start,
    /// When its client last used it, as written in the audit log.
    last_used: Option<String>,
    /// The name of the entry that this one overrides, which is wrapped.
    overrides: bool,
    /// The command that logs in, if a login is missing.
    login: Option<String>,
}

enum Start {
    /// It was not started: it is not wrapped, or disabled, or `--offline` was given.
    No,
    /// Only its client can start it, for this reason.
    OnlyByClient(String),
    Listed(Vec<Value>),
    Failed(String),
    /// A person has to log in first, to this server of the configuration.
    NeedsLogin(String),
}

impl EntryReport {
    fn is_fine(&self) -> bool {
        matches!(self.found.state, State::Wrapped | State::Drifted)
            && !matches!(self.start, Start::Failed(_) | Start::NeedsLogin(_))
    }

    /// The command that logs in, if a login is missing.
    fn login_command(&self, input: Option<&Input>) -> Option<String> {
        let Start::NeedsLogin(server) = &self.start else { return None };
        let agent = self.found.wrapped.as_ref().and_then(|wrapped| wrapped.agent.clone());
        let servers = input.into_iter().flat_map(|input| &input.loaded.config.servers);
        let is_personal = servers.filter(|one| one.name == *server).any(|one| {
            matches!(&one.connect, Connect::Http { login: Some(login), .. } if login.of == LoginOf::Agent)
        });
        Some(match agent.filter(|_| is_personal) {
            Some(agent) => format!("toolward login {server} --as {agent}"),
            None => format!("toolward login {server}"),
        })
    }
}

impl Report {
    fn is_fine(&self) -> bool {
        self.entries.iter().all(EntryReport::is_fine)
            && self.doors.is_empty()
            && self.config.is_none()
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    check_clients(&args.client)?;
    // Clients use the files of the project that they are opened in.
    let here = std::env::current_dir().ok();
    let machine = machine(args.project.as_deref().or(here.as_deref()))?;
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
    let found = states(&files, gateway.as_ref(), &journal, &machine);
    let input = gateway.as_ref().and_then(|_| input(&path));
    let activity = match &input {
        Some(input) => activity(&input.loaded.config.audit.dir)?,
        None => BTreeMap::new(),
    };
    let starts = start(&found, args.offline)?;
    let mut entries = entry_reports(found, starts, &activity);
    for entry in &mut entries {
        entry.login = entry.login_command(input.as_ref());
    }
    let report = Report {
        limits: limits(&entries),
        agents: agent_reports(&entries, &activity, input.as_ref(), gateway.as_ref()),
        entries,
        doors: second_doors(&machine, &args.client),
        config,
        is_offline: args.offline,
    };
    let mut out = anstream::stdout().lock();
    match args.output.json {
        true => writeln!(out, "{:#}", json::to_json(&report))?,
        false => text::show(&mut out, &report, &machine)?,
    }
    Ok(if report.is_fine() { exit::OK } else { exit::NO })
}

/// The policy of the gateway's configuration.
fn input(config: &Path) -> Option<Input> {
    let options = Options { main: Some(config.into()), ..Options::default() };
    Input::from(&options, Vec::new(), &Reads::default()).ok()
}

/// Starts the wrapped entries as their clients do.
fn start(found: &[EntryState], is_offline: bool) -> Result<Vec<Start>, Failure> {
    let launch = |entry: &EntryState| -> Option<Result<Launch, String>> {
        let is_working = matches!(entry.state, State::Wrapped | State::Drifted) && !is_offline;
        let wrapped = entry.wrapped.as_ref().filter(|one| is_working && !one.is_disabled)?;
        Some(wrapped.launch.clone())
    };
    let planned: Vec<_> = found.iter().map(launch).collect();
    let launches: Vec<Launch> = planned.iter().flatten().flatten().cloned().collect();
    let total = launches.len();
    let is_watched = std::io::stderr().is_terminal() && total > 0;
    let progress = |done: usize| {
        if is_watched {
            let _ = write!(std::io::stderr(), "\rstarting servers: {done} of {total}");
        }
    };
    progress(0);
    let mut listings = probe::all(&launches, START_TIMEOUT, &progress).into_iter();
    if is_watched {
        write!(std::io::stderr(), "\r\x1b[K")?;
    }
    let result = |planned: Option<Result<Launch, String>>| match planned {
        None => Start::No,
        Some(Err(why)) => Start::OnlyByClient(why),
        Some(Ok(_)) => match listings.next() {
            Some(Ok(tools)) => Start::Listed(tools),
            Some(Err(NotListed::Failed(why))) => Start::Failed(why),
            Some(Err(NotListed::NeedsLogin(server))) => Start::NeedsLogin(server),
            None => Start::No,
        },
    };
    Ok(planned.into_iter().map(result).collect())
}

fn entry_reports(
    found: Vec<EntryState>,
    starts: Vec<Start>,
    activity: &BTreeMap<String, AgentActivity>,
) -> Vec<EntryReport> {
    let wrapped: Vec<(&str, Option<String>)> = found
        .iter()
        .filter(|one| one.wrapped.is_some())
        .map(|one| (one.client.id, one.name.clone()))
        .collect();
    let overrides: Vec<bool> = found
        .iter()
        .map(|one| one.wrapped.is_none() && wrapped.contains(&(one.client.id, one.name.clone())))
        .collect();
    let reports = found.into_iter().zip(starts).zip(overrides);
    reports
        .map(|((found, start), overrides)| {
            let used = found.wrapped.as_ref().and_then(|wrapped| {
                activity.get(wrapped.agent.as_ref()?)?.servers.get(wrapped.server.as_ref()?)
            });
            let last_used = used.cloned();
            EntryReport { found, start, last_used, overrides, login: None }
        })
        .collect()
}

/// The limits of clients that their servers exceed. Servers of the same name in several files count once.
fn limits(entries: &[EntryReport]) -> Vec<Exceeded> {
    let mut exceeding = Vec::new();
    for client in CLIENTS {
        let mut servers: Vec<(&str, Vec<&str>)> = Vec::new();
        for entry in entries.iter().filter(|entry| entry.found.client.id == client.id) {
            let (Start::Listed(tools), Some(name)) = (&entry.start, &entry.found.name) else {
                continue;
            };
            if !servers.iter().any(|(known, _)| known == name) {
                let tools = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
                servers.push((name, tools));
            }
        }
        exceeding.extend(exceeded(client, &servers));
    }
    exceeding
}
