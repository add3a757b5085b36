//! The copy of the source that packages are built from.

use std::process::Command;

use super::{Dist, Result, create, read, run};

/// Copies a commit, or the working tree with its uncommitted and untracked files. Files that are already there
/// keep their times, so that cargo compiles only what changed.
pub(super) fn copy(dist: &Dist, commit: Option<&str>) -> Result<()> {
    create(&dist.source())?;
    let tree = tree(dist, commit)?;
    let mut git = git(dist, "copied.index");
    git.arg("--work-tree").arg(dist.source());
    run(git.args(["read-tree", "--reset", "-u", tree.trim()]))
}

/// The id of a git tree with the files.
fn tree(dist: &Dist, commit: Option<&str>) -> Result<String> {
    if let Some(commit) = commit {
        let tree = format!("{commit}^{{tree}}");
        return read(git(dist, "tree.index").args(["rev-parse", "--verify", &tree]));
    }
    run(git(dist, "tree.index").args(["add", "--all"]))?;
    read(git(dist, "tree.index").arg("write-tree"))
}

/// Git with an index of our own, so that nothing is staged.
fn git(dist: &Dist, index: &str) -> Command {
    let mut git = Command::new("git");
    git.current_dir(&dist.root).env("GIT_INDEX_FILE", dist.stage.join(index));
    git
}
