//! Paths of the client table on a machine.

use std::path::{Path, PathBuf};

use crate::clients::table::{Base, Client, Location, Platform};

/// A machine with clients: everything that determines the paths of their files.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) platform: Platform,
    pub(crate) home: PathBuf,
    /// Variables that move files, such as `XDG_CONFIG_HOME`.
    pub(crate) env: Vec<(String, PathBuf)>,
    /// The directory of a project, whose files are included.
    pub(crate) project: Option<PathBuf>,
}

/// Variables that [`Machine::here`] reads from the environment.
const VARIABLES: [&str; 7] = [
    "XDG_CONFIG_HOME",
    "APPDATA",
    "LOCALAPPDATA",
    "CLAUDE_CONFIG_DIR",
    "CLINE_DIR",
    "CODEX_HOME",
    "COPILOT_HOME",
];

/// A file that a client may have.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) client: &'static Client,
    pub(crate) location: &'static Location,
    pub(crate) file: PathBuf,
}

impl Machine {
    /// The machine that the program runs on; `None` without a home directory.
    pub(crate) fn here(project: Option<PathBuf>) -> Option<Machine> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let env = VARIABLES.iter().filter_map(|name| {
            let path = PathBuf::from(variable(name)?);
            path.is_absolute().then(|| (name.to_string(), path))
        });
        let home = PathBuf::from(variable("HOME")?);
        Some(Machine { platform: Platform::Linux, home, env: env.collect(), project })
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        let found = self.env.iter().find(|(known, _)| known == name);
        found.map(|(_, path)| path.clone())
    }

    pub(crate) fn base(&self, base: Base) -> Option<PathBuf> {
        let home = |path: &str| self.home.join(path);
        Some(match (base, self.platform) {
            (Base::Home, _) => self.home.clone(),
            (Base::Settings, Platform::MacOs) => home("Library/Application Support"),
            (Base::Settings, Platform::Windows) => {
                self.variable("APPDATA").unwrap_or_else(|| home("AppData/Roaming"))
            }
            (Base::Settings | Base::DotConfig, Platform::Linux) => {
                self.variable("XDG_CONFIG_HOME").unwrap_or_else(|| home(".config"))
            }
            (Base::DotConfig, _) => home(".config"),
            (Base::LocalAppData, _) => {
                self.variable("LOCALAPPDATA").unwrap_or_else(|| home("AppData/Local"))
            }
            (Base::Variable(name, default), _) => {
                self.variable(name).unwrap_or_else(|| home(default))
            }
            (Base::Project, _) => self.project.clone()?,
        })
    }

    /// The files that a client may have here, whether they exist or not. `*` is every directory that exists.
    pub(crate) fn candidates(&self, client: &'static Client) -> Vec<Candidate> {
        let here = client.files.iter().filter(|location| location.on.contains(&self.platform));
        here.filter_map(|location| {
            let base = self.base(location.base)?;
            let files = match location.path.split_once("/*/") {
                Some((above, below)) => directories(&base.join(above), below),
                None => vec![base.join(location.path)],
            };
            Some(files.into_iter().map(move |file| Candidate { client, location, file }))
        })
        .flatten()
        .collect()
    }
}

/// A file below every directory in a directory.
fn directories(above: &Path, below: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path().join(below)).collect();
    files.sort();
    files
}
