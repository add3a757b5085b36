//! Reloads the configuration of a running gateway.
//!
//! A changed configuration is loaded, validated and tested as a whole, then activated in one swap or rejected.

mod lists;
mod prepare;
mod reexec;
mod truncated;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use toolward_config::Options;
use toolward_config::config::{BundleSource, Config};
use toolward_config::sanitize;
use toolward_gateway::active::Active;
use toolward_gateway::clock::micros;
use toolward_gateway::downstream::accept::Socket;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::lock::LockUnpoisoned;
use toolward_gateway::methods::events;

use self::prepare::PreparedReload;
pub(crate) use self::reexec::Restart;
use crate::active_config::ActiveConfig;
use crate::bundles::Candidate;
use crate::downgrade_guard::Protection;
use crate::exit::Failure;
use crate::load::Input;
use crate::prepared::Prepare;
use crate::reads::Reads;
use crate::render::count;
use crate::running::{Registration, RunningGateway};
use crate::watch::{WakeReason, Watcher};

/// Retry interval after failures that do not depend on file contents.
const RETRY: Duration = Duration::from_secs(1);
/// Delay to collect several list changes.
const SETTLE: Duration = Duration::from_millis(100);

/// How the configuration was loaded at start, to repeat it on reload.
pub(crate) struct ReloadContext {
    pub(crate) options: Options,
    pub(crate) prepare: Prepare,
    /// Settings that cannot change while the gateway runs.
    pub(crate) begun: Config,
    pub(crate) first: InitialLoad,
    /// How the process restarts, if it may.
    pub(crate) anew: Restart,
    /// The only client, if it authenticated with a token.
    pub(crate) bearer: Option<Bearer>,
    /// Socket files that this process created.
    pub(crate) socket_files: Vec<PathBuf>,
}

/// The configuration loaded at start.
pub(crate) struct InitialLoad {
    reads: Reads,
    in_force: Arc<ActiveConfig>,
    protection: Protection,
    denying: Option<String>,
}

impl InitialLoad {
    /// Keeps the loaded configuration, before its secrets are resolved.
    pub(crate) fn of(input: &Input) -> InitialLoad {
        InitialLoad {
            reads: input.reads.clone(),
            in_force: ActiveConfig::of(input),
            protection: Protection::of(input),
            denying: input.denying.clone(),
        }
    }
}

/// A client authenticated by a token, until the token is revoked.
pub(crate) struct Bearer {
    pub(crate) token: String,
    pub(crate) agent: Option<Arc<str>>,
    /// Signaled when the token is revoked or belongs to another agent.
    pub(crate) revoked: watch::Sender<bool>,
}

impl ReloadContext {
    pub(crate) fn reloader(self, gateway: Arc<Gateway>) -> Arc<Reloader> {
        let options = Options { reload: true, ..self.options.clone() };
        let first = &self.first;
        let state = Mutex::new(ReloadState {
            reads: first.reads.clone(),
            active_reads: first.reads.clone(),
            in_force: Some(first.in_force.clone()),
            protection: first.protection.clone(),
            denying: first.denying.clone(),
            ..ReloadState::default()
        });
        let (page, replacing, watcher, turn, failed, registration) = Default::default();
        let again = self;
        Arc::new(Reloader {
            options,
            again,
            gateway,
            page,
            replacing,
            watcher,
            turn,
            failed,
            state,
            registration,
        })
    }
}

/// Reloads the configuration and activates it.
pub(crate) struct Reloader {
    options: Options,
    again: ReloadContext,
    gateway: Arc<Gateway>,
    /// The URL of the admin UI, without its token.
    pub(crate) page: OnceLock<String>,
    /// Called with the active policy right before it is replaced.
    pub(crate) replacing: OnceLock<ReplaceObserver>,
    watcher: OnceLock<Arc<Watcher>>,
    /// Serializes reloads.
    turn: tokio::sync::Mutex<()>,
    /// Signaled when a reload was rejected.
    failed: Notify,
    state: Mutex<ReloadState>,
    registration: Mutex<Option<Registration>>,
}

