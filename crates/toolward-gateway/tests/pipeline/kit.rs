//! A gateway with in-memory servers, and its clients.

mod client;
mod http;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use toolward_config::config::{PinMode, Root};
use toolward_config::{Config, Loader, Options};
use toolward_gateway::active::reachable::Reachable;
use toolward_gateway::active::{self, Active};
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::audit::{self, Audit};
use toolward_gateway::authn::Identities;
use toolward_gateway::budget::Budget;
use toolward_gateway::client::{Scope, ServerId};
use toolward_gateway::context::Context;
use toolward_gateway::downstream::http::{Endpoint, Setup};
use toolward_gateway::gateway::Gateway;
use toolward_gateway::guard::approvals::{self, Approvals};
use toolward_gateway::guard::pins::canonical::Pointer;
use toolward_gateway::guard::pins::lock_file::LockFile;
use toolward_gateway::guard::pins::{self, Pins};
use toolward_gateway::guard::{
    self, Counts, Environment, Guards, HookDefinition, HookKind, LimitDefinition, Selection,
    StoreSetup,
};
use toolward_gateway::opaque_id::Sealer;
use toolward_gateway::upstream::{
    Caps, Definition, InMemory, Reach, Roots, Servers, Timeouts, built_in, file_uri,
};
use toolward_gateway::view::discovery::Discovery;
use toolward_gateway::view::names::Naming;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;
use toolward_policy::{Policy, Rate};

pub use self::client::{Client, Kind, Responder};
pub use toolward_testkit::memory::{Server, Step};

/// The agent of all clients, unless a test names another one.
pub const AGENT: &str = "dev";

/// How a gateway is set up.
pub struct Builder {
    config: String,
    servers: Vec<(String, InMemory)>,
    hooks: Vec<HookDefinition>,
    budget: usize,
    required: bool,
    state: Option<PathBuf>,
    lock: Option<PathBuf>,
    approvals: Option<PathBuf>,
    wraps: bool,
}

/// Begins with a configuration, and its server `s`.
pub fn gate(config: &str, server: &Server) -> Builder {
    let builder = Builder {
        config: config.into(),
        servers: Vec::new(),
        hooks: Vec::new(),
        budget: 64 << 20,
        required: true,
        state: None,
        lock: None,
        approvals: None,
        wraps: false,
    };
    builder.server("s", server)
}

/// A configuration in which the agent may call these tools of the server `s`.
pub fn allow(tools: &str) -> String {
    config("", tools)
}

/// The same, with further keys of the server.
pub fn config(server: &str, tools: &str) -> String {
    format!(
        "servers: {{s: {{command: x, {server}}}}}\n\
         agents: {{dev: {{allow: {{servers: [s], tools: {{s: [{tools}]}}}}}}}}\n"
    )
}

impl Builder {
    pub fn server(mut self, name: &str, server: &Server) -> Builder {
        let server = server.clone();
        self.servers.push((name.into(), InMemory::new(move || server.connect())));
        self
    }

    /// The state directory, in which protocol versions are remembered.
    pub fn state(self, directory: &Path) -> Builder {
        Builder { state: Some(directory.into()), ..self }
    }

    /// The lock file with approved definitions.
    pub fn lock(self, file: &Path) -> Builder {
        Builder { lock: Some(file.into()), ..self }
    }

    /// The state directory in which tickets and grants are kept.
    pub fn approvals_in(self, directory: &Path) -> Builder {
        Builder { approvals: Some(directory.into()), ..self }
    }

    /// Clients on stdio see the server `s` alone, under its own names.
    pub fn wrapping(self) -> Builder {
        Builder { wraps: true, ..self }
    }

    /// The bytes that may be held for clients.
    pub fn budget(self, budget: usize) -> Builder {
        Builder { budget, ..self }
    }

    /// Calls are forwarded even if they cannot be recorded.
    pub fn audit_optional(self) -> Builder {
        Builder { required: false, ..self }
    }

