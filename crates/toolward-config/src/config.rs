//! The resolved configuration of the gateway: typed values, with all defaults filled in.
//!
//! Policy (rules, exposure, hints) is not part of it; it is in the `Source` that is loaded together with it.

pub(crate) mod approvals;
pub(crate) mod bundles;
pub(crate) mod env_file;
pub(crate) mod guards;
pub(crate) mod replicas;
pub(crate) mod secret;

mod observe;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use self::observe::{MetricLabels, Metrics, Sink, SinkKind, Telemetry};

pub use crate::config::approvals::{Admin, Approvals, Notify, NotifyChannel, NotifyFormat};
pub use crate::config::bundles::BundleSource;
pub use crate::config::env_file::EnvFile;
pub use crate::config::guards::{
    AgentLimits, Hook, HookKind, Limits, OnStoreError, Rates, Store as LimitStore,
};
pub use crate::config::replicas::{Drain, SharedState};
pub use crate::config::secret::Secret;
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::text::Mark;
use crate::hint_sets::HintSet;
use crate::io::{Env, Files, program};
use crate::keys::value_syntax::url;
pub use crate::keys::value_syntax::{CertificateMark, IpRange, Listen};

/// The name of the gateway's own server.
pub(crate) const BUILTIN_SERVER: &str = "toolward";

#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Vec<Listen>,
    pub public_url: Option<String>,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub trusted_proxies: Vec<IpRange>,
    pub cors: bool,
    pub tls: Option<Tls>,
    /// `None`: switched off.
    pub admin: Option<SocketAddr>,
    /// Whether the file sets `admin` explicitly.
    pub admin_stated: bool,
    /// `None` if neither `state` nor the home directory is known.
    pub state: Option<PathBuf>,
    pub shared: SharedState,
    /// Policy bundles that are fetched.
    pub bundles: Vec<BundleSource>,
    pub drain: Drain,
    pub naming: Naming,
    pub separator: String,
    pub list_timeout: Duration,
    pub limits_of: LimitsOf,
    pub servers: Vec<Server>,
    pub agents: Vec<Agent>,
    pub deny_on_missing_agent: bool,
    /// The issuers of JWTs.
    pub jwt: Vec<Jwt>,
    pub limits: Limits,
    /// The limits of agents, from all files that have some.
    pub agent_limits: Vec<AgentLimits>,
    pub hooks: Vec<Hook>,
    /// `None`: the default, which depends on whether there is a lock file.
    pub pins: Option<PinMode>,
    pub approvals: Approvals,
    /// `None`: there is no `admins`.
    pub admins: Option<Vec<Admin>>,
    pub builtin: bool,
    pub audit: Audit,
    pub telemetry: Telemetry,
    /// `read_only` of the file, without flag and environment.
    pub read_only: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 7410)))],
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            cors: false,
            tls: None,
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 7411))),
            admin_stated: false,
            state: None,
            shared: SharedState::default(),
            bundles: Vec::new(),
            drain: Drain::default(),
            naming: Naming::Prefix,
            separator: "__".into(),
            list_timeout: Duration::from_secs(20),
            limits_of: LimitsOf::default(),
            servers: Vec::new(),
            agents: Vec::new(),
            deny_on_missing_agent: true,
            jwt: Vec::new(),
            limits: Limits::default(),
            agent_limits: Vec::new(),
            hooks: Vec::new(),
            pins: None,
            approvals: Approvals::default(),
            admins: None,
            builtin: false,
            audit: Audit::default(),
            telemetry: Telemetry::default(),
            read_only: false,
        }
    }
}

impl Config {
    /// Whether any listener is reachable from other machines.
    pub fn listens_beyond_loopback(&self) -> bool {
        self.listen.iter().any(|listen| match listen {
            Listen::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Listen::Unix(_) => false,
        })
    }

    /// The store of tickets and grants that gateways share.
    pub fn approvals_store(&self) -> Option<&Secret> {
        self.approvals.store.as_ref().or(self.shared.store.as_ref())
    }

