//! Builds a runnable gateway from a loaded configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolward_config::config::{Arguments, Config, Durability, Secret};
use toolward_config::sanitize;
use toolward_gateway::active::Active;
use toolward_gateway::audit::arguments::{HashKey, RecordedArguments};
use toolward_gateway::audit::redact::{self, Redact};
use toolward_gateway::audit::{self, Audit, UNRECORDED};
use toolward_gateway::budget::Budget;
use toolward_gateway::context::Context;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::methods::events;
use toolward_gateway::opaque_id::Sealer;
use toolward_gateway::upstream::Servers;

use crate::approvals;
use crate::exit::Failure;
use crate::load::Input;
use crate::prepared::{Predecessor, Prepare, Prepared};
use crate::render::count;
use crate::sinks;
use crate::traces;

/// The log lines about a policy, for when it becomes active.
pub(crate) struct Announcement {
    allow_all: bool,
    layers: usize,
    agents: usize,
    selectors: usize,
    /// How many entries each allowlist has.
    allowlists: Vec<usize>,
}

impl Announcement {
    pub(crate) fn of(input: &Input, allow_all: bool) -> Announcement {
        Announcement {
            allow_all,
            layers: input.policy.layer_names().count(),
            agents: input.policy.agents().len(),
            selectors: input.selectors,
            allowlists: input.allowlists.clone(),
        }
    }

    /// Logs which policy is active, in numbers. `word`: `enabled` or `reloaded`.
    pub(crate) fn log(&self, word: &str) {
        if UNRECORDED {
            tracing::warn!(target: "audit", "THIS BUILD WRITES NO AUDIT LOG. It is for benchmarks only");
        }
        if self.allow_all {
            tracing::warn!(
                target: "policy",
                "--allow-all: POLICY IS NOT ENFORCED. Denied calls are recorded and forwarded"
            );
        }
        if self.layers == 0 {
            tracing::warn!(target: "policy", "there is no policy: every tool of every server is allowed");
        } else {
            let layers = count(self.layers, "layer");
            let (agents, selectors) =
                (count(self.agents, "agent"), count(self.selectors, "selector"));
            tracing::info!(target: "policy", "policy loaded: {layers}, {agents}, {selectors}");
        }
        for permitted in &self.allowlists {
            tracing::info!(target: "policy", "Allowlist {word}, {permitted} tools/actions permitted");
        }
    }
}

/// The gateway of a configuration, and the configuration with its secrets resolved.
pub(crate) fn build(input: Input, prepare: &Prepare) -> Result<(Gateway, Config), Failure> {
    let denies_all = input.denying.is_some();
    Announcement::of(&input, prepare.allow_all).log("enabled");
    let servers = servers(input.loaded.config.state.as_deref());
    let configuration = approvals::configuration(&input);
    let nothing = Predecessor { servers: &servers, active: None, accept: false };
    let Prepared { config, setup } = Prepared::from(input, prepare, nothing)?;
    if setup.servers.is_empty() && !denies_all {
        let help = "servers are defined under `servers`, as in a client's `.mcp.json`";
        return Err(Failure::invalid(format!("error: there are no servers\n  help: {help}")));
    }
    let sinks = sinks::configured(&config)?;
    let mut recording = audit_setup(&config.audit, config.state.as_deref())?;
    recording.sinks = sinks.iter().map(|sink| sink.state.clone()).collect();
    let audit = open_audit(recording)?;
    sinks::sign(&audit, &config)?;
    sinks::start(&audit, sinks)?;
    let sealer = Arc::new(sealer(&config)?);
    let context = Context {
        servers: Arc::new(servers),
        audit,
        sealer: sealer.clone(),
        approvals: approvals::open(&config, &configuration, &sealer)?,
        held: Default::default(),
        links: Default::default(),
        tasks: Default::default(),
        series: Default::default(),
        current: Default::default(),
        budget: Budget::new(usize::try_from(config.limits_of.buffered_bytes).unwrap_or(usize::MAX)),
        list_timeout: config.list_timeout,
    };
    traces::start(&context.series.traces, &config.telemetry, &context.audit)?;
    Ok((Gateway::new(context, Active::new(setup)), config))
}

