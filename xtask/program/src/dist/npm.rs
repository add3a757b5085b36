//! The npm packages: `toolward` with the launcher, and one with the program for each platform.

use serde_json::{Value, json};

use super::{Dist, Result, copy, licenses, remove, run, text, write};

pub(super) fn pack(dist: &Dist) -> Result<()> {
    let source = dist.source();
    let packages = [
        (
            "toolward",
            vec![(source.join("packaging/npm/toolward/bin/toolward.js"), "bin/toolward.js")],
        ),
        (
            "linux-x64",
            vec![
                (dist.program(), "bin/toolward"),
                (dist.generated().join(licenses::NAME), licenses::NAME),
            ],
        ),
    ];
    for (name, files) in packages {
        let stage = dist.stage.join("npm").join(name);
        remove(&stage)?;
        let manifest = text(&source.join("packaging/npm").join(name).join("package.json"))?;
        write(&stage.join("package.json"), versioned(&manifest, &dist.version)?)?;
        copy(&source.join("LICENSE"), &stage.join("LICENSE"))?;
        copy(&source.join("packaging/pypi/README.md"), &stage.join("README.md"))?;
        for (from, to) in files {
            copy(&from, &stage.join(to))?;
        }
        let mut npm = dist.command("npm");
        npm.args(["pack", "--silent", "--pack-destination"]).arg(&dist.out);
        run(npm.current_dir(&stage))?;
    }
    Ok(())
}

/// The manifest with the workspace's version, for itself and for the packages of platforms.
fn versioned(manifest: &str, version: &str) -> Result<String> {
    let manifest = manifest.replace("\"VERSION\"", &json!(version).to_string());
    let mut manifest: Value =
        serde_json::from_str(&manifest).map_err(|error| format!("package.json: {error}"))?;
    manifest["version"] = version.into();
    Ok(format!("{manifest:#}\n"))
}