    /// Whether callers over HTTP can authenticate.
    pub fn authenticates(&self) -> bool {
        let by_claims = !self.jwt.is_empty();
        if self.jwt.iter().any(|jwt| jwt.agent_claim.is_some()) {
            return true;
        }
        let by_certificate = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        self.agents.iter().any(|agent| {
            !agent.tokens.is_empty()
                || (by_claims && !agent.claims.is_empty())
                || (by_certificate && !agent.certificates.is_empty())
        })
    }

    /// Resolves all references to variables and files. Returns an error with its location for each that
    /// cannot be resolved; nothing else of the configuration changes.
    pub fn resolve_secrets(&mut self, env: &impl Env, files: &impl Files) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        for server in &mut self.servers {
            findings.extend(server.connect.read_env_file(files).err());
        }
        for (secret, kind) in self.secrets_mut() {
            match secret.resolve(env, files) {
                Ok(()) => findings.extend(kind.misfit(secret)),
                Err(diagnostic) => findings.push(diagnostic),
            }
        }
        self.servers.iter_mut().for_each(|server| server.connect.expand_command());
        findings
    }

    /// Files that references read, to watch like the configuration itself.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let mut copy = self.clone();
        let secrets = copy.secrets_mut();
        let files = secrets.iter().flat_map(|(secret, _)| secret.files());
        let env_files = self.servers.iter().filter_map(|server| match &server.connect {
            Connect::Stdio { env_file, .. } => Some(env_file.as_ref()?.path.clone()),
            Connect::Http { .. } => None,
        });
        files.chain(env_files).collect()
    }

    fn secrets_mut(&mut self) -> Vec<(&mut Secret, SecretKind)> {
        let mut all = Vec::new();
        for server in &mut self.servers {
            match &mut server.connect {
                Connect::Stdio { env, args, command_template, .. } => {
                    let command = command_template.iter_mut().map(|template| &mut template.text);
                    all.extend(command.map(|value| (value, SecretKind::Variable)));
                    all.extend(args.iter_mut().map(|value| (value, SecretKind::Variable)));
                    all.extend(env.iter_mut().map(|(_, value)| (value, SecretKind::Variable)));
                }
                Connect::Http { url, headers, headers_for, oauth, login, .. } => {
                    all.push((url, SecretKind::Url));
                    let of_agents = headers_for.iter_mut().flat_map(|(_, headers)| headers);
                    let headers = headers.iter_mut().chain(of_agents);
                    all.extend(headers.map(|(_, value)| (value, SecretKind::Header)));
                    if let Some(oauth) = oauth {
                        all.push((&mut oauth.token_url, SecretKind::Url));
                        all.push((&mut oauth.client_id, SecretKind::Header));
                        all.push((&mut oauth.client_secret, SecretKind::Header));
                    }
                    if let Some(login) = login {
                        let client = login.client_id.iter_mut().chain(&mut login.client_secret);
                        all.extend(client.map(|value| (value, SecretKind::Header)));
                    }
                }
            }
        }
        let admins = self.admins.iter_mut().flatten().map(|admin| &mut admin.tokens);
        for tokens in self.agents.iter_mut().map(|agent| &mut agent.tokens).chain(admins) {
            all.extend(tokens.iter_mut().filter_map(|token| match token {
                Token::Reference(secret) => Some((secret, SecretKind::Token)),
                Token::Sha256(_) => None,
            }));
        }
        for jwt in &mut self.jwt {
            all.push((&mut jwt.issuer, SecretKind::Url));
            if let Jwks::Url(url) = &mut jwt.jwks {
                all.push((url, SecretKind::Url));
            }
        }
        all.extend(self.shared.keys.iter_mut().map(|secret| (secret, SecretKind::SealKey)));
        let stores = self.shared.store.iter_mut().chain(&mut self.approvals.store);
        all.extend(stores.map(|secret| (secret, SecretKind::Variable)));
        if let LimitStore::Redis(url) = &mut self.limits.store {
            all.push((url, SecretKind::Variable));
        }
        for hook in &mut self.hooks {
            all.extend(hook.env.iter_mut().map(|(_, value)| (value, SecretKind::Variable)));
            if let HookKind::Http(url) = &mut hook.kind {
                all.push((url, SecretKind::Url));
            }
        }
        for notify in &mut self.approvals.notify {
            if let NotifyChannel::Http { url, .. } = &mut notify.channel {
                all.push((url, SecretKind::Url));
            }
        }
        let telemetry = &mut self.telemetry;
        all.extend(telemetry.otlp.as_mut().map(|secret| (secret, SecretKind::Url)));
        all.extend(telemetry.headers.iter_mut().map(|(_, value)| (value, SecretKind::Header)));
        if let Some(Token::Reference(secret)) = &mut telemetry.metrics_token {
            all.push((secret, SecretKind::Token));
        }
        for sink in &mut self.audit.sinks {
            match &mut sink.kind {
                SinkKind::Stdout => {}
                SinkKind::Syslog { address, .. } => all.push((address, SecretKind::Variable)),
                SinkKind::Otlp { url, headers, .. } => {
                    all.push((url, SecretKind::Url));
                    all.extend(headers.iter_mut().map(|(_, value)| (value, SecretKind::Header)));
                }
                SinkKind::Postgres { url, .. } => all.push((url, SecretKind::Variable)),
            }
        }
        all
    }
}

