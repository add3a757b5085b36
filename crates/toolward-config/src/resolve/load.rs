//! Everything that is in force, from files, flags and environment: found, read, and put in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolward_policy::source::{AgentsSource, LayerSource, RulesSource, Source};
use toolward_policy::testing::PolicyTest;

use crate::config::{Config, Hook, HookKind};
use crate::diagnostics::diagnostic::{Diagnostic, Level};
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::{Mark, Place, Text};
use crate::formats::client;
use crate::formats::{Format, Syntax, is_script};
use crate::io::{Env, Files, reason};
use crate::read::node::{Node, Value};
use crate::resolve::environment;
use crate::resolve::main_file::Folders;
use crate::resolve::merge::{Assembly, Given, Named, Role};

/// The variable that names the main file.
pub const CONFIG_VARIABLE: &str = "TOOLWARD_CONFIG";

/// What the command line asks to load.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `-c FILE`.
    pub main: Option<PathBuf>,
    /// Without `-c`, look at `TOOLWARD_CONFIG`, `./toolward.yaml` and
    /// `~/.config/toolward/toolward.yaml`.
    pub search: bool,
    /// `--policy` and `--allowlist-config`, in the order given.
    pub policies: Vec<PolicyFile>,
    /// `--read-only`.
    pub read_only: bool,
    /// A running gateway loads anew: an allowlist that has become empty is an error then.
    pub reload: bool,
    /// A `--policy` file may also be a whole configuration, of which only the policy is read.
    pub whole_configurations: bool,
}

/// A policy file on the command line.
#[derive(Debug, Clone)]
pub struct PolicyFile {
    pub path: PathBuf,
    pub flag: PolicyFlag,
    /// `--format`; `None`: told by content.
    pub format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyFlag {
    Policy,
    AllowlistConfig,
}

/// Reads the configuration through its view of the outside world.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loader<F, E> {
    pub files: F,
    pub env: E,
}

/// What was loaded. The policy is not compiled yet.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    pub source: Source,
    pub tests: Vec<PolicyTest>,
    /// Files with `deny` rules.
    pub denying_files: Vec<String>,
    pub warnings: Vec<Diagnostic>,
    /// Files that were read, to be watched.
    pub files: Vec<PathBuf>,
    pub(crate) texts: Vec<(Arc<Text>, Syntax)>,
    /// Contents of `policy_sh` files.
    pub(crate) scripts: Vec<(PathBuf, Arc<[u8]>)>,
    /// The first of them is the main file.
    pub(crate) has_main: bool,
    /// Who gave which exposure, by server; without a name: every server's.
    pub(crate) exposures: Vec<(Option<String>, Mark)>,
}

/// Why nothing was loaded.
#[derive(Debug)]
pub struct Failed {
    /// Errors first, then warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// Files that were read or looked for, to be watched.
    pub files: Vec<PathBuf>,
    /// As much of the main file as could be read; nobody may rely on it for more than to say no.
    pub config: Box<Config>,
}

impl Loaded {
    /// A gateway that is there, and allows nobody anything: where it listens and what it writes is the
    /// configuration's, nothing else.
    pub fn denying(config: Config) -> Loaded {
        let Config { mut listen, tls, admin, admin_stated, state, naming, separator, .. } = config;
        let Config { list_timeout, limits_of, mut audit, mut telemetry, public_url, .. } = config;
        // An address that could not be read leaves the usual one.
        if listen.is_empty() {
            listen = Config::default().listen;
        }
        // Nothing is sent to others for a configuration that is not right.
        audit.sinks.clear();
        telemetry.otlp = None;
        let config = Config {
            listen,
            tls,
            admin,
            admin_stated,
            state,
            naming,
            separator,
            list_timeout,
            limits_of,
            audit,
            telemetry,
            public_url,
            ..Config::default()
        };
        let nobody = AgentsSource { agents: Vec::new(), deny_on_missing_agent: true };
        let name = "nothing is allowed: the configuration is not valid".into();
        let layers = vec![LayerSource { name, rules: RulesSource::Agents(nobody) }];
        Loaded {
            config,
            source: Source { layers, ..Source::default() },
            tests: Vec::new(),
            denying_files: Vec::new(),
            warnings: Vec::new(),
            files: Vec::new(),
            texts: Vec::new(),
            scripts: Vec::new(),
            has_main: false,
            exposures: Vec::new(),
        }
    }
}

