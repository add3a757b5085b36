//! Pins: a definition of a tool, prompt or resource template is approved once, and a changed one waits for a person.
//!
//! Definitions are compared where a server's list becomes a view, so that listings, calls, searches and meta tools all
//! use the result, and a call of a known tool costs nothing. A widening change quarantines the entry: it is hidden, and
//! calls of it are refused like calls of a name that does not exist. After any other change, agents are shown the
//! approved definition until somebody accepts the new one.
//!
//! | module | contains |
//! |---|---|
//! | [`canonical`] | canonical JSON, digests, JSON Pointers |
//! | [`definition`] | a definition and its digests |
//! | [`change`] | a change and its class |
//! | [`classify`] | the class of each change |
//! | `schema`, `prose` | changes of schemas and texts |
//! | [`lock_file`] | approved definitions as a file |
//! | `first_use` | approved definitions of the first use, in the state directory |
//! | `reports` | log entries and audit records about changes |
//! | [`screen`] | a list after its definitions were compared |

pub mod canonical;
pub mod change;
pub mod classify;
pub mod definition;
pub(crate) mod first_use;
pub mod lock_file;
mod prose;
mod reports;
mod schema;
pub mod screen;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use hashbrown::{HashMap, HashSet};
use serde_json::Value;
use toolward_wire::list::ListKind;

use self::canonical::{Digest, Pointer};
use self::first_use::FirstUse;
use self::lock_file::{LockError, LockFile, LockedList, PINNED_KINDS};
use self::screen::{ChangedEntry, Screened};
use crate::audit::facts::Facts;
use crate::client::ServerId;
use crate::lock::LockUnpoisoned;
use crate::upstream::catalogue::Catalogue;
use crate::upstream::{Server, Unavailable};

pub use self::first_use::write as write_file;

/// Lists whose comparison is cached. More than these are only known if servers change their lists all the time.
const MAX_CACHED: usize = 256;

/// The treatment when a definition is not the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Off,
    /// Changes are reported.
    Warn,
    /// Widening changes are quarantined; after others, agents are shown the approved definition.
    Classify,
    /// Every change is quarantined.
    Strict,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Warn => "warn",
            Mode::Classify => "classify",
            Mode::Strict => "strict",
        }
    }
}

/// The pins of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    pub servers: Vec<ServerSetup>,
    pub approved: Approved,
}

/// The pins of one server.
#[derive(Debug, Clone)]
pub struct ServerSetup {
    pub name: String,
    pub mode: Mode,
    /// Parts of definitions that may differ.
    pub ignore: Vec<Pointer>,
    /// Its command line or URL, without secrets.
    pub identity: Value,
}

/// Where approved definitions come from.
#[derive(Debug, Clone)]
pub enum Approved {
    /// The lock file. `is_new`: the gateway has not used it in this form before.
    Locked { file: LockFile, is_new: bool },
    /// The first list of each server. The file keeps them across restarts.
    FirstUse(Option<PathBuf>),
    /// The lock file cannot be used; the text names the repair.
    Refused(String),
}

impl Default for Approved {
    fn default() -> Approved {
        Approved::FirstUse(None)
    }
}

/// The approved definitions, and the lists that were compared with them.
#[derive(Default)]
pub struct Pins {
    servers: HashMap<Box<str>, ServerSetup>,
    source: Source,
    state: Mutex<State>,
    /// There are reports to record.
    has_reports: AtomicBool,
    /// The changes that were reported, also by earlier configurations.
    reported: Arc<Mutex<HashSet<Digest>>>,
}

enum Source {
    Locked { lists: HashMap<(Box<str>, ListKind), Arc<LockedList>>, file: LockFile },
    FirstUse(FirstUse),
    Refused(String),
}

impl Default for Source {
    fn default() -> Source {
        Source::FirstUse(FirstUse::in_file(None))
    }
}

