//! Benchmarks of the policy engine, with other engines for comparison, and of message parsing.
//!
//! ```text
//! cargo run --release -p toolward-bench                  # times and ratios of one run
//! cargo run --release -p toolward-bench -- instructions  # instruction counts, needs valgrind
//! ```
//!
//! `--quick` takes fewer samples, `--json` prints JSON.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::expect_used, clippy::panic)]

mod compare;
mod contenders;
mod engine;
mod instructions;
mod loading;
mod report;
mod timing;
mod wire;
mod work;
mod world;

use std::process::ExitCode;

pub const SMALL: usize = 10;
pub const LARGE: usize = 100_000;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| {
        let before = words.len();
        words.retain(|word| word != name);
        words.len() != before
    };
    let (quick, json) = (flag("--quick"), flag("--json"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => compare::run(quick).print(json),
        ["instructions"] => instructions::run(quick).print(json),
        // The arguments with which the program starts itself.
        ["work", work, rules, count] => instructions::work(work, rules, count),
        ["wire", step, count] => wire::work(step, count.parse().expect("the count is a number")),
        ["load", file] => loading::load(file),
        _ => {
            eprintln!("usage: toolward-bench [instructions] [--quick] [--json]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
