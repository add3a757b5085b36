//! The software bill of materials of the program: the crates that are linked into it, as CycloneDX.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;

use serde_json::{Value, json};

use super::{Dist, Result, TARGET, read, sums, text};

pub(super) fn name(version: &str) -> String {
    format!("toolward-{version}.cdx.json")
}

pub(super) fn write(dist: &Dist) -> Result<()> {
    let crates = Crates::read(dist)?;
    let mut program = component("application", &crates.packages[&crates.root], None);
    program["hashes"] = json!([{"alg": "SHA-256", "content": sums::digest_of(&dist.program())?}]);
    let time = ["--utc", "--date", &format!("@{}", dist.epoch), "+%Y-%m-%dT%H:%M:%SZ"];
    let time = read(Command::new("date").args(time))?;
    let checksums = checksums(&text(&dist.source().join("Cargo.lock"))?);
    let libraries = crates.linked.keys().filter(|id| **id != crates.root);
    let libraries = libraries.map(|id| {
        let package = &crates.packages[id];
        let checksum = checksums.get(&(word(package, "name"), word(package, "version")));
        component("library", package, checksum.map(String::as_str))
    });
    let dependencies = crates.linked.iter().map(|(id, needed)| {
        let needed: Vec<String> = needed.iter().map(|id| url(&crates.packages[id])).collect();
        json!({"ref": url(&crates.packages[id]), "dependsOn": needed})
    });
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": time.trim(), "component": program},
        "components": libraries.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    });
    super::write(&dist.out.join(name(&dist.version)), format!("{bill:#}\n"))
}

/// The packages of the workspace, and which of them are linked into the program.
pub(super) struct Crates {
    pub(super) packages: HashMap<String, Value>,
    /// By id, with the ids of their own dependencies.
    pub(super) linked: BTreeMap<String, BTreeSet<String>>,
    pub(super) root: String,
}

impl Crates {
    pub(super) fn read(dist: &Dist) -> Result<Crates> {
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]);
        let metadata = read(cargo.current_dir(dist.source()))?;
        let metadata: Value =
            serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
        Crates::of(&metadata).ok_or_else(|| "cargo metadata has no package toolward".into())
    }

    fn of(metadata: &Value) -> Option<Crates> {
        let packages = metadata["packages"].as_array()?.iter();
        let packages: HashMap<String, Value> =
            packages.map(|package| (word(package, "id"), package.clone())).collect();
        let nodes = metadata["resolve"]["nodes"].as_array()?.iter();
        let nodes: HashMap<&str, &Value> =
            nodes.filter_map(|node| Some((node["id"].as_str()?, node))).collect();
        let root = packages.values().find(|package| package["name"] == "toolward")?;
        let root = word(root, "id");
        let mut linked = BTreeMap::new();
        let mut waiting = vec![root.clone()];
        while let Some(id) = waiting.pop() {
            if linked.contains_key(&id) {
                continue;
            }
            let needed: BTreeSet<String> = normal(nodes.get(id.as_str())?).collect();
            waiting.extend(needed.iter().cloned());
            linked.insert(id, needed);
        }
        Some(Crates { packages, linked, root })
    }
}

/// The dependencies of a node that are neither for its tests nor for its build script.
fn normal(node: &Value) -> impl Iterator<Item = String> {
    let dependencies = node["deps"].as_array().into_iter().flatten();
    let normal = dependencies.filter(|one| {
        one["dep_kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    });
    normal.map(|one| word(one, "pkg"))
}

fn component(kind: &str, package: &Value, checksum: Option<&str>) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": url(package),
        "name": package["name"],
        "version": package["version"],
        "purl": url(package),
    });
    // `/` is the old notation of `OR`.
    if let Some(license) = package["license"].as_str() {
        let license = license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        component["licenses"] = json!([{"expression": license}]);
    }
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// The package URL, which identifies a package.
fn url(package: &Value) -> String {
    let version = word(package, "version").replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", word(package, "name"))
}

/// The checksums of a lock file, by name and version.
fn checksums(lock: &str) -> HashMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let packages = packages.filter_map(|package| {
        let value = |key: &str| {
            let mut lines = package.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        Some(((value("name")?.into(), value("version")?.into()), value("checksum")?.into()))
    });
    packages.collect()
}

pub(super) fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn package(name: &str) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0+x", "license": "MIT/Apache-2.0"})
    }

    #[test]
    fn only_linked_crates_are_listed() {
        let dependency =
            |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let packages = ["toolward", "linked", "build", "test", "other"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": {"nodes": [
                {"id": "toolward", "deps": [
                    dependency("linked", Value::Null),
                    dependency("test", json!("dev")),
                    dependency("build", json!("build")),
                ]},
                {"id": "linked", "deps": []},
            ]},
        });
        let linked = Crates::of(&metadata).unwrap().linked;
        assert_eq!(linked.keys().collect::<Vec<_>>(), ["linked", "toolward"]);
    }

    #[test]
    fn components_have_license_expressions_and_valid_urls() {
        let component = component("library", &package("one"), Some("00ff"));
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(component["purl"], "pkg:cargo/one@1.0.0%2Bx");
        assert_eq!(component["hashes"][0]["content"], "00ff");
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"one\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("one".into(), "1.0.0".into())], "00ff");
    }
}
