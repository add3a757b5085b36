//! Loads a candidate policy from text, without access to files or the environment.

use std::collections::HashMap;
use std::io::{Error, Result as IoResult};
use std::path::{Path, PathBuf};

use toolward_config::{
    Disk, Files, LoadedConfig, Loader, Options, PolicyFile, PolicyFlag, is_configuration,
};

use crate::active_config::Finding;
use crate::load::Input;
use crate::replay::candidate;
use crate::server_settings::ServerSettings;

/// The name of a candidate in findings.
const NAME: &str = "candidate";

/// A policy or a whole configuration, as text.
pub(super) struct Candidate {
    path: PathBuf,
    files: CandidateFiles,
    pub(super) is_whole: bool,
}

/// The only files that a candidate can read.
struct CandidateFiles {
    path: PathBuf,
    text: String,
    /// The policy files of the active configuration.
    layers: Vec<PathBuf>,
}

impl Files for CandidateFiles {
    fn read(&self, path: &Path) -> IoResult<Vec<u8>> {
        if path == self.path {
            return Ok(self.text.clone().into_bytes());
        }
        match self.layers.iter().any(|layer| layer == path) {
            true => Disk.read(path),
            // The same for files that exist and files that do not.
            false => Err(Error::other("a preview reads only the active policy files")),
        }
    }
}

impl Candidate {
    /// `layers`: the names of the active layers, some of which are files.
    pub(super) fn new<'a>(
        text: &str,
        active: &LoadedConfig,
        layers: impl Iterator<Item = &'a str>,
    ) -> Candidate {
        // Paths in a configuration are relative to the main file.
        let main = active.main_file();
        let path = main.and_then(Path::parent).unwrap_or(Path::new("")).join(NAME);
        // The main file is not a policy file: it may contain secrets, which findings could repeat.
        let layers = layers.map(PathBuf::from).filter(|layer| Some(&**layer) != main);
        let layers = layers.filter(|layer| active.files.contains(layer)).collect();
        let is_whole = is_configuration(&path, text);
        let files = CandidateFiles { path: path.clone(), text: text.into(), layers };
        Candidate { path, files, is_whole }
    }

    /// Loads it. Secrets are not resolved.
    pub(super) fn load(&self, servers: &ServerSettings) -> Result<Input, Vec<Finding>> {
        let loader = Loader { files: &self.files, env: HashMap::<String, String>::new() };
        let (options, servers) = match self.is_whole {
            true => (Options { main: Some(self.path.clone()), ..Options::default() }, None),
            false => {
                let path = self.path.clone();
                let file = PolicyFile { path, flag: PolicyFlag::Policy, format: None };
                let options = Options { policies: vec![file], ..Options::default() };
                (options, Some(servers))
            }
        };
        let loaded = candidate::load(&loader, &options, servers);
        loaded.map_err(|found| found.iter().map(Finding::of).collect())
    }
}
