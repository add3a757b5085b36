//! The Debian package, in a minimal Debian system: installed, started as its unit does, and removed.

use std::path::Path;
use std::process::Command;

use crate::dist::{Dist, Result, image, read, remove, run, sums, text};

use super::gateway::Gateway;
use super::installed::{Installed, expect};
use super::root::Root;

const CONFIG: &str = "etc/toolward/toolward.yaml";

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-debian");
    remove(&folder)?;
    crate::dist::create(&folder)?;
    let package = dist.out.join(format!("toolward_{}-1_amd64.deb", dist.version));
    let tags = ["--fail-on", "error,warning", "--suppress-tags", SUPPRESSED];
    run(Command::new("lintian").args(tags).arg("--allow-root").arg(&package))?;

    let path = folder.join("root");
    run(Command::new("cp").arg("--archive").arg(image::debian(dist)?).arg(&path))?;
    let root = Root::new(&path)?;
    let before = files(&path)?;
    root.add(&package, "tmp/toolward.deb")?;
    run(root.command("0:0", "dpkg").args(["--install", "/tmp/toolward.deb"]))?;
    let ours = sums::digest_of(&dist.program())?;
    expect(ours == sums::digest_of(&path.join("usr/bin/toolward"))?, || {
        "the package contains another program".into()
    })?;
    for file in [
        "usr/lib/systemd/system/toolward.service",
        "usr/lib/systemd/system/toolward-stdio-servers.service",
        "usr/share/bash-completion/completions/toolward",
        "usr/share/zsh/vendor-completions/_toolward",
        "usr/share/fish/vendor_completions.d/toolward.fish",
        CONFIG,
    ] {
        expect(path.join(file).is_file(), || format!("{file} is missing"))?;
    }
    let manual = read(root.command("0:0", "dpkg").args(["--listfiles", "toolward"]))?;
    let pages =
        manual.lines().filter(|line| line.starts_with("/usr/share/man/man1/toolward")).count();
    expect(pages > 20, || format!("the package has {pages} manual pages"))?;
    let command = || {
        let mut command = root.command("toolward:toolward", "/usr/bin/toolward");
        command.env("HOME", "/tmp");
        command
    };
    Installed {
        command: &command,
        program: "/usr/bin/toolward",
        version: &dist.version,
        folder: &folder,
    }
    .works()?;
    serves(&root, &path, &folder)?;

    // A changed configuration survives until the package is purged.
    root.write(CONFIG, &format!("{}# changed\n", text(&path.join(CONFIG))?))?;
    run(root.command("0:0", "dpkg").args(["--remove", "toolward"]))?;
    expect(text(&path.join(CONFIG)).is_ok_and(|text| text.ends_with("# changed\n")), || {
        "`dpkg --remove` did not keep the changed configuration".into()
    })?;
    run(root.command("0:0", "dpkg").args(["--purge", "toolward"]))?;
    remove(&path.join("tmp"))?;
    root.directory("tmp", 0)?;
    let users = text(&path.join("etc/passwd"))?;
    expect(!users.contains("toolward"), || "the user is left behind".into())?;
    let after = files(&path)?;
    let left: Vec<&str> =
        after.lines().filter(|line| !before.lines().any(|old| old == *line)).collect();
    expect(left.is_empty(), || format!("`dpkg --purge` left {left:?}"))
}

/// Tags of a package that is not part of Debian.
const SUPPRESSED: &str = "initial-upload-closes-no-bugs";

/// Starts the service as its unit does, and reloads it.
fn serves(root: &Root, path: &Path, folder: &Path) -> Result<()> {
    let unit = text(&path.join("usr/lib/systemd/system/toolward.service"))?;
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.ok_or_else(|| format!("the unit has no {key}"))
    };
    let command = |key: &str| {
        let mut words = value(key)?.split(' ');
        let user = format!("{}:{}", value("User")?, value("Group")?);
        let mut command = root.command(&user, words.next().unwrap_or_default());
        command.args(words).env("HOME", "/var/lib/toolward");
        Ok::<Command, String>(command)
    };
    // systemd creates the state directory.
    let state = format!("/var/lib/{}", value("StateDirectory")?);
    let owner = format!("--owner={}", value("User")?);
    let mode = format!("--mode={}", value("StateDirectoryMode")?);
    run(root.command("0:0", "install").args(["--directory", &owner, &mode, &state]))?;
    let gateway = Gateway::start(&mut command("ExecStart")?, folder)?;
    run(&mut command("ExecReload")?)?;
    gateway.end().map(drop)
}

/// The files of the system, without the own records of dpkg and adduser.
fn files(root: &Path) -> Result<String> {
    let mut find = Command::new("find");
    find.args([".", "-xdev"]);
    for path in ["./proc", "./run", "./etc/*shadow-", "./var/lib/dpkg", "./var/log", "./var/cache"]
    {
        find.args(["-path", path, "-prune", "-o"]);
    }
    read(find.arg("-print").current_dir(root))
}
