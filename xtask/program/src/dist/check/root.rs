//! A directory that programs run in as their file system.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::{Result, at, copy, create, run};

/// The directory, with `/proc` mounted and `/dev/null`; unmounted when dropped.
pub(super) struct Root {
    path: PathBuf,
    mounted: Vec<PathBuf>,
}

impl Root {
    /// An existing directory as it is. Nothing is mounted.
    pub(super) fn bare(path: &Path) -> Root {
        Root { path: path.into(), mounted: Vec::new() }
    }

    pub(super) fn new(path: &Path) -> Result<Root> {
        let mut root = Root::bare(path);
        root.mount(&["-t", "proc", "proc"], "proc")?;
        create(&path.join("dev"))?;
        let null = path.join("dev/null");
        if !null.exists() {
            crate::dist::write(&null, "")?;
        }
        root.mount(&["--bind", "/dev/null"], "dev/null")?;
        Ok(root)
    }

    fn mount(&mut self, what: &[&str], place: &str) -> Result<()> {
        let place = self.path.join(place);
        if !place.exists() {
            create(&place)?;
        }
        run(Command::new("mount").args(what).arg(&place))?;
        self.mounted.push(place);
        Ok(())
    }

    /// A command inside, as a user and group.
    pub(super) fn command(&self, user: &str, program: &str) -> Command {
        // By its path: the command is looked up with the PATH of the inside.
        let mut command = Command::new("/usr/sbin/chroot");
        command.arg(format!("--userspec={user}")).arg(&self.path).arg(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }

    /// Copies a file into it.
    pub(super) fn add(&self, from: &Path, to: &str) -> Result<()> {
        copy(from, &self.path.join(to))
    }

    /// Writes a file that belongs to root.
    pub(super) fn write(&self, path: &str, content: &str) -> Result<()> {
        crate::dist::write(&self.path.join(path), content)
    }

    /// Creates a directory that belongs to a user.
    pub(super) fn directory(&self, path: &str, user: u32) -> Result<()> {
        let path = self.path.join(path);
        create(&path)?;
        chown(&path, Some(user), Some(user)).or_else(|error| at(&path, error))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for place in self.mounted.iter().rev() {
            let _ = Command::new("umount").arg("--lazy").arg(place).status();
        }
    }
}
