//! `cargo xtask dist`: the packages of a release, in `target/dist`.
//!
//! All packages but the static one contain the same binary, which is built once, from a copy of the source: the working tree may
//! change during the build, and `cargo xtask dist check` builds it again from the same copy in another directory.
//! Maturin builds it, with Zig as the linker, for an old glibc: the wheel needs that anyway.

mod binary;
mod check;
mod crates;
mod debian;
mod image;
mod licenses;
mod npm;
mod oci;
mod sbom;
mod source;
mod static_binary;
mod sums;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

pub const USAGE: &str =
    "cargo xtask dist [--commit REVISION] [PART…]\n       cargo xtask dist check [PART…]";

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

/// The only platform that packages are built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A step with its name.
type Part = (&'static str, fn(&Dist) -> Result<()>);

/// In the order in which they are made. Others than `static` package the binary that was built last.
const PARTS: [Part; 7] = [
    ("binary", binary::build),
    ("static", static_binary::build),
    ("crates", crates::package),
    ("npm", npm::pack),
    ("debian", debian::package),
    ("image", image::write),
    ("sbom", sbom::write),
];

pub fn main(words: &[&str]) -> ExitCode {
    let done = match words {
        ["check", "--inside", words @ ..] if check::known(words) => check::run(words),
        ["check", words @ ..] if check::known(words) => check::isolate(words),
        ["--commit", commit, words @ ..] if known(words) => make(Some(commit), words),
        words if known(words) => make(None, words),
        _ => {
            let parts = PARTS.map(|(name, _)| name).join(", ");
            eprintln!("usage: {USAGE}\nparts: {parts}; of a check: {}", check::names());
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("dist: {why}");
            ExitCode::FAILURE
        }
    }
}

fn known(words: &[&str]) -> bool {
    words.iter().all(|word| PARTS.iter().any(|(name, _)| name == word))
}

/// Makes packages of a commit, or of the working tree.
fn make(commit: Option<&str>, words: &[&str]) -> Result<()> {
    let dist = Dist::new()?;
    dist.install_tools()?;
    if words.is_empty() {
        remove(&dist.out)?;
    }
    create(&dist.out)?;
    source::copy(&dist, commit)?;
    for (name, make) in PARTS {
        if words.is_empty() || words.contains(&name) {
            println!("{name}");
            make(&dist)?;
        }
    }
    sums::write(&dist.out)?;
    sums::print(&dist.out)
}

/// Where things are, and what all packages share.
struct Dist {
    root: PathBuf,
    /// The finished packages.
    out: PathBuf,
    /// Everything that is needed on the way: the copy of the source, generated files, build directories.
    stage: PathBuf,
    tools: PathBuf,
    version: String,
    /// The time that files in packages get, in seconds: that of the last commit.
    epoch: String,
}

impl Dist {
    fn new() -> Result<Dist> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().map_err(|error| format!("the repository: {error}"))?;
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => {
                read(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&root))?
            }
        };
        Ok(Dist {
            out: root.join("target/dist"),
            stage: root.join("target/dist-stage"),
            tools: root.join("target/dist-tools"),
            version: env!("CARGO_PKG_VERSION").into(),
            epoch: epoch.trim().into(),
            root,
        })
    }

    fn install_tools(&self) -> Result<()> {
        run(Command::new(self.root.join("packaging/install-tools")).arg(&self.tools))
    }

    /// The copy of the source that packages are built from.
    fn source(&self) -> PathBuf {
        self.stage.join("source")
    }

    /// Files that the program or this task generates, as packages have them. Inside the copy of the source,
    /// because the metadata of the Debian package names them by relative paths.
    fn generated(&self) -> PathBuf {
        self.source().join("target/package-files")
    }

    /// The program that all packages contain.
    fn program(&self) -> PathBuf {
        self.stage.join("build").join(TARGET).join("release/toolward")
    }

    /// A tool, with the time for reproducible files.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", &self.epoch);
        command
    }

    /// Writes an entry of a directory as a tar file that depends on nothing but its content.
    fn tar(&self, folder: &Path, entry: &str, file: &Path, extra: &[&str]) -> Result<()> {
        let mut command = self.command("tar");
        command.args(["--create", "--sort=name", "--format=gnu", "--numeric-owner"]);
        command.arg(format!("--mtime=@{}", self.epoch)).args(extra);
        run(command.arg("--file").arg(file).arg("--directory").arg(folder).arg(entry))
    }
}

/// Runs a program; its output goes to standard error, so that standard output has only our own lines.
fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed ({status})")),
        Err(error) => Err(format!("{command:?} cannot be started: {error}")),
    }
}

/// Runs a program and returns its standard output.
fn read(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{command:?} failed ({})\n{text}", output.status)),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => at(folder, error),
        _ => Ok(()),
    }
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).or_else(|error| at(folder, error))
}

/// Copies a file with its permissions, and creates its directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    create(to.parent().unwrap_or(to))?;
    std::fs::copy(from, to).map(drop).or_else(|error| at(from, error))
}

/// Writes a file, and creates its directory.
fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    create(path.parent().unwrap_or(path))?;
    std::fs::write(path, content).or_else(|error| at(path, error))
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).or_else(|error| at(path, error))
}

/// The paths in a directory, sorted.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).or_else(|error| at(folder, error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn at<T>(path: &Path, error: std::io::Error) -> Result<T> {
    Err(format!("{}: {error}", path.display()))
}
