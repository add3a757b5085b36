//! Takes up a changed configuration while the gateway runs: loaded whole, checked, its tests run, and
//! then put in force at once, or refused whole.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use toolward_config::Options;
use toolward_config::config::Config;
use toolward_config::neutral::neutralise;
use toolward_gateway::audit::line::micros;
use toolward_gateway::listen::http::Endpoint;
use toolward_gateway::pipeline::Gateway;
use toolward_gateway::record;
use toolward_gateway::upstream::{Definition, Log};

use crate::control::{Control, Heritage};
use crate::exit::Failure;
use crate::gateway::{announce, definitions, supported};
use crate::guards;
use crate::identity::{identities, may_listen, reachable};
use crate::policy_input::{Input, Reads, invalid};
use crate::render::count;
use crate::watch::Watcher;

/// How the configuration was loaded at the start, to do the same again.
pub(crate) struct Again {
    pub(crate) options: Options,
    pub(crate) allow_all: bool,
    /// The servers, where the configuration does not say them.
    pub(crate) servers: Option<Vec<Definition>>,
    /// What cannot change while the gateway runs.
    pub(crate) begun: Config,
    pub(crate) reads: Reads,
}

impl Again {
    pub(crate) fn reloader(
        self,
        gateway: Arc<Gateway>,
        endpoint: Option<Arc<Endpoint>>,
    ) -> Arc<Reloader> {
        let options = Options { reload: true, ..self.options.clone() };
        let state = Mutex::new(State { reads: self.reads.clone(), ..State::default() });
        Arc::new(Reloader { options, again: self, gateway, endpoint, state })
    }
}

/// What is loaded, and what takes it up.
pub(crate) struct Reloader {
    options: Options,
    again: Again,
    gateway: Arc<Gateway>,
    endpoint: Option<Arc<Endpoint>>,
    state: Mutex<State>,
}

/// What came of it so far.
#[derive(Default)]
pub(crate) struct State {
    /// What was read last.
    pub(crate) reads: Reads,
    pub(crate) last: Option<Attempt>,
    pub(crate) taken_up: u64,
    pub(crate) refused: u64,
}

/// One reload.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// When, in microseconds since 1970.
    pub(crate) at: u64,
    /// What asked for it.
    pub(crate) by: &'static str,
    pub(crate) error: Option<String>,
}

impl Reloader {
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> &Log {
        &self.gateway.log
    }

    /// Reloads on SIGHUP and when files change, for as long as the process lives.
    pub(crate) async fn run(self: Arc<Self>, heir: Option<Arc<Heritage>>) {
        let control = self.again.begun.state.as_deref().map(Control::open);
        match control {
            Some(Ok(control)) => drop(tokio::spawn(control.serve(self.clone(), heir))),
            Some(Err(error)) => (self.log())(&format!("`toolward status` cannot ask: {error}")),
            None => {}
        }
        let mut hang_up = hang_up();
        let (tell, mut changes) = mpsc::channel(1);
        let watching = self.clone();
        // Waiting for files blocks, and ends with the process.
        let watched = std::thread::Builder::new().name("watch".into());
        let watched = watched.spawn(move || watching.watch(&tell));
        if let Err(error) = watched {
            (self.log())(&format!("files are not watched: {error}"));
        }
        loop {
            tokio::select! {
                () = hang_up.recv() => drop(self.reload("SIGHUP").await),
                Some(()) = changes.recv() => {
                    // A file can be written again as it was.
                    let reads = self.state().reads.clone();
                    if reads.are_stale() {
                        drop(self.reload("files").await);
                    }
                }
            }
        }
    }

    fn watch(&self, tell: &mpsc::Sender<()>) {
        let watched = || -> std::io::Result<()> {
            let watcher = Watcher::new()?;
            loop {
                let reads = self.state().reads.clone();
                watcher.add(&reads.files())?;
                // What changed before it was watched would not be told.
                if !reads.are_stale() {
                    watcher.wait()?;
                }
                if tell.blocking_send(()).is_err() {
                    return Ok(());
                }
            }
        };
        if let Err(error) = watched() {
            let help = "use SIGHUP or `toolward reload`";
            (self.log())(&format!("files are not watched any more: {error}; {help}"));
        }
    }

    /// Loads everything anew and puts it in force, or says why not.
    pub(crate) async fn reload(&self, by: &'static str) -> Result<String, String> {
        let outcome = match self.prepare() {
            Ok(ready) => self.take_up(ready, by).await,
            Err(failure) => Err(failure.text()),
        };
        let mut state = self.state();
        let error = outcome.as_ref().err().cloned();
        match &error {
            None => state.taken_up += 1,
            Some(why) => {
                state.refused += 1;
                let first = "the configuration was not reloaded, the old one stays in force";
                (self.log())(&format!("{first}: {}", neutralise(&why.replace('\n', " "))));
            }
        }
        state.last = Some(Attempt { at: micros(), by, error });
        outcome
    }