/// The kinds of secrets, which determine how resolved values are validated.
#[derive(Clone, Copy)]
enum SecretKind {
    Variable,
    Header,
    Token,
    /// A secret from which a key is derived.
    SealKey,
    Url,
}

/// Shorter tokens could be guessed.
const MIN_TOKEN_CHARACTERS: usize = 16;
/// A key of 192 bits in Base64.
const MIN_KEY_CHARACTERS: usize = 32;

impl SecretKind {
    fn misfit(self, secret: &Secret) -> Option<Diagnostic> {
        let value = secret.value()?;
        match self {
            SecretKind::Variable if value.contains('\0') => {
                Some(secret.error("the resolved value contains a NUL character"))
            }
            SecretKind::Token if value.chars().count() < MIN_TOKEN_CHARACTERS => Some(
                secret
                    .error(format!("the token is shorter than {MIN_TOKEN_CHARACTERS} characters"))
                    .help("make one with `toolward token new`"),
            ),
            SecretKind::SealKey if value.chars().count() < MIN_KEY_CHARACTERS => Some(
                secret
                    .error(format!("the key is shorter than {MIN_KEY_CHARACTERS} characters"))
                    .help("make one with `openssl rand -base64 32`"),
            ),
            SecretKind::Header | SecretKind::Token if value.chars().any(char::is_control) => {
                Some(secret.error("the resolved value contains a line break or control character"))
            }
            // The value may be a secret: the message does not repeat it.
            SecretKind::Url if url(value).is_err() => {
                Some(secret.error("the resolved value is not a URL"))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// `SERVER__TOOL`.
    Prefix,
    /// Tool names as they are.
    Flat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsOf {
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub buffered_bytes: u64,
    /// Of one agent.
    pub waiting_requests: u32,
    pub streams: u32,
}

impl Default for LimitsOf {
    fn default() -> Self {
        LimitsOf {
            request_bytes: 4 << 20,
            response_bytes: 64 << 20,
            buffered_bytes: 512 << 20,
            waiting_requests: 2_000,
            streams: 10_000,
        }
    }
}

/// An MCP server behind the gateway.
#[derive(Debug, Clone)]
pub struct Server {
    pub name: String,
    pub connect: Connect,
    pub start: Start,
    pub timeout: Timeout,
    pub result_bytes: ResultBytes,
    pub share: bool,
    /// The last known list is shown until the server has started.
    pub cache: bool,
    pub max_children: u32,
    pub description: Option<String>,
    /// The URI schemes of resources that belong to this server.
    pub schemes: Vec<Scheme>,
    /// The gateway's answer to `roots/list`; `None`: the client's roots.
    pub roots: Option<Vec<Root>>,
    pub methods: Vec<String>,
    pub limits: Rates,
    pub hints: HintSources,
    pub pins: ServerPins,
    /// The location of the server's key.
    pub mark: Mark,
}

/// The treatment when a definition is not the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinMode {
    Off,
    Warn,
    Classify,
    Strict,
}

impl PinMode {
    pub(crate) fn parse(word: &str) -> Option<PinMode> {
        match word {
            "off" => Some(PinMode::Off),
            "warn" => Some(PinMode::Warn),
            "classify" => Some(PinMode::Classify),
            "strict" => Some(PinMode::Strict),
            _ => None,
        }
    }
}

/// `pins` of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerPins {
    /// `None`: the mode for all servers.
    pub mode: Option<PinMode>,
    /// JSON Pointers to parts of definitions that may change.
    pub ignore: Vec<String>,
}

/// Where the hints of a server's tools come from, besides its annotations. The hints themselves are part of the policy.
#[derive(Debug, Clone, Default)]
pub struct HintSources {
    /// `hints` has entries for some tools.
    pub is_stated: bool,
    /// The set of `hints_from`.
    pub set: Option<&'static HintSet>,
    /// Tools whose hints come from that set.
    pub from_set: Vec<String>,
    /// The set for the package that the server's command line starts.
    pub available: Option<&'static HintSet>,
}

/// A URI scheme, or a scheme and host, in lower case: `jira`, `https://docs.example`.
#[derive(Debug, Clone)]
pub struct Scheme {
    pub text: String,
    pub mark: Mark,
}

/// A directory that a server may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// A `file://` URI, as written.
    Uri(String),
    /// A path that may be relative to the working directory.
    Path(PathBuf),
}

#[derive(Debug, Clone)]
pub enum Connect {
    Stdio {
        command: String,
        /// The references of `command`, which only a client's file has.
        command_template: Option<CommandTemplate>,
        /// Only a client's file has references in them.
        args: Vec<Secret>,
        env: Vec<(String, Secret)>,
        /// Its variables are added to `env` when secrets are resolved.
        env_file: Option<EnvFile>,
        inherit_env: InheritEnv,
        cwd: Option<PathBuf>,
    },
    Http {
        url: Secret,
        headers: Vec<(String, Secret)>,
        /// By agent, instead of those of the same name.
        headers_for: Vec<(String, Vec<(String, Secret)>)>,
        oauth: Option<Box<OAuth>>,
        login: Option<Box<Login>>,
        tls: Option<ServerTls>,
        transport: Option<Transport>,
    },
}

/// How an `https` server is verified, and how the gateway identifies itself to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTls {
    pub ca: Option<PathBuf>,
    /// The client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Server {
    /// The `tls` of a server that is reached over HTTP.
    pub fn client_tls(&self) -> Option<&ServerTls> {
        match &self.connect {
            Connect::Http { tls, .. } => tls.as_ref(),
            Connect::Stdio { .. } => None,
        }
    }

