//! `cargo xtask conformance`: the official MCP conformance suite, directly and through the gateway.
//!
//! The suite tests each reference server twice, without the gateway and behind `toolward serve` with a policy
//! that allows everything. Both runs must give the same result for every check: a gateway that allows
//! everything must be invisible. `conformance/differences.txt` lists the checks that may differ, with a reason
//! each; any other difference fails the run, and so does an entry that no longer differs.

mod checks;
mod differences;
mod gateway;
mod listening;
mod peers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::checks::Checks;
use self::differences::Differences;
use self::peers::{Peers, Server};
use crate::process;

pub const USAGE: &str = "cargo xtask conformance [--quick] [--server python|rust|typescript|tasks] \
     [--revision DATE] [--transport http|stdio] [--toolward FILE]";

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

/// The protocol revisions that the suite has server scenarios for.
const REVISIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

/// How the gateway reaches the server. The suite itself always uses HTTP.
#[derive(Clone, Copy, PartialEq)]
enum Transport {
    Http,
    Stdio,
}

impl Transport {
    const ALL: [Transport; 2] = [Transport::Http, Transport::Stdio];

    fn name(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
        }
    }
}

/// One run through the gateway.
#[derive(Clone, Copy)]
struct Combination {
    server: Server,
    revision: &'static str,
    transport: Transport,
}

pub fn main(words: &[&str]) -> ExitCode {
    let Some(plan) = Plan::parse(words) else {
        eprintln!("usage: {USAGE}\nrevisions: {}", REVISIONS.join(", "));
        return ExitCode::from(2);
    };
    match run(&plan) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("conformance: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The combinations to run.
struct Plan {
    servers: Vec<Server>,
    revisions: Vec<&'static str>,
    transports: Vec<Transport>,
    toolward: Option<PathBuf>,
}

impl Plan {
    fn parse(words: &[&str]) -> Option<Plan> {
        let mut plan = Plan {
            servers: Server::ALL.into(),
            revisions: REVISIONS.into(),
            transports: Transport::ALL.into(),
            toolward: None,
        };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word {
                // The newest revision has the most checks, and this server needs nothing compiled. Some checks
                // wait 600 ms, which a process that starts on a busy machine can exceed.
                "--quick" => {
                    plan.servers = vec![Server::Python];
                    plan.revisions = vec!["2026-07-28"];
                    plan.transports = vec![Transport::Http];
                }
                "--server" => plan.servers = only(Server::ALL, Server::name, words.next()?)?,
                "--revision" => plan.revisions = only(REVISIONS, |one| one, words.next()?)?,
                "--transport" => {
                    plan.transports = only(Transport::ALL, Transport::name, words.next()?)?;
                }
                "--toolward" => plan.toolward = Some(words.next()?.into()),
                _ => return None,
            }
        }
        Some(plan)
    }

    fn is_complete(&self) -> bool {
        self.servers.len() == Server::ALL.len()
            && self.revisions.len() == REVISIONS.len()
            && self.transports.len() == Transport::ALL.len()
    }
}

/// The value with this name.
fn only<T: Copy, const N: usize>(
    all: [T; N],
    name: impl Fn(T) -> &'static str,
    wanted: &str,
) -> Option<Vec<T>> {
    all.into_iter().find(|one| name(*one) == wanted).map(|one| vec![one])
}

/// Runs the plan and prints its results; false if a result differs that may not.
fn run(plan: &Plan) -> Result<bool> {
    let folder = tempfile::Builder::new().prefix("toolward-conformance-").tempdir();
    let folder = folder.map_err(|error| format!("a directory to work in: {error}"))?;
    process::end_all_on_signal(folder.path())?;
    let peers = Peers::install(&plan.servers)?;
    let toolward = match &plan.toolward {
        Some(file) => file.clone(),
        None => crate::torture::build()?,
    };
    let run = Run { peers, toolward, folder: folder.path() };
    let mut differences = Differences::read()?;
    let (mut combinations, mut unexpected) = (0, 0);
    for server in plan.servers.iter().copied() {
        let tested = |revision: &&'static str| server.is_tested_in(revision);
        for revision in plan.revisions.iter().copied().filter(tested) {
            let direct = run.direct(server, revision)?;
            for transport in plan.transports.iter().copied() {
                let combination = Combination { server, revision, transport };
                let through = run.through(combination)?;
                combinations += 1;
                unexpected += report(combination, &direct, &through, &mut differences);
            }
        }
    }
    let stale = if plan.is_complete() { differences.stale() } else { Vec::new() };
    for line in &stale {
        println!("{}: no longer differs, remove the entry: {line}", differences::FILE);
    }
    println!("combinations: {combinations}, unexpected differences: {unexpected}");
    Ok(unexpected == 0 && stale.is_empty())
}

/// Prints the results of one combination; the number of unexpected differences.
fn report(
    combination: Combination,
    direct: &Checks,
    through: &Checks,
    differences: &mut Differences,
) -> usize {
    let Combination { server, revision, transport } = combination;
    println!(
        "{} {revision} over {}: directly {direct}; through the gateway {through}",
        server.name(),
        transport.name(),
    );
    let mut unexpected = 0;
    for difference in direct.compare(through) {
        match differences.reason(combination, &difference.check) {
            Some(reason) => println!("  allowed: {}: {reason}", difference.check),
            None => {
                unexpected += 1;
                println!("  DIFFERS: {difference}");
            }
        }
    }
    unexpected
}

/// The parts that every run of the suite needs.
struct Run<'a> {
    peers: Peers,
    toolward: PathBuf,
    folder: &'a Path,
}

impl Run<'_> {
    /// The results without the gateway.
    fn direct(&self, server: Server, revision: &str) -> Result<Checks> {
        let folder = self.subfolder("direct")?;
        let listening = self.peers.listen(server, &folder)?;
        self.peers.suite(server, &listening.url, revision, &folder)
    }

    /// The results behind `toolward serve`.
    fn through(&self, combination: Combination) -> Result<Checks> {
        let folder = self.subfolder("through")?;
        let Combination { server, revision, transport } = combination;
        let (_listening, definition) = match transport {
            Transport::Http => {
                let listening = self.peers.listen(server, &self.subfolder("server")?)?;
                let definition = gateway::over_http(&listening.url);
                (Some(listening), definition)
            }
            Transport::Stdio => (None, gateway::over_stdio(&self.peers.command(server))),
        };
        let gateway = gateway::start(&self.toolward, &definition, &folder)?;
        self.peers.suite(server, &gateway.url, revision, &folder)
    }

    /// A directory that nothing else uses.
    fn subfolder(&self, name: &str) -> Result<PathBuf> {
        let made = tempfile::Builder::new().prefix(name).tempdir_in(self.folder);
        let made = made.map_err(|error| format!("a directory for {name}: {error}"))?;
        // It is removed with the one it is in.
        Ok(made.keep())
    }
}
