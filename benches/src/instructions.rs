//! Instruction counts, which do not depend on the load of the machine.
//!
//! Callgrind counts a whole process. A loop of N and one of 2N rounds differ by exactly N rounds, so
//! neither symbols nor markers in the program are needed.

use std::process::Command;

use crate::engine::Engine;
use crate::report::{Cell, Line, Report};
use crate::work::{self, MIX};
use crate::world::World;
use crate::{LARGE, SMALL, wire};

const WORKS: [(&str, &str, usize); 4] = [
    ("decide-hot", "decision, hot", 4 * MIX),
    ("decide-uniform", "decision, uniform mix", 4 * MIX),
    ("list-seen", "listing 1,000 tools, seen before", 200),
    ("list-first", "listing 1,000 tools, first time", 50),
];

pub fn run(quick: bool) -> Report {
    let mut report = Report::default();
    let lines = WORKS.iter().map(|&(work, what, count)| {
        let count = if quick { count.div_ceil(4) } else { count };
        let [small, large] = [SMALL, LARGE].map(|rules| {
            per_round(count, |count| vec!["work".into(), work.into(), rules.to_string(), count])
        });
        let cells = vec![Cell::Count(small), Cell::Count(large), Cell::Ratio(large / small)];
        Line::new(what, cells)
    });
    let lines = lines.collect();
    report.section("Instructions", &["10 rules", "100,000 rules", "growth"], lines);
    report.section("Instructions on the wire, of one call", &["count"], on_the_wire(quick));
    report
}

fn on_the_wire(quick: bool) -> Vec<Line> {
    let count = if quick { 500 } else { 2000 };
    let mut sum = 0.0;
    let mut lines = Vec::new();
    for step in &wire::STEPS {
        let each = per_round(count, |count| vec!["wire".into(), step.name.into(), count]);
        sum += each;
        lines.push(Line::new(step.what, vec![Cell::Count(each)]));
    }
    lines.push(Line::new("all of them", vec![Cell::Count(sum)]));
    lines
}

/// The measured process: does the work, without output and timing.
pub fn work(work: &str, rules: &str, count: &str) {
    let rules = rules.parse().expect("the number of rules is a number");
    let count = count.parse().expect("the count is a number");
    let world = World::new(rules);
    let engine = Engine::new(&world);
    match work {
        "decide-hot" => {
            let requests = world.requests(1);
            work::decide(&engine, &engine.rows(), &requests, count);
        }
        "decide-uniform" => {
            let requests = world.requests(MIX);
            work::decide(&engine, &engine.rows(), &requests, count);
        }
        "list-seen" => {
            work::list_seen(&engine.rows_of(0), engine.agent(0), count);
        }
        "list-first" => {
            work::list_first(&engine, 0, count);
        }
        _ => panic!("there is no work called {work}"),
    }
}

/// The cost of one of `count` rounds; `words` are the arguments for a number of rounds.
fn per_round(count: usize, words: impl Fn(String) -> Vec<String>) -> f64 {
    let once = counted(&words(count.to_string()));
    let twice = counted(&words((2 * count).to_string()));
    (twice as f64 - once as f64) / count as f64
}

fn counted(words: &[String]) -> u64 {
    let program = std::env::current_exe().expect("a process knows its program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(words)
        .output()
        .expect("valgrind is installed (Debian: apt install valgrind)");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind failed:\n{text}");
    // `==1234== Collected : 5678`
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    let (_, number) = collected.unwrap_or_else(|| panic!("valgrind counted nothing:\n{text}"));
    number.trim().parse().expect("callgrind prints a number")
}