impl Loaded {
    /// A finding about an entry that was loaded, e.g. a condition that does not compile: `file` is
    /// the name of the entry's layer, `place` the entry's.
    pub fn diagnostic_at(
        &self,
        level: Level,
        file: &str,
        place: Place,
        message: &str,
    ) -> Diagnostic {
        let diagnostic = Diagnostic::new(level, message);
        match self.mark_at(file, place, None) {
            Some(mark) => diagnostic.at_mark(mark),
            None => diagnostic,
        }
    }

    /// The same, pointing at a value inside the entry, e.g. its `when`.
    pub fn diagnostic_in(
        &self,
        level: Level,
        file: &str,
        place: Place,
        key: &str,
        message: &str,
    ) -> Diagnostic {
        match self.mark_at(file, place, Some(key)) {
            Some(mark) => Diagnostic::new(level, message).at_mark(mark),
            None => self.diagnostic_at(level, file, place, message),
        }
    }

    /// The file that says what a server exposes.
    pub fn exposure_file(&self, server: &str) -> Option<&str> {
        let given = |owner: &Option<String>| owner.as_deref().is_none_or(|name| name == server);
        self.exposures.iter().find(|(owner, _)| given(owner)).map(|(_, mark)| mark.text.name())
    }

    /// Every file that defines the policy with its content: configuration, layers, `policy_sh` scripts.
    pub fn sources(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        let texts = self.texts.iter().map(|(text, _)| text);
        let texts = texts.map(|text| (Path::new(text.name()), text.content().as_bytes()));
        texts.chain(self.scripts.iter().map(|(path, bytes)| (path.as_path(), &**bytes)))
    }

    /// The main file, where there is one.
    pub fn main_file(&self) -> Option<&Path> {
        self.texts.first().filter(|_| self.has_main).map(|(text, _)| Path::new(text.name()))
    }

    /// Spans are not kept for the case that one is asked for: the text is read once more.
    fn mark_at(&self, file: &str, place: Place, key: Option<&str>) -> Option<Mark> {
        let (text, syntax) = self.texts.iter().find(|(text, _)| text.name() == file)?;
        let offset = text.offset(place)?;
        let root = syntax.parse(text.content()).ok()?;
        let node = node_at(&root, offset)?;
        let node = match key {
            Some(key) => node.get(key)?,
            None => node,
        };
        Some(Mark { text: Arc::clone(text), span: node.span })
    }
}

/// Clients accept comments in JSON.
fn with_comments(syntax: Syntax) -> Syntax {
    if syntax == Syntax::Json { Syntax::Jsonc } else { syntax }
}

/// The outermost value that begins at an offset.
fn node_at<'n, 't>(node: &'n Node<'t>, offset: u32) -> Option<&'n Node<'t>> {
    if node.span.start == offset {
        // A list that begins with its first entry is not meant: the entry is.
        if !matches!(node.value, Value::Seq(_)) {
            return Some(node);
        }
    }
    let inside = |node: &&Node<'_>| {
        node.span.start <= offset && offset < node.span.end.max(node.span.start + 1)
    };
    match &node.value {
        Value::Seq(items) => items.iter().find(inside).and_then(|node| node_at(node, offset)),
        Value::Map(map) => {
            map.iter().map(|(_, node)| node).find(inside).and_then(|node| node_at(node, offset))
        }
        _ => None,
    }
}

impl<F: Files, E: Env> Loader<F, E> {
    /// Loads everything, in the order in which a call must pass it: the main file's agents, its
    /// allowlist, its `policies`, files of the command line, the environment, read-only mode.
    pub fn load(&self, options: &Options) -> Result<Loaded, Failed> {
        let mut assembly = Assembly::default();
        let home = self.home();
        assembly.config.state = Folders { base: Path::new(""), home: home.as_deref() }.state();
        if let Some(main) = self.main_file(options, &mut assembly) {
            self.main(&main, &mut assembly, options);
        }
        for policy in &options.policies {
            let given = Given {
                role: if options.whole_configurations { Role::Either } else { Role::Layer },
                format: policy.format,
                allowlist: policy.flag == PolicyFlag::AllowlistConfig,
                reload: options.reload,
            };
            self.layer(&policy.path, None, given, &mut assembly);
        }
        self.hook_files(&mut assembly);
        environment::allowlist(&self.env, &mut assembly);
        environment::read_only(&self.env, options.read_only, &mut assembly);
        assembly.finish()
    }

