//! Prepares a reload: everything that replaces the active configuration, or the reason for rejecting it.

use std::io::ErrorKind;
use std::sync::Arc;

use toolward_config::config::Config;
use toolward_config::sanitize;
use toolward_gateway::active::Setup;

use super::truncated::refuse_truncated;
use super::{ReloadError, Reloader};
use crate::active_config::ActiveConfig;
use crate::downgrade_guard::Protection;
use crate::exit::Failure;
use crate::gateway::Announcement;
use crate::identity::may_listen;
use crate::load::{Input, invalid};
use crate::ownership;
use crate::policy_gate::passes;
use crate::prepared::{Prepared, definitions, supported};
use crate::reads::Reads;

/// A validated configuration, not yet active.
pub(super) struct PreparedReload {
    pub(super) setup: Setup,
    pub(super) in_force: Arc<ActiveConfig>,
    pub(super) protection: Protection,
    /// Log lines for when it becomes active.
    pub(super) announced: Announcement,
    pub(super) reads: Reads,
}

impl Reloader {
    /// Everything of the new configuration.
    ///
    /// `accept`: a file that is only the beginning of its active version is applied too.
    pub(super) fn prepare(&self, accept: bool) -> Result<PreparedReload, ReloadError> {
        let reads = Reads::default();
        let prepared = self.read(&reads, accept);
        // Also of files that are wrong: they are looked at again when they change.
        self.state().reads = reads;
        prepared
    }

    fn read(&self, reads: &Reads, accept: bool) -> Result<PreparedReload, ReloadError> {
        let input = Input::from(&self.options, Vec::new(), reads);
        self.is_still_there()?;
        let mut input = input.map_err(|diagnostics| invalid(&diagnostics))?;
        let (in_force, protection) = (ActiveConfig::of(&input), Protection::of(&input));
        supported(&input.loaded.config)?;
        // Warnings were logged at the start.
        ownership::refuse(&input.loaded)?;
        let fixed = self.unchangeable(&input.loaded.config);
        let denying = self.state().denying.is_some();
        if !denying {
            fixed?;
        }
        // Before the comparison with the active files: secrets are files too.
        definitions(&mut input.loaded.config, reads)?;
        let before = self.gateway.active();
        for server in before.servers.iter() {
            if let Some(listed) = server.listed() {
                let tools = Some(listed.catalogue.tools().clone());
                input.catalogue.insert(server.name(), tools);
            }
        }
        let held = self.state().protection.clone();
        held.holds_against(&protection)?;
        let has_policy = input.policy.layer_names().next().is_some();
        may_listen(&input.loaded.config, has_policy)?;
        passes(&input)?;
        // A gateway that denies everything holds files that were wrong: shorter ones may be right.
        if !accept && !denying {
            let active = self.state().active_reads.clone();
            refuse_truncated(&active, reads, self.options.main.as_ref())?;
        }
        let changed = self.unchangeable(&input.loaded.config);
        let announced = Announcement::of(&input, self.again.prepare.allow_all);
        let servers = (&*self.gateway.context.servers, Some(&*before));
        let prepared = Prepared::from(input, &self.again.prepare, servers)?;
        if denying && changed.is_err() {
            return Err(self.again.anew.begin(&self.gateway));
        }
        let (setup, reads) = (prepared.setup, reads.clone());
        Ok(PreparedReload { setup, in_force, protection, announced, reads })
    }

    /// A main file that was found rather than named is looked for again, and what is found instead is
    /// another configuration: that the file is gone comes before everything that would follow from it.
    fn is_still_there(&self) -> Result<(), Failure> {
        let in_force = self.state().in_force.clone();
        let Some(main) = in_force.as_ref().and_then(|in_force| in_force.loaded.main_file()) else {
            return Ok(());
        };
        match main.metadata() {
            Err(error) if self.options.main.is_none() && error.kind() == ErrorKind::NotFound => {
                let main = main.display().to_string();
                Err(Failure::invalid(format!(
                    "error: the file {} is gone\n  help: put it back; to go on without it, restart \
                     the gateway",
                    sanitize(&main)
                )))
            }
            _ => Ok(()),
        }
    }

    /// Keys that listeners, files and names are made of at the start.
    fn unchangeable(&self, config: &Config) -> Result<(), Failure> {
        let begun = &self.again.begun;
        let differs = [
            (begun.listen != config.listen, "listen"),
            (begun.admin != config.admin, "admin"),
            (begun.tls != config.tls, "tls"),
            (begun.state != config.state, "state"),
            (begun.naming != config.naming, "naming"),
            (begun.separator != config.separator, "separator"),
            (begun.list_timeout != config.list_timeout, "list_timeout"),
            (begun.limits_of != config.limits_of, "limits_of"),
            (begun.audit != config.audit, "audit"),
            (begun.telemetry != config.telemetry, "telemetry"),
        ];
        let keys: Vec<&str> =
            differs.iter().filter(|(differs, _)| *differs).map(|(_, key)| *key).collect();
        match keys.as_slice() {
            [] => Ok(()),
            keys => Err(Failure::invalid(format!(
                "error: `{}` cannot change while the gateway runs\n  help: restart it",
                keys.join("`, `")
            ))),
        }
    }
}
