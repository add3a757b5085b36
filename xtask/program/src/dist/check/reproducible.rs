//! A second build, in another directory, gives the same program.

use std::process::Command;

use crate::dist::{Dist, Result, TARGET, binary, create, remove, run, sums};

use super::installed::expect;

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-reproducible");
    remove(&folder)?;
    let source = folder.join("elsewhere/source");
    create(&folder.join("elsewhere"))?;
    run(Command::new("cp")
        .args(["--recursive", "--preserve=timestamps"])
        .arg(dist.source())
        .arg(&source))?;
    remove(&source.join("target"))?;
    let build = folder.join("build");
    binary::compile(dist, &source, &build, &folder.join("wheels"))?;
    let again = sums::digest_of(&build.join(TARGET).join("release/toolward"))?;
    let first = sums::digest_of(&dist.program())?;
    expect(first == again, || format!("the first build is {first}, the second {again}"))
}
