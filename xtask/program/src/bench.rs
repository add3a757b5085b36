//! `cargo xtask bench`: the cost of the gateway, compared with nginx as a plain reverse proxy and with
//! a direct connection. All contenders are measured in one run, in turns, so that noise affects all of
//! them. The results are ratios.

mod build;
mod callgrind;
mod contest;
mod growth;
mod guards;
mod held;
mod http;
pub mod instructions;
mod kinds;
mod listing;
mod nginx;
mod page;
mod record;
mod spread;
mod start;
mod stdio;
mod table;
mod toolward;
mod updates;
mod verify;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tempfile::TempDir;

use self::table::Table;
use crate::process::{self, Process};

pub const USAGE: &str =
    "cargo xtask bench [--quick] [--one-core] [--only SECTION] [--toolward FILE]";

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

/// A section of the benchmark, with its name for `--only`.
type Section = (&'static str, fn(&Bench) -> Result<Table>);

const SECTIONS: [Section; 15] = [
    ("instructions", instructions::run),
    ("latency", http::latency),
    ("throughput", http::throughput),
    ("stdio", stdio::run),
    ("list", listing::run),
    ("kinds", kinds::latency),
    ("resources", kinds::pages),
    ("updates", updates::run),
    ("held", held::run),
    ("start", start::run),
    ("growth", growth::run),
    ("guards", guards::run),
    ("record", record::run),
    ("verify", verify::run),
    ("page", page::run),
];

/// Settings and programs that all sections use.
struct Bench {
    rounds: usize,
    /// How long a contender is measured in a round.
    seconds: f64,
    testkit: PathBuf,
    toolward: PathBuf,
    /// Why there is no `toolward serve`.
    no_serve: Option<String>,
    nginx: std::result::Result<PathBuf, String>,
    folder: TempDir,
}

pub fn main(words: &[&str]) -> ExitCode {
    let Some(options) = Options::parse(words) else {
        let names = SECTIONS.map(|(name, _)| name).join(", ");
        eprintln!("usage: {USAGE}\nsections: {names}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Options<'a> {
    quick: bool,
    one_core: bool,
    only: Option<&'a str>,
    toolward: Option<&'a Path>,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a str]) -> Option<Options<'a>> {
        let mut options = Options::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "--quick" => options.quick = true,
                "--one-core" => options.one_core = true,
                "--only" => {
                    let name = words.next()?;
                    SECTIONS.iter().find(|(known, _)| *known == name)?;
                    options.only = Some(name);
                }
                "--toolward" => options.toolward = Some(Path::new(words.next()?)),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Runs the sections; false if one of them could not be measured.
fn run(options: &Options<'_>) -> Result<bool> {
    let bench = Bench::prepare(options)?;
    let mut all = true;
    for (name, section) in SECTIONS {
        if options.only.is_some_and(|only| only != name) {
            continue;
        }
        match section(&bench) {
            Ok(table) => {
                all &= table.is_right();
                println!("{table}");
            }
            Err(why) => {
                all = false;
                println!("{name}: {why}\n");
            }
        }
    }
    Ok(all)
}

impl Bench {
    fn prepare(options: &Options<'_>) -> Result<Bench> {
        let folder = tempfile::Builder::new().prefix("toolward-bench-").tempdir();
        let folder = folder.map_err(|error| format!("a working directory: {error}"))?;
        nginx::let_in(folder.path())?;
        process::end_all_on_signal(folder.path())?;
        let testkit = build::program("toolward-testkit", "testkit", "")?;
        let toolward = match options.toolward {
            Some(file) => file.to_path_buf(),
            None => build::program("toolward", "toolward", "")?,
        };
        let no_serve = toolward::missing(&toolward);
        if let Some(why) = &no_serve {
            println!("toolward over HTTP is skipped: {why}");
        }
        let nginx = nginx::find();
        match &nginx {
            Ok(program) => println!("nginx: {}", nginx::version(program)),
            Err(why) => println!("nginx is skipped: {why}"),
        }
        let (rounds, seconds) = if options.quick { (10, 0.2) } else { (40, 0.4) };
        println!("{rounds} rounds of {seconds} s each; medians, with the least and the most");
        if options.one_core {
            process::stay_on_one_core()?;
            println!("everything runs on one core");
        }
        println!();
        Ok(Bench { rounds, seconds, testkit, toolward, no_serve, nginx, folder })
    }

    /// For counting instructions, without contenders.
    fn for_counting() -> Result<Bench> {
        let folder = tempfile::Builder::new().prefix("toolward-bench-").tempdir();
        let folder = folder.map_err(|error| format!("a working directory: {error}"))?;
        process::end_all_on_signal(folder.path())?;
        Ok(Bench {
            rounds: 1,
            seconds: 0.0,
            testkit: build::counted("toolward-testkit", "testkit", true)?,
            toolward: build::counted("toolward", "toolward", true)?,
            no_serve: None,
            nginx: Err("not needed".into()),
            folder,
        })
    }

    /// A directory that nothing else uses.
    fn subfolder(&self, name: &str) -> Result<PathBuf> {
        let made = tempfile::Builder::new().prefix(name).tempdir_in(self.folder.path());
        let made = made.map_err(|error| format!("a directory for {name}: {error}"))?;
        // It is removed with its parent.
        Ok(made.keep())
    }

    /// Starts an echo server with this many tools; returns its URL.
    fn echo(&self, tools: usize, tool_bytes: usize) -> Result<(Process, String)> {
        self.echo_with(&["--tools", &tools.to_string(), "--tool-bytes", &tool_bytes.to_string()])
    }

    /// Starts an echo server with these options; returns its URL.
    fn echo_with(&self, options: &[&str]) -> Result<(Process, String)> {
        let mut command = self.testkit(&["echo-http"]);
        command.args(options);
        let mut process = Process::start_to_read("echo", &mut command, &self.subfolder("echo")?)?;
        let url = process.first_line()?;
        Ok((process, url))
    }

    fn testkit(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(&self.testkit);
        command.args(arguments);
        command
    }
}
