//! Checksums, the bill of materials, the crates, and the metadata for `cargo binstall`.

use std::process::Command;

use crate::dist::{Dist, Result, binary, crates, read, run, sbom, sums, text};

use super::installed::{expect, parse};

/// Validates against the schema of CycloneDX 1.6.
const VALIDATE: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(str(errors) if errors else 0)
";

pub(super) fn check(dist: &Dist) -> Result<()> {
    run(Command::new("sha256sum")
        .args(["--check", "--quiet", "--strict", sums::NAME])
        .current_dir(&dist.out))?;
    let bill = dist.out.join(sbom::name(&dist.version));
    run(Command::new(dist.tools.join("python/bin/python")).args(["-c", VALIDATE]).arg(&bill))?;
    let components = parse(&text(&bill)?)?["components"].as_array().map_or(0, Vec::len);
    expect(components > 50, || format!("the bill of materials has {components} components"))?;
    for name in crates::NAMES {
        let folder = format!("{name}-{}", dist.version);
        let file = dist.out.join(format!("{folder}.crate"));
        let files = read(Command::new("tar").arg("--list").arg("--file").arg(file))?;
        for needed in ["Cargo.toml", "README.md", "LICENSE"] {
            let path = format!("{folder}/{needed}");
            expect(files.lines().any(|line| line == path), || format!("{path} is missing"))?;
        }
    }
    binstall(dist)
}

/// The archive has the name and layout of the crate's metadata.
fn binstall(dist: &Dist) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata = parse(&read(cargo.current_dir(dist.source()))?)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.into_iter().find(|package| package["name"] == "toolward");
    let binstall = package.map(|package| &package["metadata"]["binstall"]);
    let fill = |key: &str| {
        let template = binstall.and_then(|binstall| binstall[key].as_str()).unwrap_or_default();
        let values = [
            ("{ repo }", "https://github.com/toolward/toolward"),
            ("{ name }", "toolward"),
            ("{ version }", &dist.version),
            ("{ target }", crate::dist::TARGET),
            ("{ bin }", "toolward"),
            ("{ binary-ext }", ""),
        ];
        values.iter().fold(template.to_string(), |text, (from, to)| text.replace(from, to))
    };
    let (url, program) = (fill("pkg-url"), fill("bin-dir"));
    let name = binary::archive_name(&dist.version);
    expect(url.ends_with(&format!("/v{}/{name}.tar.gz", dist.version)), || {
        format!("pkg-url is {url}")
    })?;
    let archive = dist.out.join(format!("{name}.tar.gz"));
    let files = read(Command::new("tar").arg("--list").arg("--file").arg(archive))?;
    expect(files.lines().any(|line| line == program), || format!("bin-dir is {program}"))
}
