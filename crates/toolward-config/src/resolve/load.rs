//! The loader: finds the main file, reads every file it references, and adds flags and environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{BundleSource, Hook, HookKind};
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::{Mark, Text};
use crate::formats::client;
use crate::formats::{Format, is_script};
use crate::io::Directories;
use crate::io::{Env, Files, reason};
use crate::read::syntax::Syntax;
use crate::resolve::environment;
use crate::resolve::loaded::{LoadFailure, LoadedConfig};
use crate::resolve::merge::{
    Assembly, LayerOptions, PolicySource, ReferencedFiles, ReferencedPolicy, Role,
};

/// The variable that names the main file.
pub const CONFIG_VARIABLE: &str = "TOOLWARD_CONFIG";

/// The user's configuration, below the home directory.
pub const USER_CONFIGURATION: &str = ".config/toolward/toolward.yaml";

/// Load options of the command line.
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
    /// This is a reload: an allowlist that has become empty is an error.
    pub reload: bool,
    /// A `--policy` file may also be a whole configuration, of which only the policy is read.
    pub whole_configurations: bool,
}

/// A policy file on the command line.
#[derive(Debug, Clone)]
pub struct PolicyFile {
    pub path: PathBuf,
    pub flag: PolicyFlag,
    /// `--format`; `None`: detected by content.
    pub format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyFlag {
    Policy,
    AllowlistConfig,
}

/// Loads the configuration through given files and environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loader<F, E> {
    pub files: F,
    pub env: E,
}

/// Whether the content of a JSON file is that of a client's file.
fn is_client_content(text: &str) -> bool {
    Syntax::Jsonc.parse(text).is_ok_and(|root| client::is_client_content(&root))
}

/// Clients accept comments in JSON.
fn with_comments(syntax: Syntax) -> Syntax {
    if syntax == Syntax::Json { Syntax::Jsonc } else { syntax }
}

impl<F: Files, E: Env> Loader<F, E> {
    /// Loads everything, in the order in which a call must pass it: the main file's agents, its
    /// allowlist, its `policies`, files of the command line, the environment, read-only mode.
    pub fn load(&self, options: &Options) -> Result<LoadedConfig, LoadFailure> {
        let mut assembly = Assembly::default();
        let home = self.home();
        assembly.config.state = Directories { base: Path::new(""), home: home.as_deref() }.state();
        if let Some(main) = self.main_file(options, &mut assembly) {
            self.main(&main, &mut assembly, options);
        }
        for policy in &options.policies {
            let given = LayerOptions {
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

    /// Watches the files of hooks, so that a running gateway reloads them when they change.
    fn hook_files(&self, assembly: &mut Assembly) {
        let file = |hook: &Hook| match &hook.kind {
            HookKind::PolicySh(file) if hook.enabled => Some(file.clone()),
            _ => None,
        };
        let files: Vec<PathBuf> = assembly.config.hooks.iter().filter_map(file).collect();
        for file in files {
            // The code that uses the value reports the error.
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
        let home = self.home().map(|home| home.join(USER_CONFIGURATION));
        let places = std::iter::once(PathBuf::from("toolward.yaml")).chain(home);
        for path in places {
            match self.files.read(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => assembly.watch(&path),
                // A file that exists but cannot be read is reported by the code that reads it.
                _ => return Some(path),
            }
        }
        None
    }

    fn home(&self) -> Option<PathBuf> {
        self.env.var("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
    }

    /// The bundles of the main file, and the state directory. Errors are left to [`Loader::load`].
    pub fn bundles(&self, options: &Options) -> (Vec<BundleSource>, Option<PathBuf>) {
        let mut assembly = Assembly::default();
        let home = self.home();
        assembly.config.state = Directories { base: Path::new(""), home: home.as_deref() }.state();
        if let Some(path) = self.main_file(options, &mut assembly)
            && let Some((text, syntax)) = self.text(&path, None, false, &mut assembly)
        {
            let base = path.parent().unwrap_or(Path::new(""));
            let directories = Directories { base, home: home.as_deref() };
            assembly.main(&text, syntax, &directories, false);
        }
        (assembly.config.bundles, assembly.config.state)
    }

    fn main(&self, path: &Path, assembly: &mut Assembly, options: &Options) {
        let home = self.home();
        let base = path.parent().unwrap_or(Path::new(""));
        let directories = Directories { base, home: home.as_deref() };
        // The default, even if nothing in the file could be read.
        assembly.config.audit.dir = directories.path("audit");
        let Some((text, syntax)) = self.text(path, None, false, assembly) else {
            return;
        };
        let is_client = client::is_client_file(path)
            || (syntax == Syntax::Json && is_client_content(text.content()));
        let syntax = if is_client { with_comments(syntax) } else { syntax };
        let own_base = if is_client { client::base(path) } else { base.to_owned() };
        let directories = Directories { base: &own_base, ..directories };
        let ReferencedFiles { policies, servers_from } =
            assembly.main(&text, syntax, &directories, is_client);
        for (written, mark) in servers_from {
            self.servers_from(&directories.path(&written), mark, home.as_deref(), assembly);
        }
        for ReferencedPolicy { source, shadow } in policies {
            let given = LayerOptions {
                role: Role::Layer,
                format: None,
                allowlist: false,
                reload: options.reload,
            };
            let mut alone = Assembly::default();
            match (source, shadow) {
                (PolicySource::File(path, mark), true) => {
                    self.shadow_layer(&directories.path(&path), mark, given, &mut alone);
                    assembly.add_shadow(alone);
                }
                (PolicySource::File(path, mark), false) => {
                    self.layer(&directories.path(&path), Some(mark), given, assembly);
                }
                (PolicySource::Bundle(bundle), true) => {
                    alone.config.state = assembly.config.state.clone();
                    self.bundle(&bundle, given, &mut alone);
                    assembly.add_shadow(alone);
                }
                (PolicySource::Bundle(bundle), false) => self.bundle(&bundle, given, assembly),
            }
        }
    }

    fn shadow_layer(&self, path: &Path, named: Mark, given: LayerOptions, assembly: &mut Assembly) {
        if let Some((text, syntax)) = self.text(path, Some(named), false, assembly) {
            assembly.layer(&text, syntax, given);
        }
    }

    /// The servers of a client's file.
    fn servers_from(&self, path: &Path, named: Mark, home: Option<&Path>, assembly: &mut Assembly) {
        let Some((text, syntax)) = self.text(path, Some(named), false, assembly) else { return };
        let base = client::base(path);
        let directories = Directories { base: &base, home };
        assembly.servers_from(&text, with_comments(syntax), &directories);
    }

    fn layer(
        &self,
        path: &Path,
        named: Option<Mark>,
        given: LayerOptions,
        assembly: &mut Assembly,
    ) {
        let may_be_hook = !given.allowlist && given.format.is_none();
        if let Some((text, syntax)) = self.text(path, named, may_be_hook, assembly) {
            let syntax = if given.format == Some(Format::Toml) { Syntax::Toml } else { syntax };
            assembly.layer(&text, syntax, given);
        }
    }

    /// The text of a file, which may be referenced in another one. `None` if it cannot be read or
    /// is a program.
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
                        "pass it with `--policy`, or list it in `policies`: it then becomes a hook";
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
