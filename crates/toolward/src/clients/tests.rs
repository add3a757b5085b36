//! `init` and `uninit` over files in the style of real ones, for every client and platform.
#![allow(clippy::unwrap_used, clippy::panic)]

mod doctor;
mod fixtures;
mod hard_fixtures;
mod styles;
mod writing;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use toolward_config::splice::{FileFormat, SourceText, find};

use self::fixtures::{CLAUDE_CODE, FIXTURES, Fixture};
use crate::clients::entry::Entry;
use crate::clients::gateway_file::GatewayFile;
use crate::clients::journal::Journal;
use crate::clients::locate::Machine;
use crate::clients::plan::{Outcome, Plan, Request};
use crate::clients::state::{State, states};
use crate::clients::survey::{Wanted, survey};
use crate::clients::table::{CLIENTS, Platform};
use crate::clients::undo::{self, Undo};

/// A home directory with files.
struct Home {
    directory: TempDir,
    platform: Platform,
}

impl Home {
    fn new(platform: Platform) -> Home {
        Home { directory: tempfile::tempdir().unwrap(), platform }
    }

    fn of(fixture: &Fixture) -> (Home, PathBuf) {
        let home = Home::new(fixture.platform);
        let file = home.write(fixture.path, fixture.content);
        (home, file)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, content: &str) -> PathBuf {
        let file = self.path(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
        file
    }

    fn machine(&self) -> Machine {
        let home = self.directory.path().to_owned();
        Machine { platform: self.platform, home, env: Vec::new(), project: None }
    }

    fn config(&self) -> PathBuf {
        self.path(".config/toolward/toolward.yaml")
    }

    /// The program that clients start; it exists if a test creates it.
    fn program(&self) -> PathBuf {
        let own = self.path("bin/toolward");
        if own.exists() { own } else { "/opt/bin/toolward".into() }
    }

    fn plan(&self) -> Plan {
        let request = Request {
            wanted: Wanted::default(),
            program: self.program(),
            config: self.config(),
            is_default_config: true,
        };
        Plan::new(&self.machine(), &request).unwrap()
    }

    fn init(&self) -> Plan {
        let mut plan = self.plan();
        plan.apply().unwrap();
        plan
    }

    fn uninit(&self) -> Undo {
        let mut undo = Undo::new(self.directory.path(), &[]).unwrap();
        undo.apply().unwrap();
        undo
    }

    fn states(&self) -> Vec<State> {
        let files = survey(&self.machine(), &Wanted::default());
        let gateway = GatewayFile::load(&self.config(), self.directory.path()).unwrap();
        let journal = Journal::load(&Journal::file(self.directory.path())).unwrap();
        states(&files, Some(&gateway), &journal, &self.machine())
            .into_iter()
            .map(|one| one.state)
            .collect()
    }
}

fn text(file: &Path) -> String {
    String::from_utf8(std::fs::read(file).unwrap()).unwrap()
}

fn problems(plan: &Plan) -> Vec<&str> {
    plan.files.iter().filter_map(|file| file.problem.as_deref()).collect()
}

#[test]
fn every_file_is_restored_byte_for_byte_and_nothing_remains() {
    for fixture in FIXTURES {
        let (home, file) = Home::of(fixture);
        let plan = home.init();
        assert_eq!(problems(&plan), [""; 0], "{}", fixture.path);
        assert_eq!(plan.changes(), fixture.wrapped, "{}: {:#?}", fixture.path, plan.files);
        assert_ne!(text(&file), fixture.content, "{}", fixture.path);
        let undo = home.uninit();
        assert_eq!(undo.changes(), fixture.wrapped, "{}: {:#?}", fixture.path, undo.undone);
        assert_eq!(text(&file), fixture.content, "{}", fixture.path);
        assert!(!home.config().exists(), "{}", fixture.path);
        assert!(!Journal::file(home.directory.path()).exists(), "{}", fixture.path);
    }
}

#[test]
fn a_second_init_changes_nothing() {
    for fixture in FIXTURES {
        let (home, file) = Home::of(fixture);
        home.init();
        let (first, config) = (text(&file), text(&home.config()));
        let plan = home.init();
        assert_eq!(plan.changes(), 0, "{}", fixture.path);
        assert_eq!((text(&file), text(&home.config())), (first, config), "{}", fixture.path);
        home.uninit();
        assert_eq!(text(&file), fixture.content, "{}", fixture.path);
    }
}

#[test]
fn every_client_has_a_fixture() {
    for client in CLIENTS {
        assert!(FIXTURES.iter().any(|fixture| fixture.client == client.id), "{}", client.id);
    }
}

#[test]
fn all_clients_of_a_machine_are_wrapped_together_under_one_configuration() {
    let home = Home::new(Platform::Linux);
    let here = || FIXTURES.iter().filter(|fixture| fixture.platform == Platform::Linux);
    for fixture in here() {
        home.write(fixture.path, fixture.content);
    }
    let plan = home.init();
    assert_eq!(plan.changes(), here().map(|fixture| fixture.wrapped).sum::<usize>());
    let config =
        SourceText::decode(&std::fs::read(home.config()).unwrap(), FileFormat::Yaml).unwrap();
    let config = config.tree().unwrap().to_json();
    let agents: Vec<&String> = config["agents"].as_object().unwrap().keys().collect();
    assert_eq!(agents.len(), CLIENTS.len(), "{agents:?}");
    // Kiro, Amazon Q, LM Studio and Warp have the same two servers.
    assert!(
        config["servers"]["a"].is_object() && config["servers"].get("a-3").is_none(),
        "{config:#}"
    );
    assert!(home.states().iter().all(|state| !matches!(state, State::Direct(None))));
    home.uninit();
    for fixture in here() {
        assert_eq!(text(&home.path(fixture.path)), fixture.content, "{}", fixture.path);
    }
    assert!(!home.config().exists());
}

/// The command that the client starts, by its own fields.
fn starts(file: &Path, client: &str, name: &str) -> (Value, Vec<String>) {
    let format = match file.extension().unwrap().to_str().unwrap() {
        "toml" => FileFormat::Toml,
        "yaml" => FileFormat::Yaml,
        _ => FileFormat::Jsonc,
    };
    let source = SourceText::decode(&std::fs::read(file).unwrap(), format).unwrap();
    let home = Home::new(Platform::Linux);
    let fixture = FIXTURES.iter().find(|fixture| fixture.client == client).unwrap();
    let at = home.write(fixture.path, &String::from_utf8(source.encode()).unwrap());
    let machine = Machine { platform: fixture.platform, ..home.machine() };
    let files = survey(&machine, &Wanted::default());
    let found = files.iter().find(|one| one.file == at).unwrap();
    let entry = found.entries.iter().find(|entry| entry.name == name).unwrap();
    let tree = source.tree().unwrap();
    let json = find(&tree, &entry.path).unwrap().to_json();
    let words = match &json["command"] {
        Value::Array(words) => words.clone(),
        command => {
            let command = if command.is_null() { &json["cmd"] } else { command };
            let args = json["args"].as_array().unwrap().iter();
            [command].into_iter().chain(args).cloned().collect()
        }
    };
    (json, words.iter().map(|word| word.as_str().unwrap().into()).collect())
}

#[test]
fn no_argument_contains_a_space_and_the_name_stays() {
    for fixture in FIXTURES {
        let (home, file) = Home::of(fixture);
        let plan = home.init();
        for entry in plan.files.iter().flat_map(|file| &file.entries) {
            let Outcome::Wrap { server, .. } = &entry.outcome else { continue };
            let (_, words) = starts(&file, fixture.client, &entry.name);
            assert_eq!(words[0], "/opt/bin/toolward");
            assert!(words.iter().all(|word| !word.contains(char::is_whitespace)), "{words:?}");
            let wanted = ["--agent", fixture.client, "--server", server];
            assert_eq!(words[words.len() - 4..], wanted, "{}", fixture.path);
        }
    }
}

#[test]
fn values_that_may_be_secret_stay_in_the_clients_file() {
    let secrets = [
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "sk-live-0123456789abcdef0123",
        "${input:tok}",
        "hunter2hunter2",
        "t-0123456789",
        "k-0123456789",
        "abc-0123456789",
        "{env:KEY}",
        "${SENTRY_TOKEN}",
        "${workspaceFolder}",
    ];
    for fixture in FIXTURES {
        let (home, file) = Home::of(fixture);
        let plan = home.init();
        let (config, now) = (text(&home.config()), text(&file));
        for secret in secrets {
            assert!(!config.contains(secret), "{}: {secret} in {config}", fixture.path);
            if fixture.content.contains(secret) {
                assert!(now.contains(secret), "{}: {secret} is gone from {now}", fixture.path);
            }
            // The plan that people see is masked.
            for entry in plan.files.iter().flat_map(|file| &file.entries) {
                let Outcome::Wrap { diff, .. } = &entry.outcome else { continue };
                let is_reference = secret.contains('{');
                assert!(is_reference || !diff.join("\n").contains(secret), "{secret}: {diff:#?}");
            }
        }
        let journal = Journal::file(home.directory.path());
        assert_eq!(journal.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(home.config().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn an_edit_by_another_program_in_between_is_kept() {
    for fixture in FIXTURES.iter().filter(|fixture| fixture.path.ends_with(".json")) {
        let (home, file) = Home::of(fixture);
        home.init();
        // Before the first brace and behind the last one, there is room in every JSON file.
        let edit = |content: &str| content.replacen('{', "{ \"addedByOther\": [1, 2.50], ", 1);
        std::fs::write(&file, edit(&text(&file))).unwrap();
        home.uninit();
        assert_eq!(text(&file), edit(fixture.content), "{}", fixture.path);
    }
}

#[test]
fn an_entry_that_someone_edited_is_left_alone() {
    let (home, file) = Home::of(&fixture("cursor"));
    home.write("bin/toolward", "");
    home.init();
    assert_eq!(home.states(), [State::Wrapped, State::Wrapped]);
    let edited = text(&file).replacen("\"--agent\",\"cursor\"", "\"--agent\",\"me\"", 1);
    assert_ne!(edited, text(&file));
    std::fs::write(&file, &edited).unwrap();
    assert_eq!(home.states(), [State::Drifted, State::Wrapped]);
    let undo = home.uninit();
    let edits = undo.undone.iter().filter(|one| matches!(one.outcome, undo::Outcome::Edited(_)));
    assert_eq!((edits.count(), undo.changes()), (1, 1));
    assert!(text(&file).contains("\"--agent\",\"me\""));
    // Its server is still needed, and its record is kept.
    assert!(home.config().exists() && Journal::file(home.directory.path()).exists());
}

#[test]
fn a_client_that_formats_its_file_again_does_not_prevent_the_undo() {
    let home = Home::new(Platform::Linux);
    home.write("bin/toolward", "");
    let file = home.write(".claude.json", CLAUDE_CODE);
    let plan = home.init();
    let value: Value = serde_json::from_str(&text(&file)).unwrap();
    std::fs::write(&file, format!("{value:#}")).unwrap();
    assert_eq!(plan.reverted().len(), 0);
    assert!(home.states().iter().all(|state| !matches!(state, State::Drifted)));
    assert_eq!(home.uninit().changes(), 3);
    let (now, before): (Value, Value) =
        (serde_json::from_str(&text(&file)).unwrap(), serde_json::from_str(CLAUDE_CODE).unwrap());
    assert_eq!(now, before);
    // One that writes its old content again is noticed.
    let plan = home.init();
    std::fs::write(&file, CLAUDE_CODE).unwrap();
    assert_eq!(plan.reverted().len(), 1);
}

fn fixture(client: &str) -> Fixture {
    let found = FIXTURES.iter().find(|one| one.client == client && one.platform == Platform::Linux);
    Fixture { ..*found.unwrap() }
}

#[test]
fn an_existing_configuration_is_extended_and_keeps_its_policy() {
    let (home, _) = Home::of(&fixture("warp"));
    let own = "# mine\nservers:\n  a: { command: other } # not the same\nagents:\n  me:\n    allow: { servers: [a] }\n";
    home.write(".config/toolward/toolward.yaml", own);
    home.init();
    let now = text(&home.config());
    assert!(
        now.starts_with("# mine\nservers:\n  ")
            && now.ends_with("  me:\n    allow: { servers: [a] }\n"),
        "{now}"
    );
    assert!(
        now.contains("  a: { command: other } # not the same\n") && now.contains("  a-2: {"),
        "{now}"
    );
    assert!(now.contains("  warp: {\"allow\":{\"servers\":[\"*\"]}}\n"), "{now}");
    home.uninit();
    // It belongs to the user: it stays.
    assert_eq!(text(&home.config()), now);
}

#[test]
fn a_client_that_is_added_later_is_undone_with_the_first() {
    let (home, cursor) = Home::of(&fixture("cursor"));
    home.init();
    let zed = home.write(fixture("zed").path, fixture("zed").content);
    assert_eq!(home.init().changes(), 1);
    let config = text(&home.config());
    assert!(config.contains("cursor: ") && config.contains("zed: "), "{config}");
    assert_eq!(home.uninit().changes(), 3);
    assert_eq!(
        (text(&cursor), text(&zed)),
        (fixture("cursor").content.into(), fixture("zed").content.into())
    );
    assert!(!home.config().exists());
}

#[test]
fn a_configuration_without_agents_gets_none() {
    let (home, file) = Home::of(&fixture("warp"));
    home.write(
        ".config/toolward/toolward.yaml",
        "servers:\n  x: { command: y }\nallowed_tools: [z]\n",
    );
    home.init();
    assert!(!text(&home.config()).contains("agents") && !text(&file).contains("--agent"));
}

#[test]
fn a_path_with_a_space_goes_into_the_environment() {
    let (home, file) = Home::of(&fixture("warp"));
    let config = home.path("my files/toolward.yaml");
    let wanted = Wanted::default();
    let request = Request {
        wanted,
        program: "/opt/bin/toolward".into(),
        config: config.clone(),
        is_default_config: false,
    };
    Plan::new(&home.machine(), &request).unwrap().apply().unwrap();
    let (json, words) = starts(&file, "warp", "a");
    assert_eq!(json["env"]["TOOLWARD_CONFIG"], config.to_str().unwrap());
    assert!(!words.contains(&"--config".into()), "{words:?}");
}

#[test]
fn relative_commands_of_a_project_become_absolute() {
    let (home, _) = Home::of(&fixture("claude-code"));
    home.init();
    assert!(text(&home.config()).contains("command: \"/srv/my app/./tools/server.py\""));
    let home = Home::new(Platform::Linux);
    home.write(".cursor/mcp.json", "{\"mcpServers\": {\"a\": {\"command\": \"./x\"}}}");
    let plan = home.init();
    let outcome = &plan.files[0].entries[0].outcome;
    assert_eq!(*outcome, Outcome::Left("its command is a relative path".into()));
}

#[test]
fn entries_that_cannot_be_wrapped_are_reported_with_the_reason() {
    let entries = [
        ("{\"url\": \"https://x.example?k=${K}\", \"oauth\": {\"clientId\": \"x\"}}", "OAuth"),
        (
            "{\"url\": \"https://x.example\", \"oauth\": {}, \"headers\": {\"authorization\": \"x\"}}",
            "OAuth",
        ),
        ("{\"command\": \"${HOME}/x\", \"args\": []}", "references"),
        ("{\"url\": \"unix:///run/x.sock#/mcp\", \"headers\": {\"a\": \"b\"}}", "not http"),
        ("{\"disabled\": true}", "built into"),
        ("7", "not a mapping"),
    ];
    for (entry, words) in entries {
        let home = Home::new(Platform::Linux);
        let content = format!("{{\"mcpServers\": {{\"a\": {entry}}}}}");
        let file = home.write(".cursor/mcp.json", &content);
        let plan = home.init();
        let Outcome::Left(why) = &plan.files[0].entries[0].outcome else { panic!("{entry}") };
        assert!(why.contains(words), "{entry}: {why}");
        assert_eq!(text(&file), content);
        assert!(!home.config().exists(), "{entry}");
    }
}

#[test]
fn entries_whose_client_logs_in_get_a_login() {
    let id = "\"oauth\": {\"clientId\": \"x\"}";
    for (more, expected) in
        [("", "login: {}"), (", \"oauth\": {}", "login: {}"), (id, "\"client_id\":\"x\"")]
    {
        let comma = if more == id { ", " } else { "" };
        let home = Home::new(Platform::Linux);
        let entry = format!("{{\"url\": \"https://x.example/mcp\"{comma}{more}}}");
        let file =
            home.write(".cursor/mcp.json", &format!("{{\"mcpServers\": {{\"a\": {entry}}}}}"));
        let plan = home.init();
        let Outcome::Wrap { server, login, .. } = &plan.files[0].entries[0].outcome else {
            panic!("{entry}")
        };
        assert_eq!((&**server, *login), ("a", true), "{entry}");
        let config = text(&home.config());
        assert!(config.contains(expected), "{config}");
        assert!(
            !text(&file).contains("oauth") && !text(&file).contains("x.example"),
            "{}",
            text(&file)
        );
    }
}

#[test]
fn variables_move_the_files() {
    let home = Home::new(Platform::Linux);
    let file = home.write("elsewhere/config.toml", fixture("codex").content);
    let env = vec![("CODEX_HOME".to_owned(), home.path("elsewhere"))];
    let machine = Machine { env, ..home.machine() };
    let files = survey(&machine, &Wanted::default());
    assert_eq!(files.iter().map(|one| &one.file).collect::<Vec<_>>(), [&file]);
    assert!(files[0].entries.iter().all(|entry| !matches!(entry.entry, Entry::Other(_))));
}
