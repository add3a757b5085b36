//! Writing the files of clients: links, modes, sizes, refusals, other writers, and kills.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::fixtures::CLAUDE_CODE;
use super::{Home, fixture, problems, text};
use crate::clients::journal::Journal;
use crate::clients::replace_file::{self, NotReplaced, Step};
use crate::clients::state::State;
use crate::clients::table::Platform;
use crate::clients::undo;

#[test]
fn links_modes_and_owners_are_kept() {
    let (home, file) = Home::of(&fixture("cursor"));
    let real = home.path("dotfiles/mcp.json");
    std::fs::create_dir_all(real.parent().unwrap()).unwrap();
    std::fs::rename(&file, &real).unwrap();
    symlink(&real, &file).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    home.init();
    assert!(file.symlink_metadata().unwrap().is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert!(text(&real).contains("/opt/bin/toolward"));
    home.uninit();
    assert_eq!(text(&real), fixture("cursor").content);
    assert_eq!(std::fs::read_dir(real.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_large_file_is_edited_in_one_place() {
    let long = format!("{}\\n \\\"y\\\" ", "x".repeat(1000)).repeat(5000);
    let content = CLAUDE_CODE
        .replace("\"numStartups\":12", &format!("\"numStartups\":12,\"history\":\"{long}\""));
    assert!(content.len() > 5_000_000);
    let home = Home::new(Platform::Linux);
    let file = home.write(".claude.json", &content);
    assert_eq!(home.init().changes(), 3);
    home.uninit();
    assert!(text(&file) == content);
}

#[test]
fn files_that_cannot_be_edited_safely_are_refused() {
    let cases = [
        ("{\"mcpServers\": {\"a\": {\"command\": \"x\"}, \"a\": {}}}", "duplicated"),
        ("{\"mcpServers\": {\"a\": {\"command\": \"x\"}}", "line 1"),
        ("[1, 2", "line 1"),
    ];
    for (content, words) in cases {
        let home = Home::new(Platform::Linux);
        let file = home.write(".cursor/mcp.json", content);
        let plan = home.init();
        assert!(problems(&plan)[0].contains(words), "{plan:#?}");
        assert_eq!(text(&file), content);
        assert!(matches!(home.states()[..], [State::Unreadable(_)]));
    }
    for (path, content) in [
        (
            ".codex/config.toml",
            "[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.a]\ncommand = \"y\"\n",
        ),
        (
            ".config/goose/config.yaml",
            "extensions:\n  a: { cmd: x, type: stdio }\n  a: { cmd: y, type: stdio }\n",
        ),
    ] {
        let home = Home::new(Platform::Linux);
        let file = home.write(path, content);
        let plan = home.init();
        assert_eq!(problems(&plan).len(), 1, "{plan:#?}");
        assert_eq!(text(&file), content);
    }
    let home = Home::new(Platform::Linux);
    std::fs::create_dir_all(home.path(".cursor/mcp.json")).unwrap();
    assert_eq!(problems(&home.init()), ["it is not a file"]);
    assert!(home.path(".cursor/mcp.json").is_dir());
    let home = Home::new(Platform::Linux);
    let file = home.write(".cursor/mcp.json", fixture("cursor").content);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(problems(&home.init()), ["it is not writable"]);
    assert_eq!(text(&file), fixture("cursor").content);
    assert!(home.uninit().undone.is_empty());
}

#[test]
fn a_file_that_changed_since_it_was_looked_at_is_not_written() {
    let home = Home::new(Platform::Linux);
    let cursor = home.write(".cursor/mcp.json", fixture("cursor").content);
    let zed = home.write(".config/zed/settings.json", fixture("zed").content);
    let mut plan = home.plan();
    let other = fixture("cursor").content.replace("autoApprove", "alwaysAllow");
    std::fs::write(&cursor, &other).unwrap();
    plan.apply().unwrap();
    assert_eq!(problems(&plan), ["it was changed by another program in the meantime"]);
    assert_eq!(text(&cursor), other);
    assert!(text(&zed).contains("/opt/bin/toolward"));
    // Only the other one is undone.
    assert_eq!(home.uninit().changes(), 1);
    assert_eq!((text(&cursor), text(&zed)), (other, fixture("zed").content.into()));
}

#[test]
fn a_kill_at_any_step_leaves_the_old_or_the_new_file() {
    let steps = [Step::Created, Step::Written, Step::Synced, Step::Exchanged, Step::Removed];
    for stop in steps {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp.json");
        std::fs::write(&file, "old").unwrap();
        let killed = replace_file::replace_in_steps(&file, b"old", b"new", &mut |step| {
            if step == stop { Err(std::io::Error::other("killed")) } else { Ok(()) }
        });
        assert!(killed.is_err());
        let is_new = matches!(stop, Step::Exchanged | Step::Removed);
        assert_eq!(text(&file), if is_new { "new" } else { "old" }, "{stop:?}");
        // The next run is not disturbed by what was left.
        let now = text(&file);
        replace_file::replace(&file, now.as_bytes(), b"next").unwrap();
        assert_eq!(text(&file), "next");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_version_that_another_program_wrote_at_the_last_moment_is_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mcp.json");
    std::fs::write(&file, "old").unwrap();
    let result = replace_file::replace_in_steps(&file, b"old", b"new", &mut |step| {
        if step == Step::Synced {
            std::fs::write(&file, "theirs")?;
        }
        Ok(())
    });
    assert!(matches!(result, Err(NotReplaced::Changed)), "{result:?}");
    assert_eq!(text(&file), "theirs");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_kill_between_journal_and_file_leaves_nothing_to_undo() {
    let (home, file) = Home::of(&fixture("cursor"));
    home.init();
    // As if only the journal and the gateway's file had been written.
    std::fs::write(&file, fixture("cursor").content).unwrap();
    let undo = home.uninit();
    assert!(undo.undone.iter().all(|one| one.outcome == undo::Outcome::Nothing));
    assert_eq!(text(&file), fixture("cursor").content);
    assert!(!home.config().exists());
}

#[test]
fn a_mode_of_0600_is_kept_and_a_dangling_link_is_refused() {
    let (home, file) = Home::of(&fixture("codex"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    home.init();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    home.uninit();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let home = Home::new(Platform::Linux);
    std::fs::create_dir_all(home.path(".cursor")).unwrap();
    symlink(home.path("nowhere.json"), home.path(".cursor/mcp.json")).unwrap();
    let plan = home.init();
    assert_eq!(problems(&plan).len(), 1, "{plan:#?}");
    assert!(home.path(".cursor/mcp.json").symlink_metadata().unwrap().is_symlink());
    assert!(!home.path("nowhere.json").exists());
}

/// Every subset of the files may have been written when `init` is killed: the journal is always first.
#[test]
fn a_kill_between_any_two_files_can_be_undone_and_repeated() {
    let clients = ["cursor", "zed", "codex"].map(fixture);
    for written in 0..1 << clients.len() {
        let home = Home::new(Platform::Linux);
        let files: Vec<_> =
            clients.iter().map(|one| (home.write(one.path, one.content), one.content)).collect();
        home.init();
        let is_written = |at: usize| written & (1 << at) != 0;
        for (at, (file, old)) in files.iter().enumerate() {
            if !is_written(at) {
                std::fs::write(file, old).unwrap();
            }
        }
        if written == 0 {
            // The gateway's file is written before the first client's.
            std::fs::remove_file(home.config()).unwrap();
        }
        // A second run finishes the work, and the undo covers both runs.
        let again = written % 3 == 1;
        if again {
            home.init();
            assert!(files.iter().all(|(file, old)| text(file) != *old), "{written}");
        }
        home.uninit();
        for (file, old) in &files {
            assert_eq!(text(file), *old, "{written}");
        }
        assert!(!home.config().exists() && !Journal::file(home.directory.path()).exists());
    }
}

#[test]
fn nothing_is_written_if_the_journal_cannot_be() {
    let (home, file) = Home::of(&fixture("cursor"));
    let mut plan = home.plan();
    home.write(".local/state/toolward", "a file where a directory belongs");
    let failed = plan.apply();
    assert!(failed.is_err());
    assert_eq!(text(&file), fixture("cursor").content);
    assert!(!home.config().exists());
}
