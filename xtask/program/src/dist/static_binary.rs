//! The static program: for an empty container, or a system with another libc.
//!
//! It is linked statically against glibc. Since glibc 2.34, `files` and `dns` are part of libc itself, so host names
//! are resolved without shared libraries, by `/etc/hosts` and `/etc/resolv.conf`. There is no target for musl that is
//! installed everywhere Rust is, and no crate that is needed for this.

use std::path::{Path, PathBuf};

use super::binary::remapped;
use super::{Dist, Result, TARGET, copy, remove, run};

pub(super) fn build(dist: &Dist) -> Result<()> {
    compile(dist, &dist.source(), &build_directory(dist))?;
    let name = archive_name(&dist.version);
    let stage = dist.stage.join("static-archive");
    remove(&stage)?;
    copy(&program(&build_directory(dist)), &stage.join(&name).join("toolward"))?;
    copy(&dist.source().join("LICENSE"), &stage.join(&name).join("LICENSE"))?;
    let file = dist.out.join(format!("{name}.tar.gz"));
    let flags = ["--owner=0", "--group=0", "--use-compress-program=gzip -9n"];
    dist.tar(&stage, &name, &file, &flags)
}

/// Builds the program. No path of this machine gets into it.
pub(super) fn compile(dist: &Dist, source: &Path, build: &Path) -> Result<()> {
    let mut flags = remapped(source, build)?;
    flags.extend(["-C".into(), "target-feature=+crt-static".into()]);
    // The `getrandom` crate finds the function of glibc by its name, which a static program does not know, and would
    // read `/dev/random` instead, which an empty directory does not have.
    flags.extend(["--cfg".into(), "getrandom_backend=\"linux_getrandom\"".into()]);
    let mut cargo = dist.command("cargo");
    cargo.args(["build", "--release", "--locked", "--package", "toolward", "--target", TARGET]);
    cargo.env("CARGO_TARGET_DIR", build).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    run(cargo.current_dir(source))
}

pub(super) fn build_directory(dist: &Dist) -> PathBuf {
    dist.stage.join("static")
}

/// The program in a build directory.
pub(super) fn program(build: &Path) -> PathBuf {
    build.join(TARGET).join("release/toolward")
}

/// The name of the archive and of the directory in it.
pub(super) fn archive_name(version: &str) -> String {
    format!("toolward-{version}-x86_64-linux-static")
}
