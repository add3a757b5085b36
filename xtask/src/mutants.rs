//! `cargo xtask mutants`: mutation testing of the policy engine with cargo-mutants.
//!
//! Each mutant changes one expression of the engine; a test of the policy crate must fail. A whole run takes hours, so it
//! is started by hand, in shards; each shard is a sample of every file. cargo-mutants works on a copy of the tree, in
//! `target/mutants`. Quick tests run first, and properties are checked with fewer cases than in `./test`: a mutant that
//! survives here may still be caught there.

use std::process::{Command, ExitCode};

pub(crate) const USAGE: &str = "cargo xtask mutants --shard K/N [PART…]";

/// The parts of the engine that decide, and their files.
const PARTS: [(&str, &[&str]); 6] = [
    ("cell", &["cell.rs", "cell/*.rs", "view.rs"]),
    ("layer", &["layer.rs", "layer/*.rs"]),
    ("selector", &["selector.rs", "index.rs"]),
    ("fnmatch", &["fnmatch.rs"]),
    ("hints", &["hints.rs", "stated_hints.rs"]),
    ("analyse", &["analyse.rs", "analyse/*.rs", "automaton.rs", "automaton/*.rs"]),
];

pub(crate) fn main(words: &[&str]) -> ExitCode {
    let ["--shard", shard, parts @ ..] = words else { return usage() };
    let known = |part: &&str| PARTS.iter().any(|(name, _)| name == part);
    if !parts.iter().all(known) {
        return usage();
    }
    let chosen = PARTS.iter().filter(|(name, _)| parts.is_empty() || parts.contains(name));
    let files = chosen.flat_map(|(_, files)| *files);
    let files =
        files.flat_map(|file| ["--file".to_owned(), format!("crates/toolward-policy/src/{file}")]);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let copy = "target/mutants/copy";
    let copy = match std::fs::create_dir_all(copy).and_then(|()| std::fs::canonicalize(copy)) {
        Ok(copy) => copy,
        Err(error) => {
            eprintln!("{copy}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut command = Command::new(cargo);
    command.args(["mutants", "--package", "toolward-policy", "--test-package", "toolward-policy"]);
    // One job: a mutant that loops forever is ended by its timeout, which other load would distort.
    command.args(["--jobs", "1", "--baseline", "run", "--minimum-test-timeout", "120"]);
    command.args(["--shard", shard, "--sharding", "round-robin"]);
    command.args(["--profile", "mutants", "--test-tool", "nextest"]);
    command.args(["--output", "target/mutants"]).args(files);
    command.env("TMPDIR", copy).env("NEXTEST_PROFILE", "mutants");
    command.env("PROPTEST_CASES", "300").env("PAIRS", "20");
    match command.status() {
        Ok(status) => {
            ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let parts: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: {USAGE}\n  parts: {}\n  needs cargo-mutants", parts.join(", "));
    ExitCode::from(2)
}