    /// Whether its tokens are exchanged for the JWTs of callers.
    pub fn exchanges(&self) -> bool {
        match &self.connect {
            Connect::Http { oauth: Some(oauth), .. } => {
                oauth.grant != OAuthGrant::ClientCredentials
            }
            _ => false,
        }
    }
}

impl Connect {
    /// Replaces the references of `command` by their values.
    fn expand_command(&mut self) {
        if let Connect::Stdio { command, command_template: Some(template), .. } = self
            && let Some(value) = template.text.value()
        {
            *command = program(value, &template.base);
        }
    }

    /// Adds the variables of `envFile` that `env` does not have.
    fn read_env_file(&mut self, files: &impl Files) -> Result<(), Diagnostic> {
        let Connect::Stdio { env, env_file: Some(file), .. } = self else { return Ok(()) };
        for (name, value) in file.read(files)? {
            if !env.iter().any(|(known, _)| *known == name) {
                env.push((name, Secret::literal(value, file.mark.clone())));
            }
        }
        Ok(())
    }
}

/// The command of a server with references, as a client's file has it.
#[derive(Debug, Clone)]
pub struct CommandTemplate {
    pub(crate) text: Secret,
    /// The directory that a relative path starts from.
    pub(crate) base: PathBuf,
}

/// Environment variables of the gateway that a server inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritEnv {
    /// Those required for connectivity, and those that match.
    Patterns(Vec<String>),
    All,
}