/// Observes the policy that a reload is about to replace.
type ReplaceObserver = Arc<dyn Fn(&Active) + Send + Sync>;

/// The state of reloads.
#[derive(Default)]
pub(crate) struct ReloadState {
    /// The files read last.
    pub(crate) reads: Reads,
    /// The files of the active configuration.
    active_reads: Reads,
    pub(crate) last: Option<Attempt>,
    pub(crate) taken_up: u64,
    pub(crate) refused: u64,
    /// The active configuration, for inspection.
    pub(crate) in_force: Option<Arc<ActiveConfig>>,
    /// Protections that the next configuration must keep.
    protection: Protection,
    /// Why everything is denied, if the process started like that.
    pub(crate) denying: Option<String>,
    /// Another process has taken over; in-flight requests are finished.
    pub(crate) draining: bool,
    /// Tests of the policy that fail now that servers have listed their tools.
    pub(crate) failing: Vec<String>,
}

/// One reload.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Time, in microseconds since 1970.
    pub(crate) at: u64,
    /// The trigger.
    pub(crate) by: &'static str,
    pub(crate) error: Option<String>,
    /// The error without file excerpts, which may contain secrets.
    pub(crate) brief: Option<String>,
    /// Transient: a retry may succeed without a file change.
    passing: bool,
}

/// Why a reload was rejected.
struct ReloadError {
    text: String,
    brief: String,
    /// Transient, not caused by file contents.
    passing: bool,
}

impl From<Failure> for ReloadError {
    fn from(failure: Failure) -> ReloadError {
        ReloadError { text: failure.text(), brief: failure.brief(), passing: false }
    }
}

impl ReloadError {
    fn passing(why: impl std::fmt::Display) -> ReloadError {
        ReloadError { text: why.to_string(), brief: why.to_string(), passing: true }
    }
}

impl Reloader {
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// How the configuration is loaded.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The configuration at start.
    pub(crate) fn begun(&self) -> &Config {
        &self.again.begun
    }