#[derive(Default)]
struct State {
    screened: HashMap<(ServerId, ListKind, [u8; 32]), Arc<Screened>>,
    latest: HashMap<(Box<str>, ListKind), Arc<Screened>>,
    /// Servers whose instructions are not the approved ones.
    instructions: HashMap<Box<str>, (Option<String>, Option<String>)>,
    reports: Vec<(&'static str, Facts)>,
}

impl Pins {
    /// The pins of a configuration, which may replace others.
    pub fn new(setup: Setup, before: Option<&Pins>) -> Pins {
        let servers = setup.servers.into_iter().filter(|server| server.mode != Mode::Off);
        let servers: HashMap<Box<str>, ServerSetup> =
            servers.map(|server| (server.name.as_str().into(), server)).collect();
        let mut loaded = false;
        let source = match setup.approved {
            Approved::Locked { file, is_new } => {
                loaded = is_new;
                Source::locked(file)
            }
            Approved::FirstUse(path) => {
                let used = if servers.is_empty() { None } else { path };
                Source::FirstUse(FirstUse::in_file(used.as_deref()))
            }
            Approved::Refused(why) => Source::Refused(why),
        };
        let reported = before.map(|before| before.reported.clone()).unwrap_or_default();
        let pins = Pins { servers, source, reported, ..Pins::default() };
        let approved = before.map(|before| pins.approved_since(before)).unwrap_or_default();
        if !pins.servers.is_empty() && (loaded || !approved.is_empty()) {
            pins.report_approved(&approved);
        }
        pins
    }

    /// The approved definitions, if they are known.
    fn file(&self) -> Option<LockFile> {
        match &self.source {
            Source::Locked { file, .. } => Some(file.clone()),
            Source::FirstUse(first_use) => first_use.file(),
            Source::Refused(_) => None,
        }
    }

    /// The entries whose approved definitions differ from those before.
    fn approved_since(&self, before: &Pins) -> Vec<String> {
        let (Some(before), Some(now)) = (before.file(), self.file()) else { return Vec::new() };
        let mut approved = Vec::new();
        for (name, server) in &now.servers {
            let old = before.servers.get(name);
            for kind in PINNED_KINDS {
                let old = old.and_then(|old| old.list(kind));
                for (entry, forms) in server.list(kind).into_iter().flatten() {
                    if old.and_then(|old| old.get(entry)) != Some(forms) {
                        approved.push(format!("{name}/{entry}"));
                    }
                }
            }
            if old.is_some_and(|old| old.instructions != server.instructions) {
                approved.push(format!("{name} (instructions)"));
            }
        }
        approved
    }

    /// The mode of a server.
    pub fn mode(&self, server: &str) -> Mode {
        self.servers.get(server).map_or(Mode::Off, |server| server.mode)
    }

    /// Compares a server's list with the approved definitions. `None` if its entries are not pinned.
    pub(crate) fn screen(
        &self,
        server: &Server,
        catalogue: &Arc<Catalogue>,
    ) -> Result<Option<Arc<Screened>>, Unavailable> {
        let kind = catalogue.kind();
        let Some(setup) = self.servers.get(server.name()) else { return Ok(None) };
        if !PINNED_KINDS.contains(&kind) {
            return match &self.source {
                Source::Refused(why) => Err(Unavailable::Unpinned(why.clone())),
                _ => Ok(None),
            };
        }
        let key = (server.id, kind, *catalogue.hash());
        if let Some(known) = self.state.locked().screened.get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(approved) = self.approved(setup, catalogue)? else { return Ok(None) };
        let names = self.tool_names();
        let screened = screen::screen((setup.mode, &setup.ignore), catalogue, &approved, &names);
        let screened = Arc::new(screened);
        let mut state = self.state.locked();
        if state.screened.len() >= MAX_CACHED {
            state.screened.clear();
        }
        state.screened.insert(key, screened.clone());
        if catalogue.is_stored() {
            return Ok(Some(screened));
        }
        state.latest.insert((server.name().into(), kind), screened.clone());
        for changed in &screened.changed {
            self.report(&mut state, setup, changed);
        }
        Ok(Some(screened))
    }

    /// The approved definitions of a list. `None`: a list from the store is shown before any use.
    fn approved(
        &self,
        setup: &ServerSetup,
        catalogue: &Catalogue,
    ) -> Result<Option<Arc<LockedList>>, Unavailable> {
        let (name, kind) = (setup.name.as_str(), catalogue.kind());
        match &self.source {
            Source::Locked { lists, .. } => {
                let list = lists.get(&(name.into(), kind));
                Ok(Some(list.cloned().unwrap_or_default()))
            }
            Source::FirstUse(first_use) if catalogue.is_stored() => {
                Ok(first_use.known_list(name, kind))
            }
            Source::FirstUse(first_use) => {
                let list = first_use.list((name, &setup.identity), catalogue);
                list.map(Some).map_err(|error| unreadable(first_use, &error))
            }
            Source::Refused(why) => Err(Unavailable::Unpinned(why.clone())),
        }
    }

