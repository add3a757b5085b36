//! Reviews of changed definitions: what servers offer beside what was approved, for `toolward lock`, `changes` and `accept`
//! and for the admin UI.

pub(crate) mod accept;
pub(crate) mod word_diff;

use std::path::Path;
use std::time::Duration;

use toolward_config::{Disk, sanitize, suggest};
use toolward_gateway::guard::pins::lock_file::{LockFile, LockedServer};
use toolward_gateway::guard::pins::{Approved, Mode, ServerSetup};
use toolward_gateway::upstream::{Definition, Unavailable};

use crate::exit::Failure;
use crate::load::Input;
use crate::pins::survey::{Survey, survey};
use crate::pins::{self, PinFiles};
use crate::prepared::definitions;

/// A configuration with its pins.
pub(crate) struct Pinned {
    pub(crate) places: PinFiles,
    pub(crate) setup: Vec<ServerSetup>,
    pub(crate) approved: Approved,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) timeout: Duration,
}

impl Pinned {
    /// The pins of a loaded configuration. `servers` are those that are looked at; none: all.
    pub(crate) fn of(
        mut input: Input,
        (servers, timeout): (&[String], Duration),
    ) -> Result<Pinned, Failure> {
        let Some(places) = PinFiles::of(&input.loaded) else {
            let help = "give a configuration with -c";
            return Err(Failure::usage(format!(
                "error: there is no configuration\n  help: {help}"
            )));
        };
        let pins = pins::setup(&input.loaded, &input.reads, false);
        let config = &mut input.loaded.config;
        for name in servers {
            let names = config.servers.iter().map(|server| server.name.as_str());
            if !names.clone().any(|known| known == name) {
                let help = match suggest::nearest(name, names) {
                    Some(near) => format!("did you mean `{}`?", sanitize(near)),
                    None => "servers are defined under `servers`".into(),
                };
                let name = sanitize(name);
                return Err(Failure::usage(format!("error: no server `{name}`\n  help: {help}")));
            }
        }
        // The others need no secrets now.
        config.servers.retain(|server| servers.is_empty() || servers.contains(&server.name));
        config.builtin = false;
        let definitions = definitions(config, &Disk)?;
        Ok(Pinned { places, setup: pins.servers, approved: pins.approved, definitions, timeout })
    }

    /// The approved definitions, and the file that they are in. `None` if nothing is approved.
    pub(crate) fn approved(&self) -> Result<Option<(LockFile, &Path)>, Failure> {
        match &self.approved {
            Approved::Locked { file, .. } => Ok(Some((file.clone(), &self.places.lock))),
            Approved::Refused(why) => Err(Failure::invalid(format!("error: {}", sanitize(why)))),
            Approved::FirstUse(None) => Ok(None),
            Approved::FirstUse(Some(path)) => match std::fs::read(path) {
                Ok(bytes) => match LockFile::parse(&bytes) {
                    Ok(file) => Ok(Some((file, path))),
                    Err(error) => {
                        let (path, error) = (path.display().to_string(), error.to_string());
                        let (path, error) = (sanitize(&path), sanitize(&error));
                        Err(Failure::invalid(format!("error: {path}: {error}")))
                    }
                },
                Err(_) => Ok(None),
            },
        }
    }

    pub(crate) fn setup(&self, server: &str) -> Option<&ServerSetup> {
        self.setup.iter().find(|setup| setup.name == server)
    }

    /// The mode of a server. Without pins, changes are only reported.
    pub(crate) fn mode(&self, server: &str) -> Mode {
        self.setup(server).map(|setup| setup.mode).unwrap_or_default()
    }

    pub(crate) fn look(&self, server: &Definition) -> Result<Result<Survey, Unavailable>, Failure> {
        survey(server, self.timeout)
    }

    /// The current definitions of a server.
    pub(crate) fn offered(&self, server: &str, survey: &Survey) -> LockedServer {
        let setup = self.setup(server);
        let identity = setup.map(|setup| setup.identity.clone()).unwrap_or_default();
        survey.offered(identity, setup.map_or(&[], |setup| &setup.ignore))
    }
}

/// The message for a server that cannot be looked at.
pub(crate) fn not_known(server: &str, why: &Unavailable) -> String {
    let (server, why) = (sanitize(server).into_owned(), why.to_string());
    format!("the definitions of {server} are not known: {}", sanitize(&why))
}

/// The failure of writing a lock file.
pub(crate) fn not_written(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    let (path, why) = (path.display().to_string(), why.to_string());
    Failure::invalid(format!("error: {}: {}", sanitize(&path), sanitize(&why)))
}
