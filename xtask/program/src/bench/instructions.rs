//! Instructions of a whole call through `toolward serve`, by component, with small and large configurations; and the
//! check that no count has grown.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Map, Value, json};
use toolward_testkit::load::{Kind, once};

use super::callgrind::{self, Counts};
use super::growth::other_agents;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN, target};
use super::{Bench, Result, build};
use crate::process::Process;

pub const USAGE: &str = "cargo xtask instructions [--write]";

/// The checked-in counts.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/instructions.json");
/// The most instructions of a call without digests.
const MOST_OF_A_CALL: f64 = 48_000.0;
/// The most that a call may cost with a large configuration, relative to a small one.
const MOST_GROWTH: f64 = 1.02;
/// Emulation is slow, and other programs may run.
const TIMEOUT: Duration = Duration::from_secs(300);
const WARM_UP: usize = 20;
const CALLS: usize = 400;

/// How much each count may grow. A whole call varies by about 1 %, because time passes in it.
const TOLERANCES: [(&str, f64); 5] = [
    ("decision", 1.03),
    ("scan", 1.03),
    ("list, first", 1.03),
    ("list, again", 1.03),
    ("call", 1.05),
];

/// The section `instructions`.
pub(super) fn run(bench: &Bench) -> Result<Table> {
    let program = build::counted("toolward", "toolward", true)?;
    let (_echo, server) = bench.echo(1, 0)?;
    let servers = |count: usize| -> Vec<(String, &str)> {
        let others = (1..count).map(|at| (format!("server-{at:03}"), &*server));
        others.chain([("echo".into(), &*server)]).collect()
    };
    let configurations = [
        ("100 rules", Setup::new(bench, &servers(1), Rules::Mixed)?),
        ("100,000 rules", Setup::new(bench, &servers(1), Rules::Names(100_000))?),
        (
            "10,000 agents",
            Setup::new(bench, &servers(1), Rules::Mixed)?.and(&other_agents(10_000))?,
        ),
        ("100 servers", Setup::new(bench, &servers(100), Rules::Mixed)?),
    ];
    let mut table = Table::new("instructions of a call", &["count", "without digests"]);
    let mut small = None;
    for (name, setup) in &configurations {
        let counts = call(bench, &program, setup)?;
        let all: f64 = counts.iter().map(|(_, count)| count).sum();
        let own = counts.without_digest();
        table.row(name, [format!("{all:.0}"), format!("{own:.0}")]);
        match small {
            None => {
                small = Some(own);
                for (component, count) in counts.iter() {
                    table.row(&format!("  {component}"), [format!("{count:.0}")]);
                }
                let most = format!("at most {MOST_OF_A_CALL}");
                table.finding("without digests", Spread::of([own]), &most, own <= MOST_OF_A_CALL);
            }
            Some(small) => {
                let growth = own / small;
                let what = format!("{name} / 100 rules");
                table.required(&what, Spread::of([growth]), "at most 1.02", growth <= MOST_GROWTH);
            }
        }
    }
    Ok(table)
}

/// The instructions of a call.
fn call(bench: &Bench, program: &Path, setup: &Setup) -> Result<Counts> {
    let few = serve(bench, program, setup, 0)?;
    Ok(serve(bench, program, setup, CALLS)?.per_round(&few, CALLS))
}

/// The instructions of a gateway that serves some calls after a warm-up.
fn serve(bench: &Bench, program: &Path, setup: &Setup, calls: usize) -> Result<Counts> {
    let folder = bench.subfolder("counted")?;
    let file = folder.join("callgrind.out");
    let mut command = callgrind::command(program, &file);
    let url = setup.serve_with(&mut command);
    let mut process = Process::start("toolward under valgrind", &mut command, &folder)?;
    let own = target(&url)?;
    process.wait_within(TIMEOUT, Duration::from_millis(50), || {
        once(&own, Kind::List).map(drop).map_err(|error| error.to_string())
    })?;
    for requests in [WARM_UP, calls].into_iter().filter(|requests| *requests > 0) {
        let requests = requests.to_string();
        let words = ["load", "--url", &url, "--token", TOKEN, "--tool", "echo__echo", "--json"];
        let output = bench.testkit(&words).args(["--requests", &requests]).output();
        let output = output.map_err(|error| format!("the load: {error}"))?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| format!("the load: {}", String::from_utf8_lossy(&output.stderr)))?;
        if report["errors"] != 0 {
            return Err(format!("calls failed: {}", report["first_error"]));
        }
    }
    process.end_within(Signal::TERM, TIMEOUT)?;
    Counts::read(&file)
}

