//! `cargo xtask dist check`: every package in `target/dist` is installed, used and removed.
//!
//! The checks run in their own network namespace, which has nothing but a loopback interface: packages install
//! without a network, and a DNS server can listen on port 53. They need root, for that and for `chroot`.

mod binary;
mod debian;
mod files;
mod gateway;
mod image;
mod installed;
mod npm;
mod pypi;
mod reproducible;
mod root;
mod static_binary;
mod units;

use std::process::Command;
use std::time::Instant;

use super::{Dist, Part, Result, image as images, run as run_command};

const CHECKS: [Part; 9] = [
    ("files", files::check),
    ("units", units::check),
    ("binary", binary::check),
    ("static", static_binary::check),
    ("npm", npm::check),
    ("pypi", pypi::check),
    ("debian", debian::check),
    ("image", image::check),
    ("reproducible", reproducible::check),
];

pub(super) fn names() -> String {
    CHECKS.map(|(name, _)| name).join(", ")
}

pub(super) fn known(words: &[&str]) -> bool {
    words.iter().all(|word| CHECKS.iter().any(|(name, _)| name == word))
}

/// Starts this program again in namespaces of its own.
pub(super) fn isolate(words: &[&str]) -> Result<()> {
    let dist = Dist::new()?;
    dist.install_tools()?;
    images::debian(&dist)?;
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    unshare.arg(program).args(["dist", "check", "--inside"]).args(words);
    // No service manager of the machine is asked, and cargo does not try to reach a registry.
    run_command(unshare.env("SYSTEMD_OFFLINE", "1").env("CARGO_NET_OFFLINE", "true"))
}

pub(super) fn run(words: &[&str]) -> Result<()> {
    let dist = Dist::new()?;
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        if !words.is_empty() && !words.contains(&name) {
            continue;
        }
        let begun = Instant::now();
        let outcome = check(&dist);
        let seconds = begun.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("ok      {name} ({seconds} s)"),
            Err(why) => {
                println!("FAILED  {name} ({seconds} s): {why}");
                failed.push(name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}
