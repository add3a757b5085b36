//! The wheel, in a virtual environment.

use std::path::Path;
use std::process::Command;

use crate::dist::{Dist, Result, binary, list, read, remove, run, sums};

use super::installed::{Installed, expect};

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-pypi");
    remove(&folder)?;
    let name = format!("toolward-{}-", dist.version);
    let is_wheel = |name_: &str| name_.starts_with(&name) && name_.ends_with(".whl");
    let wheels = list(&dist.out)?
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| is_wheel(&name.to_string_lossy())));
    let wheels: Vec<_> = wheels.collect();
    let [wheel] = &wheels[..] else {
        return Err(format!("these should be one wheel: {wheels:?}"));
    };
    expect(wheel.to_string_lossy().contains(binary::COMPATIBILITY), || {
        format!("{} has another tag", wheel.display())
    })?;

    let environment = folder.join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let before = files(&environment)?;
    let pip = |words: &[&str]| {
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["--quiet", "--disable-pip-version-check"]).args(words);
        pip
    };
    run(pip(&["install", "--no-index"]).arg(wheel))?;
    let program = environment.join("bin/toolward");
    let (ours, installed) = (sums::digest_of(&dist.program())?, sums::digest_of(&program)?);
    expect(ours == installed, || "the wheel contains another program".into())?;
    let path = program.display().to_string();
    let command = || Command::new(&program);
    Installed { command: &command, program: &path, version: &dist.version, folder: &folder }
        .works()?;

    run(&mut pip(&["uninstall", "--yes", "toolward"]))?;
    let after = files(&environment)?;
    expect(before == after, || "`pip uninstall` left files behind".into())
}

/// The files of an environment, without those that Python compiles when it likes.
fn files(environment: &Path) -> Result<String> {
    let mut find = Command::new("find");
    find.arg(environment).args(["-name", "__pycache__", "-prune", "-o", "-print"]);
    let mut files: Vec<String> = read(&mut find)?.lines().map(String::from).collect();
    files.sort();
    Ok(files.join("\n"))
}