    /// The instructions of a server that agents may see, given the current ones.
    pub(crate) fn instructions<'t>(
        &self,
        server: &str,
        current: Option<&'t str>,
    ) -> Option<Cow<'t, str>> {
        let current_text = current.map(Cow::Borrowed);
        let Some(setup) = self.servers.get(server) else { return current_text };
        let approved = match &self.source {
            Source::Locked { file, .. } => {
                file.servers.get(server).and_then(|known| known.instructions.clone().flatten())
            }
            Source::FirstUse(first_use) => {
                first_use.instructions((server, &setup.identity), current).ok()?
            }
            Source::Refused(_) => return None,
        };
        if approved.as_deref() == current {
            self.state.locked().instructions.remove(server);
            return current_text;
        }
        let mut state = self.state.locked();
        let changed = (approved.clone(), current.map(String::from));
        if state.instructions.insert(server.into(), changed.clone()) != Some(changed) {
            self.report_instructions(&mut state, setup, (approved.as_deref(), current));
        }
        match setup.mode {
            Mode::Warn => current_text,
            _ => approved.map(Cow::Owned),
        }
    }

    /// The latest lists of a server that differ from the approved definitions.
    pub fn changed(&self, server: &str) -> Vec<Arc<Screened>> {
        let state = self.state.locked();
        let kinds = PINNED_KINDS.into_iter();
        let lists = kinds.filter_map(|kind| state.latest.get(&(server.into(), kind)).cloned());
        lists.filter(|list| !list.changed.is_empty()).collect()
    }

    /// The approved and the current instructions of a server, if they differ.
    pub fn changed_instructions(&self, server: &str) -> Option<(Option<String>, Option<String>)> {
        self.state.locked().instructions.get(server).cloned()
    }

    /// Why the pins cannot be used, and with which repair.
    pub fn refusal(&self) -> Option<&str> {
        match &self.source {
            Source::Refused(why) if !self.servers.is_empty() => Some(why),
            _ => None,
        }
    }

    /// The quarantined entry of this name, as the latest list has it.
    pub fn quarantined(&self, server: &str, kind: ListKind, name: &str) -> Option<ChangedEntry> {
        if self.servers.is_empty() {
            return None;
        }
        let state = self.state.locked();
        let list = state.latest.get(&(server.into(), kind))?;
        list.quarantined().find(|one| *one.name == *name).cloned()
    }

    /// The entries of a list that agents would not see, whatever the policy is. Nothing is learned from the list.
    pub fn hidden(&self, server: &Server, catalogue: &Arc<Catalogue>) -> BTreeSet<Box<str>> {
        let kind = catalogue.kind();
        let Some(setup) = self.servers.get(server.name()) else { return BTreeSet::new() };
        let key = (server.id, kind, *catalogue.hash());
        let known = self.state.locked().screened.get(&key).cloned();
        let approved = || match &self.source {
            Source::Locked { .. } => self.approved(setup, catalogue).ok().flatten(),
            Source::FirstUse(first_use) => first_use.known_list(server.name(), kind),
            Source::Refused(_) => None,
        };
        let screened = match (&self.source, known) {
            (Source::Refused(_), _) => {
                return catalogue.entries().iter().map(|entry| entry.name().into()).collect();
            }
            _ if !PINNED_KINDS.contains(&kind) => None,
            (_, Some(known)) => Some(known),
            _ => approved().map(|approved| {
                let names = self.tool_names();
                let how = (setup.mode, &*setup.ignore);
                Arc::new(screen::screen(how, catalogue, &approved, &names))
            }),
        };
        let screened = screened.iter().flat_map(|screened| screened.quarantined());
        screened.map(|entry| entry.name.clone()).collect()
    }

    fn tool_names(&self) -> Vec<String> {
        match &self.source {
            Source::Locked { lists, .. } => {
                let tools = lists.iter().filter(|((_, kind), _)| *kind == ListKind::Tools);
                tools.flat_map(|(_, list)| list.keys().cloned()).collect()
            }
            Source::FirstUse(first_use) => first_use.tool_names(),
            Source::Refused(_) => Vec::new(),
        }
    }
}

impl Source {
    fn locked(file: LockFile) -> Source {
        let mut lists = HashMap::new();
        for (name, server) in &file.servers {
            for kind in PINNED_KINDS {
                if let Some(list) = server.list(kind) {
                    lists.insert((name.as_str().into(), kind), Arc::new(list.clone()));
                }
            }
        }
        Source::Locked { lists, file }
    }
}

fn unreadable(first_use: &FirstUse, error: &LockError) -> Unavailable {
    let path = first_use.path().map(|path| path.display().to_string()).unwrap_or_default();
    Unavailable::Unpinned(format!(
        "{path}: {error}; approve its definitions with `toolward lock`, or remove the file to trust them as they are"
    ))
}
