//! The measured gateway: an agent with a token, a policy of 100 rules, and the audit log.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};
use toolward_testkit::load::{Kind, Target, once};

use super::{Bench, Result};
use crate::process::{Process, free_port};

pub(super) const TOKEN: &str = "bench-token-8a1f0c7e5d";

/// The rules of the agent.
#[derive(Clone, Copy)]
pub(super) enum Rules {
    /// For the server `echo`: names and patterns of tools that do not exist, and `echo` last.
    Mixed,
    /// For every server: the names of all tools of a list of 100.
    All,
    /// For the server `echo`: this many names, the last of which is `echo`.
    Names(usize),
    /// For the server `echo`: 100 rules each for tools, prompts and resources; the last ones match.
    Kinds,
}

impl Rules {
    fn entries(self) -> Vec<String> {
        let mut rules: Vec<String> = match self {
            Rules::Mixed | Rules::Kinds => {
                let names = (1..=50).map(|at| format!("other_{at:03}"));
                let patterns = (1..=48).map(|at| format!("get_{at:03}_*"));
                names.chain(patterns).chain(["touch".into()]).collect()
            }
            Rules::All => (1..=99).map(|at| format!("tool_{at:03}")).collect(),
            Rules::Names(rules) => (1..rules).map(|at| format!("other_{at:06}")).collect(),
        };
        rules.push("echo".into());
        rules
    }

    /// The agent's lines, without an identity.
    fn agent(self) -> String {
        let server = match self {
            Rules::Mixed | Rules::Names(_) | Rules::Kinds => "echo",
            Rules::All => "*",
        };
        let list = |kind: &str, rules: &[String]| {
            let rules = rules.iter().map(|rule| format!("          - \"{rule}\"\n"));
            let rules: String = rules.collect();
            format!("      {kind}:\n        \"{server}\":\n{rules}")
        };
        let mut text = format!("agents:\n  bench:\n    allow:\n      servers: [\"{server}\"]\n");
        text += &list("tools", &self.entries());
        if matches!(self, Rules::Kinds) {
            text += &list("prompts", &self.entries());
            let names = (1..=50).map(|at| format!("bench://other/{at:03}"));
            let rules = names.chain((1..=49).map(|at| format!("bench://more-{at:03}/*")));
            text += &list("resources", &rules.chain(["bench://docs/*".into()]).collect::<Vec<_>>());
        }
        text
    }
}

/// Writes a policy for `toolward wrap`.
pub(super) fn write_policy(file: &Path) -> Result<()> {
    std::fs::write(file, Rules::Mixed.agent()).map_err(|error| format!("the policy: {error}"))
}