    /// A critical hook: a shell script that is started for each call.
    pub fn hook(mut self, script: &str) -> Builder {
        self.hooks.push(HookDefinition {
            name: "h".into(),
            kind: HookKind::Exec {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), script.into()],
                persistent: false,
            },
            priority: 50,
            critical: true,
            timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(5),
            arguments: true,
            environment: Environment::default(),
            whom: Selection::default(),
        });
        self
    }

    pub fn start(self) -> Gate {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let servers = self.state.as_deref().map_or_else(Servers::new, Servers::remembering);
        let servers = Arc::new(servers);
        let setup = self.setup(&self.config, &servers, None, &[]);
        let audit =
            audit::Setup { required: self.required, ..audit::Setup::in_folder(path("audit")) };
        let context = Context {
            servers,
            audit: Audit::open(audit).unwrap(),
            sealer: Arc::new(Sealer::random().unwrap()),
            approvals: Arc::new(match &self.approvals {
                Some(state) => Approvals::in_state(state, "test").unwrap(),
                None => Approvals::in_memory().unwrap(),
            }),
            held: Default::default(),
            links: Default::default(),
            tasks: Default::default(),
            series: Default::default(),
            current: Default::default(),
            budget: Budget::new(self.budget),
            list_timeout: Duration::from_secs(20),
        };
        let gateway = Arc::new(Gateway::new(context, Active::new(setup)));
        let state = path("state");
        let setup = Setup {
            tls: None,
            sealer: Arc::new(Sealer::in_directory(&state).unwrap()),
            state,
            request_bytes: 1 << 20,
            waiting_requests: 100,
            session_idle: None,
        };
        let endpoint = Arc::new(Endpoint::new(gateway.clone(), setup));
        Gate(Arc::new(Parts { gateway, endpoint, folder, builder: self }))
    }

    /// A configuration as the program would prepare it. The agents in `revoked` have no token.
    fn setup(
        &self,
        text: &str,
        servers: &Servers,
        before: Option<&Active>,
        revoked: &[&str],
    ) -> active::Setup {
        let files = HashMap::from([(PathBuf::from("toolward.yaml"), text.to_string())]);
        let loader = Loader { files, env: HashMap::<String, String>::new() };
        let options = Options { main: Some("toolward.yaml".into()), ..Options::default() };
        let loaded = loader.load(&options).unwrap_or_else(|failed| {
            let all: Vec<_> = failed.diagnostics.iter().map(|one| one.render(false)).collect();
            panic!("{}", all.join("\n"))
        });
        let config = loaded.config;
        let (policy, shadow) = Policy::compile_with_shadow(loaded.source).unwrap();
        let own = config.builtin.then(built_in::definition);
        let defined = config.servers.iter().map(|one| self.definition(one)).chain(own);
        let known = before.map_or(&[][..], |before| &before.servers);
        let mut identities = Identities::new(!config.agents.is_empty(), false);
        for agent in config.agents.iter().filter(|agent| !revoked.contains(&&*agent.name)) {
            let name = agent.name.as_str().into();
            identities.add(&format!("token-of-{}", agent.name), &name).unwrap();
        }
        active::Setup {
            guards: self.guards(&config, &policy, before),
            approvals: approvals(&config),
            admins: None,
            servers: servers.create(defined.collect(), known),
            policy,
            shadow,
            pins: self.pins(&config, before),
            version: text.into(),
            enforced: true,
            naming: Naming::Prefix { separator: config.separator.clone() },
            identities,
            reachable: Reachable::new(["localhost".to_string()], []),
            redact: Redact::default(),
            discovery: Discovery::default(),
            denies_all: false,
        }
    }

    fn definition(&self, server: &toolward_config::config::Server) -> Definition {
        let memory = self.servers.iter().find(|(name, _)| *name == server.name);
        let glob = |tool: &String| Glob::new(tool, Case::Sensitive);
        let timeout = &server.timeout;
        let sizes = &server.result_bytes;
        Definition {
            name: server.name.as_str().into(),
            reach: Reach::InMemory(memory.unwrap().1.clone()),
            timeouts: Timeouts {
                by_tool: timeout.by_tool.iter().map(|(tool, time)| (glob(tool), *time)).collect(),
                otherwise: timeout.otherwise,
                most: timeout.most,
            },
            share: server.share,
            max_children: server.max_children as usize,
            eager: false,
            answer_bytes: 1 << 20,
            cache: server.cache,
            results: Caps {
                by_tool: sizes
                    .by_tool
                    .iter()
                    .map(|(tool, size)| (glob(tool), *size as usize))
                    .collect(),
                otherwise: sizes.otherwise.map(|size| size as usize),
            },
            schemes: server.schemes.iter().map(|scheme| scheme.text.as_str().into()).collect(),
            roots: server.roots.as_ref().map(|roots| Roots::new(roots.iter().map(root_uri))),
        }
    }

    /// The approved definitions: those of the lock file, or of the first use.
    fn pins(&self, config: &Config, before: Option<&Active>) -> Pins {
        let mode = |mode| match mode {
            PinMode::Off => pins::Mode::Off,
            PinMode::Warn => pins::Mode::Warn,
            PinMode::Classify => pins::Mode::Classify,
            PinMode::Strict => pins::Mode::Strict,
        };
        let server = |server: &toolward_config::config::Server| pins::ServerSetup {
            name: server.name.clone(),
            mode: server.pins.mode.or(config.pins).map(mode).unwrap_or_default(),
            ignore: server.pins.ignore.iter().map(|one| Pointer::parse(one).unwrap()).collect(),
            identity: Value::Null,
        };
        let approved = match (&self.lock, &self.state) {
            (Some(lock), _) => match LockFile::parse(&std::fs::read(lock).unwrap()) {
                Ok(file) => pins::Approved::Locked { file, is_new: false },
                Err(error) => pins::Approved::Refused(error.to_string()),
            },
            (None, state) => {
                pins::Approved::FirstUse(state.as_ref().map(|state| state.join("pins")))
            }
        };
        let servers = config.servers.iter().map(server).collect();
        Pins::new(pins::Setup { servers, approved }, before.map(|before| &before.pins))
    }

    fn guards(&self, config: &Config, policy: &Policy, before: Option<&Active>) -> Guards {
        let rates = &config.limits.rates;
        let all = Selection::default;
        let limit = |name: &str, counts, rate: Option<Rate>| {
            let (name, identity, scope) = (name.into(), name.into(), format!("all {name}"));
            rate.map(|rate| LimitDefinition { name, identity, scope, counts, rate })
        };
        let mut limits: Vec<LimitDefinition> = [
            limit("calls", Counts::Calls(all()), rates.calls),
            limit("lists", Counts::Lists(all()), rates.lists),
            limit("refused", Counts::Refused(all()), rates.refused),
        ]
        .into_iter()
        .flatten()
        .collect();
        for (at, (rule, rate)) in policy.limits().into_iter().enumerate() {
            limits.extend(limit(&format!("entry {at}"), Counts::Rule(rule), Some(rate)));
        }
        let (store, hooks) = (StoreSetup::default(), self.hooks.clone());
        let setup = guard::Setup { limits, store, hooks, scripts: Default::default() };
        Guards::new(setup, before.map(|before| &before.guards)).unwrap()
    }
}

