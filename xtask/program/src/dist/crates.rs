//! The crates for crates.io. Cargo compiles each of them from its package, with the others as dependencies.

use std::process::Command;

use super::{Dist, Result, copy, run};

/// In the order in which they have to be published.
pub(super) const NAMES: [&str; 5] =
    ["toolward-policy", "toolward-config", "toolward-wire", "toolward-gateway", "toolward"];

pub(super) fn package(dist: &Dist) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["package", "--quiet", "--locked", "--allow-dirty"]).current_dir(dist.source());
    let build = dist.stage.join("crates");
    cargo.env("CARGO_TARGET_DIR", &build);
    for name in NAMES {
        cargo.args(["--package", name]);
    }
    run(&mut cargo)?;
    for name in NAMES {
        let file = format!("{name}-{}.crate", dist.version);
        copy(&build.join("package").join(&file), &dist.out.join(&file))?;
    }
    Ok(())
}
