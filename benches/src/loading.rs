//! Loads a YAML file into a compiled policy, each time in a new process, so that its peak memory is
//! that of the load.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use toolward_config::{Disk, LoadedConfig, Loader, Options, PolicyFile, PolicyFlag};
use toolward_policy::Policy;

use crate::engine::Engine;
use crate::report::{Cell, Line, Report};
use crate::timing::Time;
use crate::work::MIX;
use crate::world::World;
use crate::{LARGE, SMALL};

/// The cost of one load.
struct Load {
    read_ns: f64,
    compile_ns: f64,
    peak_kb: f64,
}

pub fn run(quick: bool, report: &mut Report) {
    let samples = if quick { 3 } else { 15 };
    let [small, large] = [SMALL, LARGE].map(|rules| {
        let file = std::env::temp_dir().join(format!("toolward-bench-{}.yaml", std::process::id()));
        let world = World::new(rules);
        std::fs::write(&file, world.yaml()).expect("the temporary directory is writable");
        verify(&world, &file);
        let loads: Vec<Load> = (0..samples).map(|_| load_apart(&file)).collect();
        // A leftover file in the temporary directory is harmless.
        let _ = std::fs::remove_file(&file);
        loads
    });
    let line = |what: &str, of: fn(&Load) -> f64| {
        let [small, large] =
            [&small, &large].map(|loads| Time::of(&mut loads.iter().map(of).collect::<Vec<f64>>()));
        let growth = large.median_ns / small.median_ns;
        (Line::new(what, vec![Cell::Time(small), Cell::Time(large), Cell::Ratio(growth)]), large)
    };
    let (read, _) = line("reading the file", |load| load.read_ns);
    let (compile, _) = line("compiling the policy", |load| load.compile_ns);
    let (both, time) = line("both", |load| load.read_ns + load.compile_ns);
    let peak = |loads: &[Load]| loads.iter().map(|load| load.peak_kb).fold(0.0, f64::max) / 1e3;
    let (small, large) = (peak(&small), peak(&large));
    let cells = [Cell::Megabytes(small), Cell::Megabytes(large), Cell::Ratio(large / small)];
    let lines = vec![
        read,
        compile,
        both.target("< 2 s", time.median_ns < 2e9),
        Line::new("peak memory", cells.into()).target("< 200 MB", large < 200.0),
    ];
    report.section("Loading a YAML policy", &["10 rules", "100,000 rules", "growth"], lines);
}

fn load_apart(file: &Path) -> Load {
    let program = std::env::current_exe().expect("a process knows its program");
    let output = Command::new(program).arg("load").arg(file).output();
    let output = output.expect("the program runs once more");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [read_ns, compile_ns, peak_kb] = numbers[..] else {
        panic!("loading failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    };
    Load { read_ns, compile_ns, peak_kb }
}

/// Checks that the file contains the generated policy; otherwise loading it would prove nothing.
fn verify(world: &World, file: &Path) {
    let policy = Policy::compile(read(file).source).expect("the generated policy compiles");
    let engines = [Engine::new(world), Engine::with(policy, world)];
    let [wanted, loaded] = engines.each_ref().map(Engine::rows);
    for request in &world.requests(MIX) {
        let [wanted, loaded] = [(&engines[0], &wanted), (&engines[1], &loaded)]
            .map(|(engine, rows)| rows.decide(engine.agent(request.agent), request));
        let (wanted, loaded) = ((wanted.verdict, wanted.step), (loaded.verdict, loaded.step));
        assert_eq!(loaded, wanted, "the loaded policy differs on {}", request.tool);
    }
}

/// The measured process: loads the file, and prints the nanoseconds of reading and compiling, and the
/// peak memory in kB.
pub fn load(file: &str) {
    let start = Instant::now();
    let loaded = read(file.as_ref());
    let read = start.elapsed();
    let start = Instant::now();
    let policy = Policy::compile(loaded.source).expect("the generated policy compiles");
    let compile = start.elapsed();
    println!("{} {} {}", read.as_nanos(), compile.as_nanos(), peak_kb());
    drop(policy);
}

fn read(file: &Path) -> LoadedConfig {
    let policies = vec![PolicyFile { path: file.into(), flag: PolicyFlag::Policy, format: None }];
    let loader = Loader { files: Disk, env: HashMap::<String, String>::new() };
    let loaded = loader.load(&Options { policies, ..Options::default() });
    loaded.unwrap_or_else(|failed| panic!("{}", failed.diagnostics[0].render(false)))
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("Linux reports the peak memory")
}
