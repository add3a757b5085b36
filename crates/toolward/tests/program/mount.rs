//! Small disks, for users who may mount them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs over a directory, unmounted with the test.
pub struct Mount(PathBuf);

impl Mount {
    /// Creates the directory and mounts over it; `None` if this user cannot mount.
    pub fn create(options: &str, at: &Path) -> Option<Mount> {
        std::fs::create_dir(at).unwrap();
        if !mount(options, at) {
            eprintln!("skipped: this user cannot mount a disk");
            return None;
        }
        Some(Mount(at.into()))
    }

    /// Makes the directory read-only. A disk with open files cannot be remounted read-only, so another
    /// one is mounted over it.
    pub fn cover(&self) {
        assert!(mount("ro,size=8m", &self.0));
    }

    /// Removes the read-only disk.
    pub fn uncover(&self) {
        assert!(Command::new("umount").arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &str, at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
    command.status().is_ok_and(|status| status.success())
}
