//! The changes of `init`: planned, shown, then applied.

use std::path::PathBuf;

use toolward_config::CONFIG_VARIABLE;
use toolward_config::hint_sets::HintSet;
use toolward_config::splice::{FileFormat, SourceText, Step};

use crate::clients::entry::Entry;
use crate::clients::gateway_file::{Change, GatewayFile};
use crate::clients::journal::{Journal, Record};
use crate::clients::locate::Machine;
use crate::clients::masked_diff;
use crate::clients::replace_file;
use crate::clients::survey::{ClientFile, FoundEntry, Wanted, survey};
use crate::clients::table::Client;
use crate::clients::wrapping::{WrappedServer, edits};

/// The request to `init`.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) wanted: Wanted,
    /// The absolute path of Toolward, which clients start.
    pub(crate) program: PathBuf,
    /// The gateway's configuration.
    pub(crate) config: PathBuf,
    /// Toolward uses it if no other is named.
    pub(crate) is_default_config: bool,
}

/// All changes, none of them made yet.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) files: Vec<FilePlan>,
    pub(crate) gateway: GatewayFile,
    journal: Journal,
    journal_file: PathBuf,
}

/// The changes to one file of a client.
#[derive(Debug)]
pub(crate) struct FilePlan {
    pub(crate) client: &'static Client,
    pub(crate) file: PathBuf,
    /// Why the file is not changed.
    pub(crate) problem: Option<String>,
    pub(crate) entries: Vec<EntryPlan>,
    format: FileFormat,
    before: Vec<u8>,
    after: Vec<u8>,
    records: Vec<Record>,
}

/// The change of one entry.
#[derive(Debug)]
pub(crate) struct EntryPlan {
    pub(crate) name: String,
    pub(crate) project: Option<String>,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// It is wrapped, as this server, with these lines changed (values are masked).
    Wrap { server: String, hints: Option<&'static HintSet>, diff: Vec<String>, login: bool },
    /// It is wrapped already.
    Wrapped,
    /// It is not changed, for this reason.
    Left(String),
}

impl FilePlan {
    pub(crate) fn changes(&self) -> usize {
        self.records.len()
    }
}

impl Plan {
    /// Plans without changing anything.
    pub(crate) fn new(machine: &Machine, request: &Request) -> Result<Plan, String> {
        let journal_file = Journal::file(&machine.home);
        let mut journal = Journal::load(&journal_file).map_err(|why| {
            format!("the journal {} cannot be read: {why}", journal_file.display())
        })?;
        let mut wanted = request.wanted.clone();
        for named in &request.wanted.paths {
            if !journal.paths.contains(named) {
                journal.paths.push(named.clone());
            }
        }
        wanted.paths = journal.paths.clone();
        let mut gateway = GatewayFile::load(&request.config, &machine.home)
            .map_err(|why| format!("{}: {why}", request.config.display()))?;
        let files = survey(machine, &wanted);
        let files = files.into_iter().map(|file| plan_file(file, request, &mut gateway)).collect();
        Ok(Plan { files, gateway, journal, journal_file })
    }

    /// How many entries are wrapped.
    pub(crate) fn changes(&self) -> usize {
        self.files.iter().map(FilePlan::changes).sum()
    }

    /// Makes the changes. The gateway's file comes first, so that no client starts a server that is not there.
    /// Files that could not be changed get a `problem`, and the others are changed nevertheless.
    pub(crate) fn apply(&mut self) -> Result<(), String> {
        let changed = self.gateway.changed()?;
        let at = self.gateway.path.display().to_string();
        for record in self.files.iter().flat_map(|file| &file.records) {
            self.journal.add(record.clone());
        }
        if let Some(Change { before, after }) = &changed {
            // A file that `init` created, and no one edited, is still its own.
            let own = self.journal.created.as_ref().filter(|(path, _)| *path == self.gateway.path);
            let is_own = match before {
                None => true,
                Some(before) => own.is_some_and(|(_, text)| text.as_bytes() == before),
            };
            if is_own {
                let text = String::from_utf8_lossy(after).into_owned();
                self.journal.created = Some((self.gateway.path.clone(), text));
            }
        }
        self.save_journal()?;
        match &changed {
            None => {}
            Some(Change { before: None, after }) => replace_file::create(&self.gateway.path, after)
                .map_err(|error| format!("{at}: {error}"))?,
            Some(Change { before: Some(before), after }) => {
                replace_file::replace(&self.gateway.path, before, after)
                    .map_err(|why| format!("{at}: {why}"))?
            }
        }
        for file in &mut self.files {
            if file.records.is_empty() {
                continue;
            }
            if let Err(why) = replace_file::replace(&file.file, &file.before, &file.after) {
                file.problem = Some(why.to_string());
                file.entries.retain(|entry| !matches!(entry.outcome, Outcome::Wrap { .. }));
                let gone = std::mem::take(&mut file.records);
                self.journal.records.retain(|record| !gone.contains(record));
            }
        }
        self.save_journal()
    }