/// Why the program cannot serve over HTTP.
pub(super) fn missing(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.args(["serve", "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => None,
        Ok(_) => Some("this build has no `toolward serve`".into()),
        Err(error) => Some(format!("`{}` cannot be started: {error}", program.display())),
    }
}

/// A running gateway.
pub(super) struct Toolward {
    pub(super) process: Process,
    pub(super) url: String,
}

/// The address of the admin UI, and its token.
#[derive(Clone)]
pub(super) struct PageAt {
    pub(super) port: u16,
    pub(super) token: String,
    /// With slashes around it.
    pub(super) path: String,
}

/// The configuration of a gateway, which can be started several times.
pub(super) struct Setup {
    folder: PathBuf,
    port: u16,
    /// A tool that must be in its list.
    tool: String,
}

impl Setup {
    /// Writes the configuration of a gateway in front of these servers, which have URLs.
    pub(super) fn new(bench: &Bench, servers: &[(String, &str)], rules: Rules) -> Result<Setup> {
        let server = |(name, url): &(String, &str)| (name.clone(), format!("url: \"{url}\""));
        Setup::of(bench, &servers.iter().map(server).collect::<Vec<_>>(), rules)
    }

    /// The same, with the definitions of servers as the inside of a YAML flow mapping.
    pub(super) fn of(bench: &Bench, servers: &[(String, String)], rules: Rules) -> Result<Setup> {
        let folder = bench.subfolder("toolward")?;
        let port = free_port()?;
        let hash = Sha256::digest(TOKEN).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let mut text = format!(
            "listen: 127.0.0.1:{port}\nadmin: off\nstate: state\naudit: {{ dir: audit }}\nservers:\n"
        );
        for (name, definition) in servers {
            let _ = writeln!(text, "  {name}: {{ {definition} }}");
        }
        text += &rules.agent();
        let _ = writeln!(text, "    tokens: [\"sha256:{hash}\"]");
        std::fs::write(folder.join("toolward.yaml"), text)
            .map_err(|error| format!("the configuration: {error}"))?;
        let tool = servers.last().map(|(name, _)| format!("{name}__echo")).unwrap_or_default();
        Ok(Setup { folder, port, tool })
    }

    /// The same, with additional configuration.
    pub(super) fn and(self, more: &str) -> Result<Setup> {
        self.edit(|text| text + more)
    }

    fn edit(self, change: impl FnOnce(String) -> String) -> Result<Setup> {
        let file = self.folder.join("toolward.yaml");
        let text = std::fs::read_to_string(&file).map(change);
        let written = text.and_then(|text| std::fs::write(file, text));
        written.map(|()| self).map_err(|error| format!("the configuration: {error}"))
    }

    /// The same, with `durability: disk`.
    pub(super) fn on_disk(self) -> Result<Setup> {
        self.edit(|text| text.replace("dir: audit", "dir: audit, durability: disk"))
    }

    /// The same, with an admin UI; also returns its port.
    pub(super) fn with_page(self) -> Result<(Setup, u16)> {
        let port = free_port()?;
        let address = format!("admin: 127.0.0.1:{port}");
        Ok((self.edit(|text| text.replacen("admin: off", &address, 1))?, port))
    }

    /// The admin UI of a gateway that was started with one.
    pub(super) fn page(&self, port: u16) -> Result<PageAt> {
        let wrong = |error: std::io::Error| format!("the admin UI: {error}");
        let token = std::fs::read_to_string(self.folder.join("state/admin.token"));
        let token = token.map_err(wrong)?.trim().to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(wrong)?;
        let ask = format!(
            "GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).map_err(wrong)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(wrong)?;
        let mut lines = answer.lines().filter_map(|line| line.split_once(": "));
        let path = lines.find(|(name, _)| name.eq_ignore_ascii_case("location"));
        let path = path.map(|(_, path)| path.to_string());
        let path = path.ok_or_else(|| format!("the admin UI rejects its token: {answer}"))?;
        Ok(PageAt { port, token, path })
    }

    /// Starts the gateway, and waits until it lists its tools.
    pub(super) fn start(&self, bench: &Bench) -> Result<Toolward> {
        self.start_program(&bench.toolward)
    }

    /// Adds the arguments of the program to a command; returns the URL at which it will serve.
    pub(super) fn serve_with(&self, command: &mut Command) -> String {
        command.arg("serve").arg("-c").arg(self.folder.join("toolward.yaml"));
        command.current_dir(&self.folder);
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The same, with another build.
    pub(super) fn start_program(&self, program: &Path) -> Result<Toolward> {
        let mut command = Command::new(program);
        let url = self.serve_with(&mut command);
        let mut process = Process::start("toolward", &mut command, &self.folder)?;
        let target = target(&url)?;
        let shown = format!("\"{}\"", self.tool);
        process.wait_for(Duration::from_micros(200), || {
            let list = once(&target, Kind::List).map_err(|error| error.to_string())?;
            match String::from_utf8_lossy(&list).contains(&shown) {
                true => Ok(()),
                false => Err(format!("its list does not show `{}`", self.tool)),
            }
        })?;
        Ok(Toolward { process, url })
    }
}

pub(super) fn target(url: &str) -> Result<Target> {
    let target = Target::parse(url).map_err(|error| error.to_string())?;
    Ok(Target { token: Some(TOKEN.into()), ..target })
}
