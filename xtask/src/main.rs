//! Development tasks, run with `cargo xtask`.
//!
//! - `imports` prints the import graph of each crate and fails on a cycle between modules.
//! - `mutants` runs mutation tests of the policy engine.
//! - `words` fails if discouraged phrases become more.
//! - Every other task needs the program and is in `xtask/program`.
//!
//! The checks of the source live in a package of their own so that they build in seconds and run while
//! the program does not compile.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod imports;
mod mutants;
mod words;

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["imports", ref words @ ..] => imports::main(words),
        ["mutants", ref words @ ..] => mutants::main(words),
        ["words", ref words @ ..] => words::main(words),
        ref words => program(words),
    }
}

/// Runs a task that needs the program.
fn program(words: &[&str]) -> ExitCode {
    if words.is_empty() {
        eprintln!("usage: {}\n       {}\n       {}", imports::USAGE, mutants::USAGE, words::USAGE);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = ["run", "--quiet", "--package", "xtask-program", "--"];
    match Command::new(cargo).args(run).args(words).status() {
        Ok(status) => {
            ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
