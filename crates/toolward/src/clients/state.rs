//! The state of each entry of the clients' files, for `doctor`.

use std::path::{Path, PathBuf};

use crate::clients::entry::Entry;
use crate::clients::gateway_file::GatewayFile;
use crate::clients::journal::Journal;
use crate::clients::launch::{Launch, Surroundings};
use crate::clients::locate::Machine;
use crate::clients::survey::{ClientFile, FoundEntry};
use crate::clients::table::Client;
use crate::clients::wrapping::WrappedServer;

/// One entry, or a file whose entries are not known.
#[derive(Debug)]
pub(crate) struct EntryState {
    pub(crate) client: &'static Client,
    pub(crate) file: PathBuf,
    pub(crate) name: Option<String>,
    pub(crate) project: Option<String>,
    pub(crate) state: State,
    /// The gateway's part of a wrapped entry.
    pub(crate) wrapped: Option<WrappedEntry>,
}

/// An entry that starts Toolward.
#[derive(Debug)]
pub(crate) struct WrappedEntry {
    /// The server in the gateway's configuration.
    pub(crate) server: Option<String>,
    pub(crate) agent: Option<String>,
    /// The client does not start it.
    pub(crate) is_disabled: bool,
    /// How its client starts it, or why only the client can.
    pub(crate) launch: Result<Launch, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// The gateway is in front of it.
    Wrapped,
    /// The client reaches it without the gateway. The reason, if it cannot be wrapped.
    Direct(Option<String>),
    /// `init` wrapped it, and another program, usually the client, wrote the old entry again.
    Reverted,
    /// It is wrapped, and was edited afterwards.
    Drifted,
    /// It is wrapped, and does not start, for this reason.
    Stale(String),
    /// The file cannot be read or parsed.
    Unreadable(String),
}

impl State {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            State::Wrapped => "wrapped",
            State::Direct(_) | State::Reverted => "direct",
            State::Drifted => "drifted",
            State::Stale(_) => "stale",
            State::Unreadable(_) => "unreadable",
        }
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            State::Wrapped | State::Drifted => None,
            State::Reverted => {
                Some("it was wrapped, and another program wrote the old entry again")
            }
            State::Direct(why) => why.as_deref(),
            State::Stale(why) | State::Unreadable(why) => Some(why),
        }
    }

    /// How to fix it.
    pub(crate) fn help(&self, client: &Client) -> Option<String> {
        match self {
            State::Wrapped => None,
            State::Direct(None) => Some(format!("run `toolward init --client {}`", client.id)),
            State::Reverted => Some(format!(
                "quit {}, and run `toolward init --client {}`",
                client.name, client.id
            )),
            State::Direct(Some(_)) => {
                Some("if the client need not reach it directly, change the entry by hand".into())
            }
            State::Drifted => {
                Some("it is still wrapped; `toolward uninit` will not change it".into())
            }
            State::Stale(_) => Some("run `toolward uninit`, then `toolward init`".into()),
            State::Unreadable(_) => {
                Some("repair the file; its client may not read it either".into())
            }
        }
    }
}

/// The states of all entries.
pub(crate) fn states(
    files: &[ClientFile],
    gateway: Option<&GatewayFile>,
    journal: &Journal,
    machine: &Machine,
) -> Vec<EntryState> {
    let mut states = Vec::new();
    for file in files {
        let mut add = |name, project, state, wrapped| {
            let (client, file) = (file.client, file.file.clone());
            states.push(EntryState { client, file, name, project, state, wrapped });
        };
        match &file.content {
            Err(why) => add(None, None, State::Unreadable(why.clone()), None),
            Ok((_, text)) => {
                for found in &file.entries {
                    let record = journal.record(&file.file, &found.path);
                    let is_edited =
                        record.is_some_and(|record| !text.entry_means(&found.path, &record.new));
                    let state = match state(found, gateway, is_edited) {
                        State::Direct(None) if record.is_some() => State::Reverted,
                        state => state,
                    };
                    let wrapped = wrapped(found, file.client, machine);
                    add(Some(found.name.clone()), found.project.clone(), state, wrapped);
                }
            }
        }
    }
    states
}

fn wrapped(found: &FoundEntry, client: &Client, machine: &Machine) -> Option<WrappedEntry> {
    let Entry::Wrapped { server, agent, .. } = &found.entry else { return None };
    let around = Surroundings {
        home: &machine.home,
        workspace: found.base.as_deref(),
        variable: &|name| std::env::var(name).ok(),
    };
    Some(WrappedEntry {
        server: server.clone(),
        agent: agent.clone(),
        is_disabled: found.is_disabled,
        launch: Launch::of(&found.json, client.fields, client.references, &around),
    })
}

fn state(found: &FoundEntry, gateway: Option<&GatewayFile>, is_edited: bool) -> State {
    match &found.entry {
        Entry::Wrapped { program, server, .. } => {
            let path = Path::new(program);
            if path.is_absolute() && !path.is_file() {
                return State::Stale(format!("its program {program} does not exist"));
            }
            match (server, gateway) {
                (Some(server), Some(gateway)) if !gateway.has_server(server) => {
                    let file = gateway.path.display();
                    State::Stale(format!("its server `{server}` is not in {file}"))
                }
                (Some(server), None) => State::Stale(format!(
                    "its server `{server}` is not in a configuration that can be read"
                )),
                _ if is_edited => State::Drifted,
                _ => State::Wrapped,
            }
        }
        entry => State::Direct(WrappedServer::of(entry, found.base.as_deref()).err()),
    }
}