/// OAuth client credentials for a server.
#[derive(Debug, Clone)]
pub struct OAuth {
    pub token_url: Secret,
    pub client_id: Secret,
    pub client_secret: Secret,
    pub scope: Option<String>,
    pub grant: OAuthGrant,
}

/// How the gateway gets a token with its client credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OAuthGrant {
    /// `oauth`: a token of the gateway itself.
    ClientCredentials,
    /// `exchange`: a token that is exchanged for the JWT of the caller.
    Exchange { audience: Option<String> },
}

/// The login of a person at a server (OAuth).
#[derive(Debug, Clone)]
pub struct Login {
    pub client_id: Option<Secret>,
    pub client_secret: Option<Secret>,
    pub scope: Option<String>,
    pub flow: LoginFlow,
    pub of: LoginOf,
    pub resource: LoginResource,
    pub redirect: Option<String>,
    pub client_metadata_url: Option<String>,
    pub issuer: Option<String>,
}

/// How a person logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginFlow {
    Browser,
    Device,
    Paste,
}

/// Whose login a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginOf {
    Gateway,
    Agent,
}

/// The resource that tokens are requested for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginResource {
    Discovered,
    Omitted,
    Url(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Streamable,
    Sse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Lazy,
    Eager,
}

/// Timeouts of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeout {
    /// Idle timeout of tools that match no pattern.
    pub otherwise: Option<Duration>,
    /// Idle timeout by tool name or pattern, first match in file order.
    pub by_tool: Vec<(String, Duration)>,
    /// The maximum duration of a call (`max_timeout`).
    pub most: Option<Duration>,
}

/// Size limits of call results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultBytes {
    /// For tools that match no pattern; `None`: the limit for all responses.
    pub otherwise: Option<u64>,
    /// By tool name or pattern, first match in file order.
    pub by_tool: Vec<(String, u64)>,
}

/// How an agent is identified, and its discovery mode. Its rules are in the policy.
#[derive(Debug, Clone)]
pub struct Agent {
    pub name: String,
    pub tokens: Vec<Token>,
    /// Claims that a JWT must have; all must match.
    pub claims: Vec<(String, serde_json::Value)>,
    pub uids: Vec<u32>,
    pub certificates: Vec<CertificateMark>,
    pub discovery: Discovery,
    pub mark: Mark,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Sha256([u8; 32]),
    Reference(Secret),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    Direct,
    Progressive,
}

#[derive(Debug, Clone)]
pub struct Jwt {
    pub issuer: Secret,
    pub jwks: Jwks,
    /// Empty: `public_url` and path.
    pub audience: Vec<String>,
    pub algorithms: Vec<String>,
    pub leeway: Duration,
    /// The claim that names the agent.
    pub agent_claim: Option<String>,
}

/// The source of the issuer's keys.
#[derive(Debug, Clone)]
pub enum Jwks {
    /// At the address that the issuer's metadata has.
    Discovered,
    Url(Secret),
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    pub dir: PathBuf,
    pub durability: Durability,
    pub arguments: Arguments,
    pub required: bool,
    pub rotate_size: u64,
    pub rotate_age: Duration,
    /// `None`: forever.
    pub retain: Option<Duration>,
    pub redact: Vec<String>,
    /// The rate up to which an agent's refusals and listings are recorded individually.
    pub refusals: toolward_policy::Rate,
    /// Free disk space in bytes below which a warning is logged.
    pub reserve: u64,
    pub sinks: Vec<Sink>,
    /// The key that signs the end of the log.
    pub sign: Option<PathBuf>,
    /// A second place for signatures.
    pub anchor: Option<PathBuf>,
}

impl Default for Audit {
    fn default() -> Self {
        Audit {
            dir: "audit".into(),
            durability: Durability::Process,
            arguments: Arguments::Hash,
            required: true,
            rotate_size: 256 << 20,
            rotate_age: Duration::from_secs(86_400),
            retain: None,
            redact: Vec::new(),
            refusals: toolward_policy::Rate {
                count: 60,
                per: toolward_policy::rate::Per::Minute,
                burst: Some(1000),
            },
            reserve: 256 << 20,
            sinks: Vec::new(),
            sign: None,
            anchor: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Process,
    Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    None,
    Hash,
    Redacted,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}
