//! Entries and files that `init` and `uninit` leave alone, and what they print about them.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::Home;

impl Home {
    /// Adds an entry to the client's file, next to the good one.
    fn add(&self, name: &str, entry: Value) {
        let content = self.content();
        let json = content.trim_start_matches("// mine\n");
        let mut tree: Value = serde_json::from_str(json).unwrap();
        tree["mcpServers"][name] = entry;
        std::fs::write(self.file(), format!("// mine\n{tree:#}\n")).unwrap();
    }
}

#[test]
fn an_entry_that_cannot_be_a_server_is_reported_and_the_others_are_wrapped() {
    let header = json!({"url": "https://mcp.example/", "headers": {"A b": "x"}});
    let own_variable = json!({"command": "x", "env": {"TOOLWARD_ARG_1": "mine"}, "args": ["${a}"]});
    let password = json!({"url": "https://u:p@mcp.example/", "headers": {"A": "x"}});
    for (entry, reason) in [
        (json!({"command": "", "args": []}), ""),
        (header, "A b"),
        (own_variable, "`TOOLWARD_`"),
        (password, "its URL contains a user or a password"),
    ] {
        let home = Home::new();
        home.add("bad", entry.clone());
        let (code, said) = home.run(&["init", "--yes"]);
        assert_eq!(code, 0, "{said}");
        let line = said.lines().find(|line| line.starts_with("  bad: not changed: ")).unwrap();
        assert!(line.contains(reason) && line.len() > "  bad: not changed: ".len(), "{said}");
        assert!(said.contains("Cursor  ~/.cursor/mcp.json\n"), "{said}");
        assert!(said.contains("tracker: wrapped as the server `tracker`"), "{said}");
        assert!(!said.contains("toolward.yaml:") && !said.contains("server.json"), "{said}");
        let content = home.content();
        let json = content.trim_start_matches("// mine\n");
        assert_eq!(serde_json::from_str::<Value>(json).unwrap()["mcpServers"]["bad"], entry);
        // `doctor` does not advise to run `init` again.
        let (_, said) = home.run(&["doctor", "--offline"]);
        assert!(said.contains("bad: direct") && !said.contains("run `toolward init"), "{said}");
    }
}

#[test]
fn rules_that_exist_are_not_called_open() {
    for (rules, is_open) in [
        ("agents: { cursor: { allow: { servers: [other] } } }", false),
        ("agents: { other: { allow: { servers: ['*'] } } }", true),
        ("agents: { other: { allow: { servers: ['*'] } } }\nread_only: true", false),
    ] {
        let home = Home::new();
        std::fs::create_dir_all(home.path(".config/toolward")).unwrap();
        let config = format!("servers: {{ other: {{ command: x }} }}\n{rules}\n");
        std::fs::write(home.path(".config/toolward/toolward.yaml"), config).unwrap();
        let (code, said) = home.run(&["init", "--yes"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(said.contains("nothing is denied yet"), is_open, "{rules}: {said}");
        let apply = "the rules that the policy already had apply to these servers too";
        assert_eq!(said.contains(apply), !is_open, "{rules}: {said}");
    }
}

#[test]
fn a_configuration_that_an_edited_entry_uses_is_kept_and_called_so() {
    let home = Home::new();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    std::fs::write(home.file(), home.content().replace("t-0123456789", "t-other")).unwrap();
    let (code, said) = home.run(&["uninit", "--yes"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("toolward.yaml: kept, because an entry may still use it"), "{said}");
    assert!(!said.contains("removed"), "{said}");
    assert!(home.path(".config/toolward/toolward.yaml").exists());
}

#[test]
fn a_read_only_file_is_reported_once_and_nothing_is_called_wrapped() {
    let home = Home::new();
    let before = home.content();
    std::fs::set_permissions(home.file(), std::fs::Permissions::from_mode(0o444)).unwrap();
    let (_, said) = home.run(&["init", "--yes"]);
    assert!(said.contains("not changed: it is not writable"), "{said}");
    assert!(!said.contains("wrapped"), "{said}");
    home.is_untouched(&before);
}

#[test]
fn a_named_file_that_does_not_exist_is_an_error() {
    let home = Home::new();
    let before = home.content();
    let (code, said) = home.run(&["init", "--yes", "--path", "cursor=/nonexist.json"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("error: --path: /nonexist.json: "), "{said}");
    home.is_untouched(&before);
}

/// As the manual states.
#[test]
fn the_journal_is_for_this_user_only_and_goes_with_the_undo() {
    let home = Home::new();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    let journal = home.path(".local/state/toolward/init.json");
    for file in [&journal, &home.path(".config/toolward/toolward.yaml")] {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    assert!(std::fs::read_to_string(&journal).unwrap().contains(crate::SECRET));
    assert_eq!(home.run(&["uninit", "--yes"]).0, 0);
    assert!(!journal.exists());
}
