//! The result of loading: configuration, policy source and texts; or the errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolward_policy::source::{AgentsSource, LayerSource, RulesSource, Source};
use toolward_policy::testing::PolicyTest;

use crate::config::Config;
use crate::diagnostics::diagnostic::{Diagnostic, Level};
use crate::diagnostics::text::{Mark, Place, Text};
use crate::read::node::{Node, Value};
use crate::read::syntax::Syntax;

/// A loaded configuration with its policy source, which is not compiled yet.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    pub config: Config,
    pub source: Source,
    pub tests: Vec<PolicyTest>,
    /// Files with `deny` rules.
    pub denying_files: Vec<String>,
    pub warnings: Vec<Diagnostic>,
    /// Files that were read, to watch.
    pub files: Vec<PathBuf>,
    pub(crate) texts: Vec<(Arc<Text>, Syntax)>,
    /// Contents of `policy_sh` files.
    pub(crate) scripts: Vec<(PathBuf, Arc<[u8]>)>,
    /// The first of them is the main file.
    pub(crate) has_main: bool,
    /// Where each exposure is defined, by server; `None`: for every server.
    pub(crate) exposures: Vec<(Option<String>, Mark)>,
}

/// A failed load: errors, and as much of the configuration as could be read.
#[derive(Debug)]
pub struct LoadFailure {
    /// Errors first, then warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// Files that were read or looked for, to watch.
    pub files: Vec<PathBuf>,
    /// The readable part of the main file, sufficient only for a gateway that denies everything.
    pub config: Box<Config>,
}

impl LoadedConfig {
    /// A gateway that runs but allows nothing: only listeners and the audit log come from the
    /// configuration.
    pub fn denying(config: Config) -> LoadedConfig {
        let Config { mut listen, tls, admin, admin_stated, state, naming, separator, .. } = config;
        let Config { list_timeout, limits_of, mut audit, mut telemetry, public_url, .. } = config;
        // If no address could be read, the default applies.
        if listen.is_empty() {
            listen = Config::default().listen;
        }
        // An invalid configuration must not send data to others.
        audit.sinks.clear();
        telemetry.otlp = None;
        (audit.sign, audit.anchor) = (None, None);
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
        let nobody = AgentsSource::default();
        let name = "nothing is allowed: the configuration is not valid".into();
        let layers = vec![LayerSource { name, rules: RulesSource::Agents(nobody) }];
        LoadedConfig {
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

impl LoadedConfig {
    /// A diagnostic for a loaded entry, e.g. a condition that does not compile: `file` is
    /// the name of the entry's layer, `place` the location of the entry.
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

    /// The file that defines the exposure of a server.
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

    /// Whether a file of the configuration or policy holds the same data as in `other`: only comments, blank
    /// lines or layout differ. False for files of other kinds.
    pub fn has_same_data(&self, other: &LoadedConfig, file: &Path) -> bool {
        let find = |loaded: &LoadedConfig| {
            loaded.texts.iter().find(|(text, _)| Path::new(text.name()) == file).cloned()
        };
        let (Some((this, syntax)), Some((that, other))) = (find(self), find(other)) else {
            return false;
        };
        let (this, that) = (syntax.parse(this.content()), other.parse(that.content()));
        syntax == other && this.is_ok_and(|this| that.is_ok_and(|that| this.has_data_of(&that)))
    }

    /// The main file, if any.
    pub fn main_file(&self) -> Option<&Path> {
        self.texts.first().filter(|_| self.has_main).map(|(text, _)| Path::new(text.name()))
    }

    /// Spans are not kept after loading: the text is parsed again.
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

/// The outermost value that begins at an offset.
fn node_at<'n, 't>(node: &'n Node<'t>, offset: u32) -> Option<&'n Node<'t>> {
    if node.span.start == offset {
        // If a list begins with its first entry, the entry is meant.
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