    /// Files that hooks are made of: a gateway that runs takes them up anew when they change.
    fn hook_files(&self, assembly: &mut Assembly) {
        let file = |hook: &Hook| match &hook.kind {
            HookKind::PolicySh(file) if hook.enabled => Some(file.clone()),
            _ => None,
        };
        let files: Vec<PathBuf> = assembly.config.hooks.iter().filter_map(file).collect();
        for file in files {
            // Whoever uses it says what is wrong with it.
            if let Ok(bytes) = self.files.read(&file) {
                assembly.know_script(&file, bytes);
            }
            assembly.watch(&file);
        }
    }

    fn main_file(&self, options: &Options, assembly: &mut Assembly) -> Option<PathBuf> {
        if options.main.is_some() || !options.search {
            return options.main.clone();
        }
        match self.env.var(CONFIG_VARIABLE) {
            Some(path) if !path.is_empty() => return Some(PathBuf::from(path)),
            _ => {}
        }
        let home = self.home().map(|home| home.join(".config/toolward/toolward.yaml"));
        let places = std::iter::once(PathBuf::from("toolward.yaml")).chain(home);
        for path in places {
            match self.files.read(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => assembly.watch(&path),
                // A file that is there but cannot be read is reported where it is read.
                _ => return Some(path),
            }
        }
        None
    }

    fn home(&self) -> Option<PathBuf> {
        self.env.var("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
    }

    fn main(&self, path: &Path, assembly: &mut Assembly, options: &Options) {
        let home = self.home();
        let base = path.parent().unwrap_or(Path::new(""));
        let folders = Folders { base, home: home.as_deref() };
        // Where it is also for a file that says nothing that could be read.
        assembly.config.audit.dir = folders.path("audit");
        let Some((text, syntax)) = self.text(path, None, false, assembly) else {
            return;
        };
        let is_client = client::is_client_file(path);
        let syntax = if is_client { with_comments(syntax) } else { syntax };
        let own_base = if is_client { client::base(path) } else { base.to_owned() };
        let folders = Folders { base: &own_base, ..folders };
        let Named { policies, servers_from } = assembly.main(&text, syntax, &folders, is_client);
        for (written, mark) in servers_from {
            self.servers_from(&folders.path(&written), mark, home.as_deref(), assembly);
        }
        for (written, mark) in policies {
            let given =
                Given { role: Role::Layer, format: None, allowlist: false, reload: options.reload };
            self.layer(&folders.path(&written), Some(mark), given, assembly);
        }
    }

    /// The servers of a client's file.
    fn servers_from(&self, path: &Path, named: Mark, home: Option<&Path>, assembly: &mut Assembly) {
        let Some((text, syntax)) = self.text(path, Some(named), false, assembly) else { return };
        let base = client::base(path);
        let folders = Folders { base: &base, home };
        assembly.servers_from(&text, with_comments(syntax), &folders);
    }

    fn layer(&self, path: &Path, named: Option<Mark>, given: Given, assembly: &mut Assembly) {
        let may_be_hook = !given.allowlist && given.format.is_none();
        if let Some((text, syntax)) = self.text(path, named, may_be_hook, assembly) {
            let syntax = if given.format == Some(Format::Toml) { Syntax::Toml } else { syntax };
            assembly.layer(&text, syntax, given);
        }
    }

    /// The text of a file, which may be named in another one. `None` where it has none: it cannot be
    /// read, or it is a program.
    fn text(
        &self,
        path: &Path,
        named: Option<Mark>,
        may_be_hook: bool,
        assembly: &mut Assembly,
    ) -> Option<(Arc<Text>, Syntax)> {
        assembly.watch(path);
        let name = path.display().to_string();
        let bytes = match self.files.read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let message =
                    format!("the file {} cannot be read: {}", quoted(&name), reason(&error));
                let diagnostic =
                    Diagnostic::error(message).help("check the path and its permissions");
                assembly.report(match named {
                    Some(mark) => diagnostic.at_mark(mark),
                    None => diagnostic,
                });
                return None;
            }
        };
        if is_script(path, &bytes) {
            match may_be_hook {
                true => {
                    assembly.script(Hook::of_script(path, &bytes));
                    assembly.know_script(path, bytes);
                }
                false => {
                    let message = format!("{} is a program, not a configuration", quoted(&name));
                    let help =
                        "give it with `--policy`, or name it in `policies`: it is then a hook";
                    assembly.report(Diagnostic::error(message).help(help));
                }
            }
            return None;
        }
        match Text::from_bytes(name, bytes) {
            Ok(text) => {
                let syntax = Syntax::of_file(path, text.content());
                Some((text, syntax))
            }
            Err(diagnostic) => {
                assembly.report(diagnostic);
                None
            }
        }
    }
}
