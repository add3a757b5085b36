//! The systemd units: valid, hardened, and they allow every system call of the gateway.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use toolward_testkit::wait::eventually;

use crate::dist::{Dist, Result, read, run, text, write};

use super::gateway::Gateway;
use super::installed::expect;

const UNITS: [&str; 2] = ["toolward.service", "toolward-stdio-servers.service"];
/// The highest exposure that `systemd-analyze security` may report.
const MAX_EXPOSURE: f64 = 3.0;

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-units");
    let units = dist.source().join("packaging/systemd");
    for (unit, exposure) in examine(&units, &dist.program(), &folder)? {
        println!("        {unit}: exposure {exposure}");
    }
    let allowed = allowed(&text(&units.join(UNITS[0]))?)?;
    let used = used(dist, &folder)?;
    expect(used.len() > 20, || format!("strace recorded only {used:?}"))?;
    let denied: Vec<&String> = used.difference(&allowed).collect();
    expect(denied.is_empty(), || format!("{} denies {denied:?}", UNITS[0]))
}

/// Checks all units with a program in place of the installed one; returns the exposure of each.
fn examine(units: &Path, program: &Path, folder: &Path) -> Result<Vec<(&'static str, f64)>> {
    // They name each other, so all of them have to be there before one is checked.
    for unit in UNITS {
        let content =
            text(&units.join(unit))?.replace("/usr/bin/toolward", &program.display().to_string());
        write(&folder.join(unit), content)?;
    }
    let examined = UNITS.map(|unit| {
        run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(folder.join(unit)))?;
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(folder.join(unit));
        let report = read(&mut analyze)?;
        let last = report.lines().last().unwrap_or_default();
        let exposure = last.split_whitespace().find_map(|word| word.parse().ok());
        let exposure: f64 = exposure.ok_or_else(|| format!("no exposure in {last:?}"))?;
        expect(exposure <= MAX_EXPOSURE, || format!("{unit} has an exposure of {exposure}"))?;
        Ok((unit, exposure))
    });
    examined.into_iter().collect()
}

/// The system calls that a unit allows.
fn allowed(unit: &str) -> Result<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    let filters = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    for filter in filters {
        let (denied, groups) = match filter.strip_prefix('~') {
            Some(groups) => (true, groups),
            None => (false, filter),
        };
        for group in groups.split_whitespace() {
            for call in calls(group)? {
                match denied {
                    true => allowed.remove(&call),
                    false => allowed.insert(call),
                };
            }
        }
    }
    // systemd adds these to every list of allowed calls.
    allowed.extend(calls("@default")?);
    Ok(allowed)
}

/// The system calls of a group, and of the groups in it.
fn calls(group: &str) -> Result<BTreeSet<String>> {
    if !group.starts_with('@') {
        return Ok([group.to_string()].into());
    }
    let listed =
        read(Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", group]))?;
    let mut all = BTreeSet::new();
    for line in listed.lines().skip(1).map(str::trim) {
        if !line.is_empty() && !line.starts_with('#') {
            all.extend(calls(line)?);
        }
    }
    Ok(all)
}

/// The system calls of a gateway that starts, serves requests, reloads and ends.
fn used(dist: &Dist, folder: &Path) -> Result<BTreeSet<String>> {
    let trace = folder.join("trace");
    let config = folder.join("toolward.yaml");
    write(
        &config,
        format!(
            "listen: 127.0.0.1:7410\nstate: {0}/state\naudit: {{ dir: {0}/audit }}\nbuiltin: true\n\
             agents:\n  default: {{ allow: {{ servers: [\"*\"] }} }}\n\
             defaults: {{ deny_on_missing_agent: false }}\n",
            folder.display()
        ),
    )?;
    let mut strace = Command::new("strace");
    // The gateway stays the child of this process, so that signals reach it.
    strace.args(["--daemonize", "--follow-forks", "--output"]).arg(&trace);
    strace.arg(dist.program()).args(["serve", "-c"]).arg(&config);
    let gateway = Gateway::start(&mut strace, folder)?;
    gateway.list()?;
    run(Command::new(dist.program()).args(["reload", "-c"]).arg(&config))?;
    let process = gateway.end()?;
    let last = process.to_string();
    let lines = eventually("strace has written everything", || {
        let lines = text(&trace).ok()?;
        let ended = lines.lines().any(|line| {
            line.split_once(' ').is_some_and(|(id, what)| id == last && what.contains("+++ exited"))
        });
        ended.then_some(lines)
    });
    let names = lines.lines().filter_map(|line| {
        let call = line.split_once(' ')?.1.trim_start().split_once('(')?.0;
        let plain = call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        plain.then(|| call.to_string())
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]

    use super::*;

    #[test]
    fn units_are_valid_and_hardened() {
        if Command::new("systemd-analyze").arg("--version").output().is_err() {
            eprintln!("skipped: there is no systemd-analyze");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
        let examined = examine(&units, Path::new("/bin/true"), folder.path()).unwrap();
        assert_eq!(examined.len(), UNITS.len());
    }
}