    /// Files that another program has changed back since they were written.
    pub(crate) fn reverted(&self) -> Vec<&FilePlan> {
        let is_reverted = |file: &&FilePlan| {
            let now = std::fs::read(&file.file).ok();
            let now = now.and_then(|bytes| SourceText::decode(&bytes, file.format).ok());
            let is_there = |record: &Record| {
                now.as_ref().is_some_and(|now| now.entry_means(&record.path, &record.new))
            };
            !file.records.iter().all(is_there)
        };
        self.files.iter().filter(is_reverted).collect()
    }

    fn save_journal(&self) -> Result<(), String> {
        let failed = |error| format!("{}: {error}", self.journal_file.display());
        self.journal.save(&self.journal_file).map_err(failed)
    }
}

fn plan_file(file: ClientFile, request: &Request, gateway: &mut GatewayFile) -> FilePlan {
    let ClientFile { client, file, format, content, entries } = file;
    let is_direct =
        |found: &FoundEntry| matches!(found.entry, Entry::Program(_) | Entry::Remote(_));
    let writable = match entries.iter().any(is_direct) {
        true => replace_file::check_writable(&file).map_err(|why| why.to_string()),
        false => Ok(()),
    };
    let (before, source, problem) = match content.and_then(|content| writable.map(|()| content)) {
        Ok((bytes, text)) => (bytes, Some(text), None),
        Err(why) => (Vec::new(), None, Some(why)),
    };
    let mut plan = FilePlan {
        client,
        format,
        after: before.clone(),
        before,
        file,
        problem,
        entries: Vec::new(),
        records: Vec::new(),
    };
    let Some(mut text) = source else { return plan };
    for found in entries {
        let outcome = match plan_entry(&found, client, &text, request, gateway) {
            Ok(None) => Outcome::Wrapped,
            Ok(Some((server, (hints, login), edited))) => {
                let ((old, at), (new, at_new)) =
                    (text.narrowed(&found.path), edited.narrowed(&found.path));
                let diff = masked_diff::lines(
                    &masked_diff::masked(&old, at),
                    &masked_diff::masked(&new, at_new),
                );
                match (old.entry(at).map(String::from), new.entry(at_new).map(String::from)) {
                    (Some(old), Some(new)) => plan.records.push(Record {
                        client: client.id.into(),
                        file: plan.file.clone(),
                        path: found.path.clone(),
                        server: server.clone(),
                        old,
                        new,
                    }),
                    _ => continue,
                }
                text = edited;
                Outcome::Wrap { server, hints, diff, login }
            }
            Err(why) => Outcome::Left(why),
        };
        plan.entries.push(EntryPlan { name: found.name, project: found.project, outcome });
    }
    plan.after = text.encode();
    plan
}

/// The server, the hints that are proposed for it and whether it needs a login, and the file with the entry wrapped.
type WrappedText = (String, (Option<&'static HintSet>, bool), SourceText);

/// The change of one entry; `None` if it is wrapped already.
fn plan_entry(
    found: &FoundEntry,
    client: &Client,
    text: &SourceText,
    request: &Request,
    gateway: &mut GatewayFile,
) -> Result<Option<WrappedText>, String> {
    if let Entry::Wrapped { .. } = found.entry {
        return Ok(None);
    }
    let mut server = WrappedServer::of(&found.entry, found.base.as_deref())?;
    let (words, variable) = start_words(request);
    server.variables.extend(variable);
    let name = gateway.server_name(&found.name, &server.definition);
    let mut args = words;
    if gateway.has_agents() {
        args.extend(["--agent".into(), client.id.into()]);
    }
    args.extend(["--server".into(), name.clone()]);
    let program = request.program.to_string_lossy();
    let edits = edits(&found.json, client.fields, (&program, &args), &server);
    let edited = text.edit(&found.path, &edits).map_err(|why| why.to_string())?;
    gateway.add(&name, &server.definition, client.id);
    Ok(Some((name, (server.hints, server.needs_login()), edited)))
}

/// The arguments that start Toolward. The configuration is named only if it is not the one that `stdio --server` uses
/// by default. Some clients split arguments at spaces: a path with one goes into the environment.
fn start_words(request: &Request) -> (Vec<String>, Option<(String, String)>) {
    let config = request.config.to_string_lossy().into_owned();
    match (request.is_default_config, config.contains(char::is_whitespace)) {
        (true, _) => (vec!["stdio".into()], None),
        (_, true) => (vec!["stdio".into()], Some((CONFIG_VARIABLE.into(), config))),
        (_, false) => (vec!["stdio".into(), "--config".into(), config], None),
    }
}

/// The name of an entry for people: `server`, or `server (project)`.
pub(crate) fn label(name: &str, project: Option<&str>) -> String {
    match project {
        Some(project) => format!("{name} ({project})"),
        None => name.into(),
    }
}

/// The last key of a path: the server's name in the client's file.
pub(crate) fn entry_name(path: &[Step]) -> String {
    let names = path.iter().rev().map(|(Step::Key(name) | Step::Named(name))| name.as_str());
    names.into_iter().find(|name| *name != "transport").unwrap_or_default().into()
}
