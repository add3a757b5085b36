//! The demo's files: those of a running demo, and those that `--write` creates.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

const CONFIG: &str = include_str!("toolward.yaml");
const POLICY: &str = include_str!("policy.yaml");
const README: &str = include_str!("README.md");

/// The agents, in the order of the configuration, each with a description.
const AGENTS: [(&str, &str); 3] = [
    ("reader", "reads, changes nothing"),
    ("maintainer", "almost everything, but nothing destructive"),
    ("visitor", "not in the policy: the rules of `default` apply"),
];

/// An agent with its token.
pub(super) struct Agent {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) token: String,
}

/// The agents, with fresh random tokens.
pub(super) fn agents() -> io::Result<[Agent; 3]> {
    let mut made = Vec::new();
    for (name, about) in AGENTS {
        made.push(Agent { name, about, token: format!("{name}-{}", random()?) });
    }
    made.try_into().map_err(|_| io::Error::other("there are three agents"))
}

/// The paths of the demo.
pub(super) struct DemoPaths {
    pub(super) folder: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) page: SocketAddr,
    /// The program itself, which also contains the servers.
    pub(super) program: String,
}

impl DemoPaths {
    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("toolward.yaml")
    }

    pub(super) fn policy(&self) -> PathBuf {
        self.folder.join("policy.yaml")
    }

    pub(super) fn tokens(&self) -> PathBuf {
        self.folder.join("tokens.txt")
    }

    /// The files: path, content and mode. Only the file with the tokens is private.
    fn files(&self, agents: &[Agent]) -> [(PathBuf, String, u32); 4] {
        // A JSON string is also a YAML string.
        let program = format!("command: {}", json!(self.program));
        let mut config = CONFIG
            .replace("command: toolward", &program)
            .replace("127.0.0.1:7410", &self.listen.to_string())
            .replace("127.0.0.1:7411", &self.page.to_string());
        let mut tokens = String::new();
        for (at, agent) in (1..).zip(agents) {
            let hash = Sha256::digest(&agent.token);
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            config = config.replace(&format!("{at:064}"), &hash);
            tokens.push_str(&format!("{:<12}{}\n", agent.name, agent.token));
        }
        let readme = README.replace("http://127.0.0.1:7410", &format!("http://{}", self.listen));
        [
            (self.config(), config, 0o644),
            (self.policy(), POLICY.into(), 0o644),
            (self.folder.join("README.md"), readme, 0o644),
            (self.tokens(), tokens, 0o600),
        ]
    }

    /// A file that already exists.
    pub(super) fn taken(&self) -> Option<PathBuf> {
        let files = self.files(&[]).into_iter().map(|(path, ..)| path);
        files.into_iter().find(|path| path.symlink_metadata().is_ok())
    }

    /// Writes all files, without overwriting any.
    pub(super) fn write(&self, agents: &[Agent]) -> io::Result<()> {
        for (path, content, mode) in self.files(agents) {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
            file.write_all(content.as_bytes())?;
        }
        Ok(())
    }
}

/// A private temporary directory, removed on drop.
pub(super) struct Temporary(PathBuf);

impl Temporary {
    pub(super) fn new() -> io::Result<Temporary> {
        let folder = std::env::temp_dir().join(format!("toolward-demo-{:.8}", random()?));
        make_private(&folder)?;
        Ok(Temporary(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A thread that still runs may create a file while the directory is removed.
        for _ in 0..REMOVE_ATTEMPTS {
            match std::fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(REMOVE_INTERVAL);
                }
                _ => return,
            }
        }
    }
}

const REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_INTERVAL: Duration = Duration::from_millis(10);

/// Creates a private directory, which must not exist.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// Creates a private directory if it does not exist.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above)?;
    }
    make_private(folder)
}

/// 128 random bits.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_in_the_files() {
        assert_eq!(CONFIG.matches("command: toolward").count(), 2);
        for at in 1..=AGENTS.len() {
            assert_eq!(CONFIG.matches(&format!("{at:064}")).count(), 1);
        }
        let place = DemoPaths {
            folder: "f".into(),
            listen: "127.0.0.1:1".parse().unwrap(),
            page: "127.0.0.1:2".parse().unwrap(),
            program: "/a \"b\"/toolward".into(),
        };
        let agents = agents().unwrap();
        let [(_, config, _), _, (_, readme, _), (_, tokens, _)] = place.files(&agents);
        assert!(config.contains("listen: 127.0.0.1:1 ") && config.contains("admin: 127.0.0.1:2 "));
        assert_eq!(config.matches(r#"command: "/a \"b\"/toolward""#).count(), 2, "{config}");
        assert!(!config.contains("00000000") && !readme.contains("7410"));
        for agent in &agents {
            assert!(tokens.contains(&agent.token) && !config.contains(&agent.token));
        }
        assert_ne!(agents[0].token.split('-').nth(1), agents[1].token.split('-').nth(1));
    }
}
