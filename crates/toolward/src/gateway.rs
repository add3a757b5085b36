//! Builds a runnable gateway from a loaded configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolward_config::config::{Arguments, Config, Durability, Telemetry};
use toolward_config::sanitize;
use toolward_gateway::active::Active;
use toolward_gateway::audit::arguments::{HashKey, RecordedArguments};
use toolward_gateway::audit::redact::{self, Redact};
use toolward_gateway::audit::{self, Audit, UNRECORDED};
use toolward_gateway::budget::Budget;
use toolward_gateway::context::Context;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::log::Log;
use toolward_gateway::methods::events;
use toolward_gateway::upstream::Servers;

use crate::exit::Failure;
use crate::load::Input;
use crate::prepared::{Prepare, Prepared};
use crate::render::count;

/// Lines for the operator.
pub(crate) fn log() -> Log {
    crate::log::start(&Telemetry::default());
    Arc::new(|line: &str| tracing::info!(target: "gateway", "{line}"))
}

/// Logs a summary of the active policy.
pub(crate) fn announce(input: &Input, allow_all: bool, word: &str, log: &Log) {
    if UNRECORDED {
        log("THIS BUILD RECORDS NOTHING. It is for measuring alone");
    }
    if allow_all {
        log("--allow-all: POLICY IS NOT ENFORCED. What it refuses is recorded, and passes");
    }
    match input.policy.layer_names().count() {
        0 => log("there is no policy: everything that the servers offer is allowed"),
        layers => log(&format!(
            "policy loaded: {}, {}, {}",
            count(layers, "layer"),
            count(input.policy.agents().len(), "agent"),
            count(input.selectors, "selector")
        )),
    }
    for permitted in &input.allowlists {
        log(&format!("Allowlist {word}, {permitted} tools/actions permitted"));
    }
}

/// The gateway of a configuration, and the configuration with its secrets resolved.
pub(crate) fn build(
    input: Input,
    prepare: &Prepare,
    log: Log,
) -> Result<(Gateway, Config), Failure> {
    let denies_all = input.denying.is_some();
    announce(&input, prepare.allow_all, "enabled", &log);
    let servers = Servers::new(log.clone());
    let Prepared { config, setup } = Prepared::from(input, prepare, (&servers, None), &log)?;
    if setup.servers.is_empty() && !denies_all {
        let help = "servers are defined under `servers`, as in a client's `.mcp.json`";
        return Err(Failure::invalid(format!("error: there are no servers\n  help: {help}")));
    }
    let context = Context {
        servers: Arc::new(servers),
        audit: open_audit(audit_setup(&config.audit, config.state.as_deref())?, log.clone())?,
        budget: Budget::new(usize::try_from(config.limits_of.buffered_bytes).unwrap_or(usize::MAX)),
        log,
        list_timeout: config.list_timeout,
    };
    Ok((Gateway::new(context, Active::new(setup)), config))
}

/// The audit log settings of the configuration.
fn audit_setup(
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

pub(crate) fn open_audit(setup: audit::Setup, log: Log) -> Result<Arc<Audit>, Failure> {
    let folder = setup.folder.display().to_string();
    Audit::open(setup, log)
        .map_err(|error| Failure::invalid(format!("error: {}: {error}", sanitize(&folder))))
}

/// Records the policy at start. If that fails, calls are refused.
pub(crate) async fn began(gateway: &Gateway) {
    let facts = events::start(&gateway.active());
    let _ = gateway.context.audit.record(&gateway.context.audit.id(), "start", &facts).await;
}

/// The state directory.
pub(crate) fn state_folder(config: &Config) -> Result<PathBuf, Failure> {
    config.state.clone().ok_or_else(|| {
        Failure::invalid("error: HOME is not set\n  help: say where the state goes: `state: DIR`")
    })
}

/// Resolves when the process is asked to end.
pub(crate) async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::quit()];
    let [Ok(mut terminate), Ok(mut quit)] = kinds.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = quit.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// How long in-flight requests may take during shutdown.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
