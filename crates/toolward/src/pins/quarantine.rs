//! The tools that a gateway with this configuration would quarantine, for commands that evaluate the policy themselves.

use toolward_config::{Files, LoadedConfig};
use toolward_gateway::guard::pins::Approved;
use toolward_gateway::guard::pins::change::Class;
use toolward_gateway::guard::pins::classify::worst;
use toolward_gateway::guard::pins::definition::Definition;
use toolward_gateway::guard::pins::lock_file::LockFile;
use toolward_gateway::guard::pins::screen::{Outcome, compare};
use toolward_gateway::guard::pins::{Mode, ServerSetup};
use toolward_policy::Tool;
use toolward_wire::list::{Entry, ListKind};

use super::setup;

/// The approved definitions of a configuration.
pub(crate) struct Quarantine {
    servers: Vec<ServerSetup>,
    approved: Result<Option<LockFile>, String>,
}

impl Quarantine {
    pub(crate) fn new(loaded: &LoadedConfig, files: &impl Files) -> Quarantine {
        let setup = setup(loaded, files, false);
        let approved = match setup.approved {
            Approved::Locked { file, .. } => Ok(Some(file)),
            Approved::Refused(why) => Err(why),
            Approved::FirstUse(path) => {
                let read = path.and_then(|path| std::fs::read(path).ok());
                let parsed = read.map(|bytes| LockFile::parse(&bytes)).transpose();
                parsed.map_err(|error| error.to_string())
            }
        };
        Quarantine { servers: setup.servers, approved }
    }

    /// Why agents cannot use a tool, regardless of the policy.
    pub(crate) fn of(&self, server: &str, tool: &Tool) -> Option<String> {
        let setup = self.servers.iter().find(|setup| setup.name == server)?;
        if setup.mode == Mode::Off {
            return None;
        }
        let approved = match &self.approved {
            Ok(Some(file)) => file,
            // Nothing was used yet: the first use is trusted.
            Ok(None) => return None,
            Err(why) => return Some(why.clone()),
        };
        let entry = Entry::parse(tool.definition().as_bytes().to_vec().into(), ListKind::Tools);
        let current = Definition::of(&entry.ok()?);
        let known = approved.servers.get(server);
        let forms = known.and_then(|known| known.list(ListKind::Tools)?.get(tool.name()));
        let others = || {
            let lists = approved.servers.values().filter_map(|one| one.list(ListKind::Tools));
            let names = lists.flat_map(|list| list.keys().cloned());
            names.filter(|name| name != tool.name()).collect()
        };
        let forms = forms.map_or(&[][..], Vec::as_slice);
        let (form, changes) = compare(ListKind::Tools, &current, forms, &setup.ignore, &others)?;
        let class = worst(&changes).unwrap_or(Class::Widening);
        match Outcome::of(setup.mode, class, form.is_some()) {
            Outcome::Quarantined => Some(format!(
                "it is quarantined, because its definition is not the approved one ({}); see `toolward changes {server}`",
                class.as_str()
            )),
            Outcome::ApprovedShown | Outcome::Reported => None,
        }
    }
}