    /// The registry entry of this gateway; removed on drop.
    pub(crate) fn registration(&self) -> MutexGuard<'_, Option<Registration>> {
        self.registration.locked()
    }

    /// The paths of this gateway, for its registry entry.
    pub(crate) fn running(&self) -> Option<RunningGateway> {
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let in_force = self.state().in_force.clone();
        let main = in_force.as_ref().and_then(|in_force| in_force.loaded.main_file());
        Some(RunningGateway {
            process: std::process::id(),
            state: absolute(self.again.begun.state.as_deref()?)?,
            config: main.or(self.options.main.as_deref()).and_then(|main| main.canonicalize().ok()),
            audit: absolute(self.gateway.context.audit.folder())?,
        })
    }

    /// Callers that are accepted; `None`: unnamed callers.
    pub(crate) fn callers(&self) -> Arc<Vec<Option<String>>> {
        self.state()
            .in_force
            .as_ref()
            .map(|in_force| in_force.callers.clone())
            .unwrap_or_else(|| Arc::new(vec![None]))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ReloadState> {
        self.state.locked()
    }

    /// Reloads on SIGHUP and file changes until the process ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut hang_up = hang_up();
        let (tell, mut changes) = mpsc::channel(1);
        let watching = self.clone();
        // Waiting for files blocks, and ends with the process.
        let watched = std::thread::Builder::new().name("watch".into());
        let watched = watched.spawn(move || watching.watch(&tell));
        if let Err(error) = watched {
            tracing::error!(target: "reload", "files are not watched: {error}");
        }
        tokio::spawn(self.clone().follow_lists());
        loop {
            tokio::select! {
                () = hang_up.recv() => drop(self.reload("SIGHUP").await),
                // A file can be written again as it was.
                Some(()) = changes.recv() => if self.is_stale().await {
                    drop(self.reload("files").await);
                },
                () = self.retry_is_due() => {
                    let last = self.state().last.clone();
                    let Some(last) = last.filter(|last| last.error.is_some()) else { continue };
                    if last.passing || self.is_stale().await {
                        drop(self.attempt(last.by, true, false).await);
                    }
                }
            }
        }
    }

    /// Resolves when a rejected reload is due for a retry.
    async fn retry_is_due(&self) {
        while self.state().last.as_ref().is_none_or(|last| last.error.is_none()) {
            self.failed.notified().await;
        }
        tokio::time::sleep(RETRY).await;
    }

    async fn is_stale(&self) -> bool {
        let reads = self.state().reads.clone();
        tokio::task::spawn_blocking(move || reads.are_stale()).await.unwrap_or(true)
    }

    fn watch(&self, tell: &mpsc::Sender<()>) {
        let watcher = match Watcher::new() {
            Ok(watcher) => Arc::new(watcher),
            Err(error) => {
                let help = "use SIGHUP or `toolward reload`";
                tracing::error!(target: "reload", "files are not watched: {error}; {help}");
                return;
            }
        };
        let watcher = self.watcher.get_or_init(|| watcher);
        let mut told = false;
        loop {
            let reads = self.state().reads.clone();
            watcher.add(&reads.files());
            // Changes before the watch was set up cause no event.
            if !reads.are_stale() {
                match watcher.wait() {
                    Ok(WakeReason::Changed) => {}
                    Ok(WakeReason::Poked) => continue,
                    Err(error) => {
                        if !std::mem::replace(&mut told, true) {
                            tracing::warn!(target: "reload", "files are checked every second: {error}");
                        }
                        std::thread::sleep(RETRY);
                    }
                }
            }
            if tell.blocking_send(()).is_err() {
                return;
            }
        }
    }

    /// Reloads everything and activates it, or returns the reason for rejecting it.
    pub(crate) async fn reload(self: &Arc<Self>, by: &'static str) -> Result<String, String> {
        self.attempt(by, false, false).await
    }

    /// Activates a newer bundle, with the rest of the configuration, and stores it.
    pub(crate) async fn reload_bundle(
        self: &Arc<Self>,
        candidate: Candidate,
    ) -> Result<String, String> {
        self.attempt_with("bundle", (false, false), Some(candidate)).await
    }

    /// The bundles of the active configuration, and the state directory.
    pub(crate) fn bundles(&self) -> (Vec<BundleSource>, Option<PathBuf>) {
        let in_force = self.state().in_force.clone();
        let bundles = in_force.map(|in_force| in_force.loaded.config.bundles.clone());
        (bundles.unwrap_or_default(), self.again.begun.state.clone())
    }

    /// The same, but accepts files that are a prefix of their active version.
    pub(crate) async fn reload_accepting(
        self: &Arc<Self>,
        by: &'static str,
    ) -> Result<String, String> {
        self.attempt(by, false, true).await
    }

    /// `again`: a retry, for which an unchanged failure is not logged again.
    async fn attempt(
        self: &Arc<Self>,
        by: &'static str,
        again: bool,
        accept: bool,
    ) -> Result<String, String> {
        self.attempt_with(by, (again, accept), None).await
    }

    async fn attempt_with(
        self: &Arc<Self>,
        by: &'static str,
        (again, accept): (bool, bool),
        candidate: Option<Candidate>,
    ) -> Result<String, String> {
        let _turn = self.turn.lock().await;
        let outcome = match self.prepared(accept, candidate.clone()).await {
            Ok(ready) => match candidate.as_ref().map_or(Ok(()), Candidate::store) {
                Ok(()) => self.take_up(ready, by).await,
                Err(error) => Err(ReloadError::passing(error)),
            },
            Err(refused) => Err(refused),
        };
        // The set of files may have changed.
        if let Some(watcher) = self.watcher.get() {
            watcher.poke();
        }
        let refused = match outcome {
            Ok(what) => {
                let mut state = self.state();
                state.taken_up += 1;
                let (at, error, brief, passing) = (micros(), None, None, false);
                state.last = Some(Attempt { at, by, error, brief, passing });
                return Ok(what);
            }
            Err(refused) => refused,
        };
        let ReloadError { text, brief, passing } = refused;
        let why = brief.lines().next().unwrap_or_default().to_string();
        let known = {
            let mut state = self.state();
            let before = state.last.as_ref().and_then(|last| last.error.as_ref());
            let known = again && before == Some(&text);
            state.refused += u64::from(!known);
            let (error, brief) = (Some(text.clone()), Some(brief));
            state.last = Some(Attempt { at: micros(), by, error, brief, passing });
            known
        };
        if !known {
            tracing::error!(
                target: "reload",
                by,
                diagnostic = text,
                "the configuration was not reloaded; the previous one stays active"
            );
            let audit = &self.gateway.context.audit;
            let facts = events::reload_refused(&self.gateway.active(), by, &why);
            // Nothing changes, so a failure to record it is ignored.
            let _ = audit.record(&audit.id(), "reload", &facts).await;
        }
        self.failed.notify_one();
        Err(text)
    }

    /// Loads on a blocking thread, so that slow disks delay nothing else.
    async fn prepared(
        self: &Arc<Self>,
        accept: bool,
        candidate: Option<Candidate>,
    ) -> Result<PreparedReload, ReloadError> {
        let this = self.clone();
        let prepare = move || this.prepare(accept, candidate.as_ref());
        let prepared = tokio::task::spawn_blocking(prepare);
        prepared.await.unwrap_or_else(|error| Err(ReloadError::passing(error)))
    }

    async fn take_up(
        &self,
        ready: PreparedReload,
        by: &'static str,
    ) -> Result<String, ReloadError> {
        let PreparedReload { setup, sealer, in_force, protection, announced, reads } = ready;
        let gateway = &self.gateway;
        let before = gateway.active();
        let active = Active::replacing(&before, setup);
        let version = active.version.clone();
        // If users are distinguished, all of them must be able to connect; otherwise only this one.
        let opened = socket_files(&self.again.socket_files, !active.identities.uids.is_empty());
        let opened = opened.map_err(ReloadError::passing)?;
        let facts = events::reload(&before, &active, by);
        let written =
            gateway.context.audit.record(&gateway.context.audit.id(), "reload", &facts).await;
        if let Err(error) = written {
            drop(socket_files(&self.again.socket_files, opened));
            return Err(ReloadError::passing(error));
        }
        let agents = active.policy.agents().len();
        // No request of a client whose token was revoked is decided under the new configuration.
        if let Some(bearer) = &self.again.bearer
            && active.identities.of_token(&bearer.token) != bearer.agent
        {
            let why = "the client's token is no longer the agent's";
            tracing::warn!(target: "authn", "{why}; the connection is closed");
            let _ = bearer.revoked.send(true);
        }
        if let Some(replacing) = self.replacing.get().cloned() {
            let before = before.clone();
            let _ = tokio::task::spawn_blocking(move || replacing(&before)).await;
        }
        if let Some(sealer) = sealer {
            gateway.context.sealer.replace(sealer);
        }
        gateway.activate(active);
        announced.log("reloaded");
        tracing::info!(target: "reload", by, version, "configuration reloaded");
        {
            let mut state = self.state();
            state.in_force = Some(in_force);
            state.active_reads = reads;
            state.protection = protection;
            state.denying = None;
        }
        Ok(format!("policy {version} is active for {}", count(agents, "agent")))
    }
}

/// Makes socket files accessible to everyone, or to this user only. Returns the previous setting.
fn socket_files(files: &[PathBuf], for_everyone: bool) -> Result<bool, String> {
    let mut before = for_everyone;
    for file in files {
        let fails = |error| format!("error: {}: {error}", sanitize(&file.to_string_lossy()));
        before = Socket::is_for_everyone(file).map_err(fails)?;
        Socket::admit(file, for_everyone).map_err(fails)?;
    }
    Ok(before)
}

/// The SIGHUP signal, if a handler can be installed.
fn hang_up() -> HangUp {
    use tokio::signal::unix::{SignalKind, signal};
    HangUp(signal(SignalKind::hangup()).ok())
}

struct HangUp(Option<tokio::signal::unix::Signal>);

impl HangUp {
    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}
