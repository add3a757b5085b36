//! The program, the wheel that it is built for, and the archive for downloads.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Dist, Result, TARGET, copy, licenses, list, read, remove, run, write};

/// The wheel's platform tag; it means glibc 2.17.
pub(super) const COMPATIBILITY: &str = "manylinux2014";

pub(super) fn build(dist: &Dist) -> Result<()> {
    let wheels = dist.stage.join("wheels");
    remove(&wheels)?;
    compile(dist, &dist.source(), &dist.stage.join("build"), &wheels)?;
    for wheel in list(&wheels)? {
        copy(&wheel, &dist.out.join(wheel.file_name().unwrap_or_default()))?;
    }
    generate(dist)?;
    archive(dist)
}

/// Builds the wheel, and with it the program. No path of this machine gets into the program.
pub(super) fn compile(dist: &Dist, source: &Path, build: &Path, wheels: &Path) -> Result<()> {
    let flags = remapped(source, build)?;
    let tools = dist.tools.join("python/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut maturin = dist.command(tools.join("maturin"));
    maturin.args(["build", "--release", "--locked", "--zig", "--target", TARGET]);
    maturin.args(["--compatibility", COMPATIBILITY, "--out"]).arg(wheels);
    maturin.env("PATH", format!("{}:{path}", tools.display()));
    maturin.env("CARGO_TARGET_DIR", build).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    run(maturin.current_dir(source.join("packaging/pypi")))
}

/// Flags of the compiler that replace paths of this machine.
pub(super) fn remapped(source: &Path, build: &Path) -> Result<Vec<String>> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let home = home.ok_or("there is no home directory")?;
    let paths = [(source, "/toolward"), (home.as_path(), "/cargo"), (build, "/build")];
    let flag = |(from, to): (&Path, &str)| format!("--remap-path-prefix={}={to}", from.display());
    Ok(paths.map(flag).into())
}

/// Manual pages, completions and licenses, for the archive and the Debian package.
fn generate(dist: &Dist) -> Result<()> {
    let program = dist.program();
    let files = dist.generated();
    remove(&files)?;
    run(Command::new(&program).args(["man", "--dir"]).arg(files.join("man")))?;
    for (shell, name) in [("bash", "toolward"), ("zsh", "_toolward"), ("fish", "toolward.fish")] {
        let script = read(Command::new(&program).args(["completions", shell]))?;
        write(&files.join("completions").join(name), script)?;
    }
    write(&files.join(licenses::NAME), licenses::texts(dist)?)
}

/// The name of the archive and of the directory in it; `cargo binstall` finds them by the metadata of the crate.
pub(super) fn archive_name(version: &str) -> String {
    format!("toolward-{version}-{TARGET}")
}

fn archive(dist: &Dist) -> Result<()> {
    let name = archive_name(&dist.version);
    let stage = dist.stage.join("archive");
    remove(&stage)?;
    let folder = stage.join(&name);
    copy(&dist.program(), &folder.join("toolward"))?;
    for file in ["LICENSE", "README.md"] {
        copy(&dist.source().join(file), &folder.join(file))?;
    }
    copy(&dist.generated().join(licenses::NAME), &folder.join(licenses::NAME))?;
    for (from, to) in [
        (dist.generated().join("man"), "man"),
        (dist.generated().join("completions"), "completions"),
        (dist.source().join("packaging/systemd"), "systemd"),
    ] {
        for file in list(&from)? {
            copy(&file, &folder.join(to).join(file.file_name().unwrap_or_default()))?;
        }
    }
    let file = dist.out.join(format!("{name}.tar.gz"));
    let flags = ["--owner=0", "--group=0", "--use-compress-program=gzip -9n"];
    dist.tar(&stage, &name, &file, &flags)
}