/// Creates servers, with what earlier runs remembered in the state directory.
pub(crate) fn servers(state: Option<&Path>) -> Servers {
    state.map_or_else(Servers::new, Servers::remembering)
}

/// Encrypts session ids and event ids: with the keys that gateways share, with that of the state directory, or with
/// one that is lost when the process exits. The secrets of the configuration are resolved.
pub(crate) fn sealer(config: &Config) -> Result<Sealer, Failure> {
    let keys: Vec<&str> = config.shared.keys.iter().filter_map(Secret::value).collect();
    let sealer = match &config.state {
        _ if !keys.is_empty() => Sealer::shared(&keys),
        Some(state) => Sealer::in_directory(state),
        None => Sealer::random(),
    };
    let failed = |error| {
        Failure::invalid(format!(
            "error: the key that encrypts session ids cannot be used: {error}"
        ))
    };
    sealer.map_err(failed)
}

/// The audit log settings of the configuration.
pub(crate) fn audit_setup(
    audit: &toolward_config::config::Audit,
    state: Option<&Path>,
) -> Result<audit::Setup, Failure> {
    let mode = match audit.arguments {
        Arguments::None => redact::Arguments::Nothing,
        Arguments::Hash => redact::Arguments::Hash,
        Arguments::Redacted => redact::Arguments::Redacted(Redact::new(&audit.redact)),
        Arguments::Full => redact::Arguments::Full,
    };
    Ok(audit::Setup {
        arguments: recorded_arguments(mode, state)?,
        refusals: audit.refusals,
        reserve: audit.reserve,
        folder: audit.dir.clone(),
        on_disk: audit.durability == Durability::Disk,
        required: audit.required,
        keep: audit::Keep {
            rotate_size: audit.rotate_size,
            rotate_age: audit.rotate_age,
            retain: audit.retain,
        },
        sinks: Vec::new(),
    })
}

/// How arguments are recorded. Their hashes can be compared later if there is a state directory.
pub(crate) fn recorded_arguments(
    mode: redact::Arguments,
    state: Option<&Path>,
) -> Result<RecordedArguments, Failure> {
    let Some(state) = state else { return Ok(RecordedArguments::passing(mode)) };
    let key = HashKey::in_state(state).map_err(|error| {
        let state = state.display().to_string();
        Failure::invalid(format!("error: {}: {error}", sanitize(&state)))
    })?;
    Ok(RecordedArguments::new(mode, key))
}

pub(crate) fn open_audit(setup: audit::Setup) -> Result<Arc<Audit>, Failure> {
    let folder = setup.folder.display().to_string();
    Audit::open(setup)
        .map_err(|error| Failure::invalid(format!("error: {}: {error}", sanitize(&folder))))
}

/// Records the policy at start. If that fails, calls are refused.
pub(crate) async fn began(gateway: &Gateway) {
    let facts = events::start(&gateway.active());
    let _ = gateway.context.audit.record(&gateway.context.audit.id(), "start", &facts).await;
    gateway.report_pins();
}

/// The state directory.
pub(crate) fn state_folder(config: &Config) -> Result<PathBuf, Failure> {
    config.state.clone().ok_or_else(|| {
        Failure::invalid("error: HOME is not set\n  help: set the state directory: `state: DIR`")
    })
}

/// How the process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Terminate,
    /// Ctrl-C: a person waits.
    Interrupt,
}

/// Resolves when the process is asked to end.
pub(crate) async fn terminated() -> Signal {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::quit()];
    let [Ok(mut terminate), Ok(mut quit)] = kinds.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => Signal::Terminate,
        _ = quit.recv() => Signal::Terminate,
        _ = tokio::signal::ctrl_c() => Signal::Interrupt,
    }
}

/// How long in-flight requests may take during shutdown.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
