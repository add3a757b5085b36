//! The static program: it runs in a directory with nothing else, and resolves host names there.

use std::process::Command;

use crate::dist::{Dist, Result, create, read, remove, run, static_binary};

use super::binary::resolves_names;
use super::installed::{Installed, expect};
use super::root::Root;

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-static");
    remove(&folder)?;
    let unpacked = folder.join("archive");
    create(&unpacked)?;
    let name = static_binary::archive_name(&dist.version);
    let archive = dist.out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(&unpacked);
    run(&mut tar)?;
    let program = unpacked.join(name).join("toolward");
    let headers = read(Command::new("objdump").arg("--private-headers").arg(&program))?;
    let dynamic = headers.contains("NEEDED") || headers.contains("INTERP");
    expect(!dynamic, || format!("the program is not static:\n{headers}"))?;

    // Only the program, and where the name server is.
    let root = Root::bare(&folder.join("root"));
    root.add(&program, "toolward")?;
    resolves_names(&root, &folder)?;

    let command = || Command::new(&program);
    let path = program.display().to_string();
    Installed { command: &command, program: &path, version: &dist.version, folder: &folder }.works()
}
