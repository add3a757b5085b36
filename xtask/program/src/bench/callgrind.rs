//! Counts instructions with callgrind, by component.
//!
//! Counts do not depend on the load of the machine. Two runs that differ only in the number of rounds differ by exactly
//! these rounds, so that startup does not count.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use super::Result;

/// Callgrind counts each step of `rep movsb` as an instruction, a byte each. With these thresholds, the C library copies
/// with vector instructions, which count as they should.
const NO_REP_LOOPS: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";

/// Instructions by component.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counts(BTreeMap<&'static str, f64>);

impl Counts {
    /// Without the digests of the audit log and of tokens: emulated processors lack the instructions for SHA-256.
    pub(super) fn without_digest(&self) -> f64 {
        self.0.iter().filter(|(name, _)| **name != DIGEST).map(|(_, count)| count).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }

    /// The instructions of one of `rounds` rounds, by which `self` has more than `fewer`.
    pub(super) fn per_round(&self, fewer: &Counts, rounds: usize) -> Counts {
        let before = |name| fewer.0.get(name).copied().unwrap_or_default();
        let each = |(name, count)| (name, (count - before(name)) / rounds as f64);
        Counts(self.iter().map(each).collect())
    }

    /// Reads the output of callgrind.
    pub(super) fn read(file: &Path) -> Result<Counts> {
        let text = std::fs::read(file).map_err(|error| format!("callgrind's output: {error}"))?;
        let counts = Counts::of(&String::from_utf8_lossy(&text));
        match counts.0.is_empty() {
            true => Err("callgrind counted nothing".into()),
            false => Ok(counts),
        }
    }

    fn of(text: &str) -> Counts {
        let (mut names, mut counts) = (HashMap::new(), BTreeMap::new());
        let (mut component, mut is_call) = (OTHER, false);
        for line in text.lines() {
            if let Some(function) = line.strip_prefix("fn=") {
                component = component_of(full_name(&mut names, function));
            } else if let Some(function) = line.strip_prefix("cfn=") {
                full_name(&mut names, function);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
                // The cost of a call is that of the functions called, which have lines of their own.
                let own = !std::mem::take(&mut is_call);
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
                if let Some(cost) = cost.filter(|_| own) {
                    *counts.entry(component).or_default() += cost;
                }
            }
        }
        Counts(counts)
    }
}

/// Resolves `(12) name`, or `(12)` for a name that was given before.
fn full_name<'t, 'n>(names: &'n mut HashMap<&'t str, &'t str>, text: &'t str) -> &'n str {
    match text.split_once(' ') {
        Some((id, name)) if id.starts_with('(') => {
            names.insert(id, name);
            name
        }
        None if text.starts_with('(') => names.get(text).copied().unwrap_or_default(),
        _ => text,
    }
}

const DIGEST: &str = "digest";
const OTHER: &str = "other";

/// The component of a function, by parts of its name. The first that occurs counts.
fn component_of(function: &str) -> &'static str {
    const COMPONENTS: [(&str, &[&str]); 9] = [
        (DIGEST, &["sha2::", "blake3", "ring_core", "sha256", "digest::"]),
        (
            "allocation",
            &["malloc", "mi_", "free", "realloc", "calloc", "__rust_alloc", "__rust_dealloc"],
        ),
        ("memory moves", &["memcpy", "memmove", "memset", "memcmp", "bcmp"]),
        (
            "clock and timers",
            &["clock_gettime", "Timespec", "time::Instant", "tokio::time", "runtime::time"],
        ),
        (
            "HTTP",
            &[
                "toolward_wire::http",
                "http_client",
                "downstream::connection",
                "toolward_wire::headers",
            ],
        ),
        ("audit log", &["gateway::audit", "methods::events"]),
        ("JSON", &["toolward_wire", "core::str", "memchr"]),
        ("runtime", &["tokio", "mio::"]),
        ("gateway", &["toolward_"]),
    ];
    let has = |parts: &[&str]| parts.iter().any(|part| function.contains(part));
    COMPONENTS.iter().find(|(_, parts)| has(parts)).map_or(OTHER, |(name, _)| name)
}

/// A program under callgrind, which writes its counts into a file when it ends.
pub(super) fn command(program: &Path, counts: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.env("GLIBC_TUNABLES", NO_REP_LOOPS);
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display()));
    command.arg(program);
    command
}

/// Runs a program under callgrind to its end.
pub(super) fn count(program: &Path, words: &[&str], folder: &Path) -> Result<Counts> {
    let file = folder.join("callgrind.out");
    let output = command(program, &file).args(words).output();
    let output = output.map_err(|error| {
        format!("valgrind cannot be started: {error} (Debian: apt install valgrind)")
    })?;
    if !output.status.success() {
        return Err(format!("valgrind failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Counts::read(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_costs_are_summed_by_component() {
        let text = "events: Ir\n\
            fn=(1) toolward_wire::scan::Scanner::run\n10 100\n+2 5\n\
            cfn=(2) __memcpy_avx_unaligned_erms\ncalls=3 0\n+1 40\n\
            fn=(2)\n0 40\n\
            fn=(3) sha2::sha256::compress256\n0 1000\n\
            fn=(1)\n* 7\n";
        let counts = Counts::of(text);
        let of = |name: &str| counts.iter().find(|(one, _)| *one == name).map(|(_, count)| count);
        assert_eq!((of("JSON"), of("memory moves")), (Some(112.0), Some(40.0)));
        assert_eq!((of(DIGEST), counts.without_digest()), (Some(1000.0), 152.0));
        let twice = Counts::of(&text.replace("0 1000", "0 3000"));
        assert_eq!(twice.per_round(&counts, 2).iter().map(|(_, count)| count).sum::<f64>(), 1000.0);
    }
}