fn approvals(config: &Config) -> approvals::Settings {
    let config = &config.approvals;
    approvals::Settings::new((config.hold, config.ttl, config.max_grant), Vec::new())
}

fn root_uri(root: &Root) -> String {
    match root {
        Root::Uri(uri) => uri.clone(),
        Root::Path(path) => file_uri(path),
    }
}

/// A running gateway; all clones are the same one.
#[derive(Clone)]
pub struct Gate(Arc<Parts>);

struct Parts {
    gateway: Arc<Gateway>,
    endpoint: Arc<Endpoint>,
    folder: TempDir,
    builder: Builder,
}

impl Gate {
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.0.gateway
    }

    fn scope(&self) -> Scope {
        if self.0.builder.wraps { Scope::One(ServerId::FIRST) } else { Scope::All }
    }

    /// A client of the agent `dev`.
    pub async fn client(&self, kind: Kind) -> Client {
        self.client_of(kind, AGENT).await
    }

    pub async fn client_of(&self, kind: Kind, agent: &str) -> Client {
        let silent: Responder = Arc::new(|_| None);
        Client::connect(self.clone(), kind, (agent, None), (serde_json::json!({}), silent)).await
    }

    /// A client of an agent that declares these capabilities, and responds to nothing.
    pub async fn capable_client_of(&self, kind: Kind, agent: &str, capabilities: Value) -> Client {
        let silent: Responder = Arc::new(|_| None);
        Client::connect(self.clone(), kind, (agent, None), (capabilities, silent)).await
    }

    /// A client that declares these capabilities, and responds to requests of servers.
    pub async fn asked_client(
        &self,
        kind: Kind,
        capabilities: Value,
        responder: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Client {
        let responder: Responder = Arc::new(responder);
        Client::connect(self.clone(), kind, (AGENT, None), (capabilities, responder)).await
    }

    /// A client of the agent `dev` over stdio, whose JWT has this subject. It accepts forms.
    pub async fn holder(&self, kind: Kind, subject: &str) -> Client {
        assert!(matches!(kind, Kind::StdioLegacy | Kind::StdioModern));
        let accept: Responder = Arc::new(|_| Some(serde_json::json!({"action": "accept"})));
        let extensions = serde_json::json!({"io.modelcontextprotocol/tasks": {}});
        let capabilities = serde_json::json!({"elicitation": {}, "extensions": extensions});
        let known = (AGENT, Some(subject));
        Client::connect(self.clone(), kind, known, (capabilities, accept)).await
    }

    /// Activates another configuration.
    pub fn reload(&self, config: &str) {
        self.reload_revoking(config, &[]);
    }

    /// The same, in which some agents have no token.
    pub fn reload_revoking(&self, config: &str, revoked: &[&str]) {
        let (before, servers) = (self.gateway().active(), &self.gateway().context.servers);
        let setup = self.0.builder.setup(config, servers, Some(&before), revoked);
        self.gateway().activate(Active::replacing(&before, setup));
    }

    pub fn audit_dir(&self) -> PathBuf {
        self.0.folder.path().join("audit")
    }

    /// The audit records so far.
    pub async fn records(&self) -> Vec<Value> {
        // Outcomes are written with the next record, or a moment later.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let text =
            std::fs::read_to_string(self.audit_dir().join("audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub async fn records_of(&self, kind: &str) -> Vec<Value> {
        let records = self.records().await.into_iter();
        records.filter(|record| record["kind"] == kind).collect()
    }

    /// The only record of this kind.
    pub async fn record(&self, kind: &str) -> Value {
        let records = self.records_of(kind).await;
        match <[Value; 1]>::try_from(records) {
            Ok([record]) => record,
            Err(records) => panic!("{} records of kind {kind}: {records:?}", records.len()),
        }
    }

    /// The outcomes of all calls so far.
    pub async fn outcomes(&self) -> Vec<String> {
        let outcomes = self.records_of("outcome").await.into_iter();
        outcomes.map(|one| one["outcome"].as_str().unwrap_or_default().to_string()).collect()
    }

    /// Makes the audit log impossible to write.
    pub fn break_audit(&self) {
        let dir = self.audit_dir();
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::write(&dir, "not a directory").unwrap();
    }

    /// Makes the audit log writable again.
    pub fn repair_audit(&self) {
        std::fs::remove_file(self.audit_dir()).unwrap();
        std::fs::create_dir(self.audit_dir()).unwrap();
    }
}

/// Time does not advance while this value lives, even if every task waits: for work of real processes.
pub struct Frozen(Option<std::sync::mpsc::Sender<()>>);

pub fn freeze() -> Frozen {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    // Paused time does not advance on its own while a blocking task runs.
    drop(tokio::task::spawn_blocking(move || ended.recv()));
    Frozen(Some(end))
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// Waits for a condition by name; a panic names the one that never held.
pub async fn within_an_hour<T>(what: &str, future: impl Future<Output = T>) -> T {
    let hour = Duration::from_secs(3600);
    tokio::time::timeout(hour, future).await.unwrap_or_else(|_| panic!("it never happened: {what}"))
}

/// The text of a result.
pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The machine-readable data of an error or a refusal.
pub fn data(answer: &Value) -> &Value {
    match answer.get("error") {
        Some(error) => &error["data"],
        None => &answer["result"]["_meta"]["io.toolward/refusal"],
    }
}
