//! The Debian package. Its metadata is in `crates/toolward/Cargo.toml`, its other files in `packaging`.

use std::process::Command;

use super::{Dist, Result, TARGET, read, run, write};

pub(super) fn package(dist: &Dist) -> Result<()> {
    let version = format!("{}-1", dist.version);
    let date = read(
        Command::new("date")
            .args(["--utc", "--rfc-email", "--date"])
            .arg(format!("@{}", dist.epoch)),
    )?;
    let changelog = format!(
        "toolward ({version}) unstable; urgency=medium\n\n  * Release {}. The changes are listed at\n    \
         https://github.com/toolward/toolward/blob/main/CHANGELOG.md\n\n -- {MAINTAINER}  {date}",
        dist.version
    );
    write(&dist.generated().join("changelog"), changelog)?;
    // The program is already built and stripped, and stays the one of all other packages.
    let mut deb = dist.command(dist.tools.join("bin/cargo-deb"));
    deb.args(["deb", "--quiet", "--locked", "--no-build", "--no-strip", "--target", TARGET]);
    deb.args(["--package", "toolward", "--deb-version", &version, "--output"]).arg(&dist.out);
    deb.env("CARGO_TARGET_DIR", dist.stage.join("build"));
    run(deb.current_dir(dist.source()))
}

const MAINTAINER: &str = "Toolward maintainers <toolward@users.noreply.github.com>";
