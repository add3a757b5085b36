//! The copy of the source that packages are built from.

use std::process::Command;

use super::{Dist, Result, create, read, remove, run, write};

/// Extracts a commit, or the working tree with its uncommitted and untracked files, unless it is already there.
pub(super) fn extract(dist: &Dist, commit: Option<&str>) -> Result<()> {
    create(&dist.stage)?;
    let tree = tree(dist, commit)?;
    let stamp = dist.stage.join("source.stamp");
    if std::fs::read_to_string(&stamp).is_ok_and(|extracted| extracted == tree) {
        return Ok(());
    }
    let _ = std::fs::remove_file(&stamp);
    remove(&dist.source())?;
    create(&dist.source())?;
    // The files are as old as the copy, so that cargo compiles them again.
    let script = "git archive \"$0\" | tar --extract --touch --directory=\"$1\"";
    run(Command::new("sh").args(["-c", script, &tree]).arg(dist.source()).current_dir(&dist.root))?;
    write(&stamp, tree)
}

/// The id of a git tree with the files.
fn tree(dist: &Dist, commit: Option<&str>) -> Result<String> {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        // An index of our own, so that nothing is staged.
        git.args(words).current_dir(&dist.root).env("GIT_INDEX_FILE", dist.stage.join("index"));
        git
    };
    let tree = match commit {
        Some(commit) => read(&mut git(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")]))?,
        None => {
            run(&mut git(&["add", "--all"]))?;
            read(&mut git(&["write-tree"]))?
        }
    };
    Ok(tree.trim().into())
}
