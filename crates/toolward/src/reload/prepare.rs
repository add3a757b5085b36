//! Prepares a reload: everything that replaces the active configuration, or the reason for rejecting it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use toolward_config::config::{Config, Secret};
use toolward_config::sanitize;
use toolward_gateway::active::Setup;
use toolward_gateway::opaque_id::Sealer;

use super::truncated::{Version, refuse_truncated};
use super::{ReloadError, Reloader};
use crate::active_config::ActiveConfig;
use crate::bundles::{self, Candidate};
use crate::downgrade_guard::Protection;
use crate::exit::Failure;
use crate::gateway::{Announcement, sealer};
use crate::identity::may_listen;
use crate::load::{Input, invalid};
use crate::ownership;
use crate::policy_gate::passes;
use crate::prepared::{Predecessor, Prepared};
use crate::reads::Reads;

/// A validated configuration, not yet active.
pub(super) struct PreparedReload {
    pub(super) setup: Setup,
    /// The keys that gateways share, if they do.
    pub(super) sealer: Option<Sealer>,
    pub(super) in_force: Arc<ActiveConfig>,
    pub(super) protection: Protection,
    /// Log lines for when it becomes active.
    pub(super) announced: Announcement,
    pub(super) reads: Reads,
}

impl Reloader {
    /// Loads, validates and tests the new configuration.
    ///
    /// `accept`: a file that is only the beginning of its active version is applied too.
    /// `candidate`: a bundle that is not stored yet.
    pub(super) fn prepare(
        &self,
        accept: bool,
        candidate: Option<&Candidate>,
    ) -> Result<PreparedReload, ReloadError> {
        let reads = bundles::reads_with(candidate.map_or(&[], std::slice::from_ref));
        let prepared = self.read(&reads, accept);
        // Invalid files are included, so that they are read again when they change. A bundle that was rejected is
        // not one of them.
        if candidate.is_none() || prepared.is_ok() {
            self.state().reads = reads;
        }
        prepared
    }

    fn read(&self, reads: &Reads, accept: bool) -> Result<PreparedReload, ReloadError> {
        let input = Input::from(&self.options, Vec::new(), reads);
        self.is_still_there()?;
        let mut input = input.map_err(|diagnostics| invalid(&diagnostics))?;
        let (in_force, protection) = (ActiveConfig::of(&input), Protection::of(&input));
        // Warnings were logged at startup.
        ownership::refuse(&input.loaded)?;
        let fixed = self.unchangeable(&input.loaded.config);
        let denying = self.state().denying.is_some();
        if !denying {
            fixed?;
        }
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
        let changed = self.unchangeable(&input.loaded.config);
        let announced = Announcement::of(&input, self.again.prepare.allow_all);
        let servers = &self.gateway.context.servers;
        let replaced = Predecessor { servers, active: Some(&before), accept };
        let prepared = Prepared::from(input, &self.again.prepare, replaced)?;
        // After all files were read, because secrets are files too. If the gateway denies everything, its
        // files were invalid, and shorter ones may be correct.
        if !accept && !denying {
            self.refuse_truncated(&in_force, reads)?;
        }
        if denying && changed.is_err() {
            return Err(self.again.anew.begin(&self.gateway));
        }
        let config = &prepared.config;
        let shares = !config.shared.keys.is_empty();
        let sealer = if shares { Some(sealer(config)?) } else { None };
        let (setup, reads) = (prepared.setup, reads.clone());
        Ok(PreparedReload { setup, sealer, in_force, protection, announced, reads })
    }

    fn refuse_truncated(&self, next: &ActiveConfig, reads: &Reads) -> Result<(), Failure> {
        let (active_reads, active) = {
            let state = self.state();
            (state.active_reads.clone(), state.in_force.clone())
        };
        let loaded = active.as_deref().map(|active| &active.loaded);
        let active = Version { reads: &active_reads, loaded };
        let next = Version { reads, loaded: Some(&next.loaded) };
        refuse_truncated(&active, &next, self.options.main.as_ref())
    }

    /// Checks that a main file that was found by its default path still exists. Otherwise another
    /// configuration would be found instead; a missing file is reported before any error in that one.
    fn is_still_there(&self) -> Result<(), Failure> {
        let in_force = self.state().in_force.clone();
        let Some(main) = in_force.as_ref().and_then(|in_force| in_force.loaded.main_file()) else {
            return Ok(());
        };
        match main.metadata() {
            Err(error) if self.options.main.is_none() && error.kind() == ErrorKind::NotFound => {
                let main = main.display().to_string();
                Err(Failure::invalid(format!(
                    "error: the file {} is missing\n  help: restore it; to continue without it, \
                     restart the gateway",
                    sanitize(&main)
                )))
            }
            _ => Ok(()),
        }
    }

    /// Keys of listeners, files and names, which are fixed at startup.
    fn unchangeable(&self, config: &Config) -> Result<(), Failure> {
        let begun = &self.again.begun;
        let differs = [
            (begun.listen != config.listen, "listen"),
            (begun.admin != config.admin, "admin"),
            (begun.tls != config.tls, "tls"),
            (fixed_state(begun) != fixed_state(config), "state"),
            (begun.drain != config.drain, "drain"),
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

/// The parts of `state` that are fixed: everything but the keys, as long as there are some.
fn fixed_state(config: &Config) -> (Option<&PathBuf>, bool, Option<&Secret>) {
    let shared = &config.shared;
    (config.state.as_ref(), shared.keys.is_empty(), shared.store.as_ref())
}