/// `cargo xtask instructions`: fails if a count is larger than the checked-in one.
pub fn main(words: &[&str]) -> ExitCode {
    let checked = match words {
        [] => check(),
        ["--write"] => write(),
        _ => {
            eprintln!("usage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match checked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("instructions: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<bool> {
    let counts: Map<String, Value> =
        measure()?.into_iter().map(|(name, count)| (name.into(), json!(count.round()))).collect();
    let text = format!("{:#}\n", json!({"toolchain": toolchain()?, "counts": counts}));
    std::fs::write(FILE, text).map_err(|error| format!("{FILE}: {error}"))?;
    println!("benches/instructions.json written");
    Ok(true)
}

fn check() -> Result<bool> {
    let known = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    let known: Value = serde_json::from_str(&known).map_err(|error| format!("{FILE}: {error}"))?;
    let toolchain = toolchain()?;
    if known["toolchain"] != *toolchain {
        println!("not compared: the counts are of {}, and this is {toolchain}", known["toolchain"]);
        return Ok(true);
    }
    let mut all = true;
    for (name, count) in measure()? {
        let before =
            known["counts"][name].as_f64().ok_or_else(|| format!("no count of `{name}`"))?;
        let most = TOLERANCES.iter().find(|(one, _)| *one == name).map_or(1.0, |(_, most)| *most);
        let growth = count / before;
        let verdict = if growth > most { "GROWN" } else { "ok" };
        println!(
            "  {name:<14} {count:>10.0}  before {before:>10.0}  {growth:.3} of at most {most}: {verdict}"
        );
        all &= growth <= most;
    }
    if !all {
        println!("A count has grown. Find the cause, or state the reason and run `{USAGE}`.");
    }
    Ok(all)
}

/// The counts that are checked, in the order of [`TOLERANCES`].
fn measure() -> Result<Vec<(&'static str, f64)>> {
    let bench = Bench::for_counting()?;
    let engine = build::counted("toolward-bench", "toolward-bench", false)?;
    let folder = bench.subfolder("counted")?;
    let rounds = |words: &[&str], count: usize| -> Result<f64> {
        let run = |count: usize| {
            let count = count.to_string();
            callgrind::count(&engine, &[words, &[&count]].concat(), &folder)
        };
        let counts = run(2 * count)?.per_round(&run(count)?, count);
        Ok(counts.iter().map(|(_, count)| count).sum())
    };
    let (_echo, server) = bench.echo(1, 0)?;
    let setup = Setup::new(&bench, &[("echo".into(), &server)], Rules::Mixed)?;
    let whole = call(&bench, &bench.toolward, &setup)?.without_digest();
    Ok(vec![
        ("decision", rounds(&["work", "decide-uniform", "10"], 1 << 16)?),
        ("scan", rounds(&["wire", "parse-call"], 500)? + rounds(&["wire", "parse-answer"], 500)?),
        ("list, first", rounds(&["work", "list-first", "10"], 10)?),
        ("list, again", rounds(&["work", "list-seen", "10"], 50)?),
        ("call", whole),
    ])
}

/// The compiler, on whose version counts depend.
fn toolchain() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let output = Command::new(rustc).arg("--version").output();
    let output = output.map_err(|error| format!("rustc cannot be started: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_string();
    Ok(format!("{version}, {}", std::env::consts::ARCH))
}