    /// Everything of the new configuration, checked and not yet in force.
    fn prepare(&self) -> Result<Ready, Failure> {
        let reads = Reads::default();
        let prepared = || {
            let input = Input::from(&self.options, Vec::new(), &reads);
            let mut input = input.map_err(|diagnostics| invalid(&diagnostics))?;
            supported(&input.loaded.config)?;
            self.unchangeable(&input.loaded.config)?;
            let resolved = definitions(&mut input.loaded.config, &reads)?;
            let servers = self.again.servers.clone().unwrap_or(resolved);
            for server in self.gateway.servers.all().iter() {
                if let Some(listed) = server.listed() {
                    let tools = Some(listed.catalogue.tools().clone());
                    input.catalogue.insert(server.name(), tools);
                }
            }
            self.harmless(&input)?;
            Ok(Ready { input, servers })
        };
        let prepared = prepared();
        // Also of files that are wrong: they are looked at again when they change.
        self.state().reads = reads;
        prepared
    }

    /// What a person would not want to happen by the change of a file.
    fn harmless(&self, input: &Input) -> Result<(), Failure> {
        let had = self.gateway.current.get().policy.layer_names().count();
        if had > 0 && input.policy.layer_names().next().is_none() {
            return Err(Failure::invalid(
                "error: no policy would be left, and everything would be allowed\n  \
                 help: restart the gateway to run it without a policy",
            ));
        }
        may_listen(&input.loaded.config, input.policy.layer_names().next().is_some())?;
        passes(input)
    }

    /// Keys that listeners, files and names are made of at the start.
    fn unchangeable(&self, config: &Config) -> Result<(), Failure> {
        let begun = &self.again.begun;
        let differs = [
            (begun.listen != config.listen, "listen"),
            (begun.admin != config.admin, "admin"),
            (begun.tls != config.tls, "tls"),
            (begun.state != config.state, "state"),
            (begun.naming != config.naming || begun.separator != config.separator, "naming"),
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

    async fn take_up(&self, ready: Ready, by: &'static str) -> Result<String, String> {
        let Ready { input, servers } = ready;
        let gateway = &self.gateway;
        let before = gateway.current.get();
        let needs_name = input.needs_name();
        let show_claims = input.shows_claims();
        let agents = input.policy.agents().len();
        let known = identities(&input.loaded.config, needs_name, show_claims, self.log());
        let known = known.map_err(|failure| failure.text())?;
        let servers = gateway.servers.next(servers);
        announce(&input, self.again.allow_all, "reloaded", self.log());
        let config = input.loaded.config;
        let policy = (input.policy, input.version);
        let guards = Some(&before.guards);
        let snapshot = guards::snapshot(
            policy,
            &config,
            self.again.allow_all,
            servers.clone(),
            guards,
            self.log(),
        );
        let snapshot = snapshot.map_err(|failure| failure.text())?;
        let version = snapshot.version.clone();
        let facts = record::reload(&before, &snapshot, by);
        let written = gateway.audit.record(&gateway.audit.id(), "reload", &facts).await;
        written.map_err(|error| error.to_string())?;
        gateway.current.set(snapshot);
        gateway.servers.become_these(servers);
        if let Some(endpoint) = &self.endpoint {
            endpoint.adopt(known, reachable(&config));
        }
        Ok(format!("policy {version} is in force for {}", count(agents, "agent")))
    }
}

struct Ready {
    input: Input,
    servers: Vec<Definition>,
}

/// A policy whose tests fail is not put in force. What depends on a server's tools can only fail where
/// they are known.
pub(crate) fn passes(input: &Input) -> Result<(), Failure> {
    let tests = &input.loaded.tests;
    let outcomes = toolward_policy::testing::run(&input.policy, &input.catalogue, tests);
    let failed: Vec<String> = outcomes
        .iter()
        .filter(|outcome| !outcome.passed && input.catalogue.tools(&outcome.case.server).is_some())
        .map(|outcome| crate::commands::test::to_line(input, outcome))
        .collect();
    match failed.as_slice() {
        [] => Ok(()),
        some => Err(Failure::invalid(format!(
            "error: {} of the policy failed\n{}\n  help: run `toolward test`",
            count(some.len(), "test"),
            some.join("\n")
        ))),
    }
}

/// SIGHUP, where it can be had.
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
