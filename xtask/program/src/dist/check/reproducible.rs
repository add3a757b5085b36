//! A second build, in another directory, gives the same programs.

use std::path::Path;
use std::process::Command;

use crate::dist::{Dist, Result, TARGET, binary, create, remove, run, static_binary, sums};

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
    same(&dist.program(), &build.join(TARGET).join("release/toolward"))?;
    let build = folder.join("static");
    static_binary::compile(dist, &source, &build)?;
    let first = static_binary::program(&static_binary::build_directory(dist));
    same(&first, &static_binary::program(&build))
}

fn same(first: &Path, again: &Path) -> Result<()> {
    let (first, again) = (sums::digest_of(first)?, sums::digest_of(again)?);
    expect(first == again, || format!("the first build is {first}, the second {again}"))
}
