//! States of entries and second doors, for `doctor`.

use super::{Home, fixture};
use crate::clients::second_doors::second_doors;
use crate::clients::state::State;
use crate::clients::table::Platform;

#[test]
fn doctor_knows_gone_programs_missing_servers_and_imported_ones() {
    let (home, _) = Home::of(&fixture("warp"));
    assert!(matches!(home.states()[..], [State::Direct(None), State::Direct(None)]));
    home.init();
    assert!(
        matches!(&home.states()[0], State::Stale(why) if why.contains("/opt/bin/toolward does not exist"))
    );
    let home = Home::new(Platform::Linux);
    let entry = "{\"command\": \"toolward\", \"args\": [\"stdio\", \"--server\", \"gone\"]}";
    home.write(".cursor/mcp.json", &format!("{{\"mcpServers\": {{\"a\": {entry}}}}}"));
    assert!(matches!(&home.states()[0], State::Stale(why) if why.contains("`gone` is not in")));
    home.write(
        ".config/Code/User/settings.json",
        "{\"chat.mcp.discovery.enabled\": {\"claude-desktop\": true}} // x",
    );
    home.write(".continue/mcpServers/z.json", "{}");
    let doors = second_doors(&home.machine(), &[]);
    let clients: Vec<&str> = doors.iter().map(|door| door.client).collect();
    assert_eq!(clients, ["vscode", "continue"]);
}

#[test]
fn servers_of_plugins_projects_extensions_and_old_settings_are_second_doors() {
    let home = Home::new(Platform::Linux);
    let direct = r#"{"mcpServers": {"a": {"command": "npx"}, "b": {"url": "https://b.example"}}}"#;
    let wrapped = r#"{"mcpServers": {"a": {"command": "/opt/toolward", "args": ["stdio", "--server", "a"]}}}"#;
    let project = home.path("src/app");
    let known = format!("{{\"projects\": {{{:?}: {{}}, \"/nowhere\": {{}}}}}}", project);
    home.write(".claude.json", &known);
    let find = |path: &str, content: &str| {
        let file = home.write(path, content);
        let doors = second_doors(&home.machine(), &[]);
        std::fs::remove_file(file).unwrap();
        doors.into_iter().map(|door| (door.client, door.what)).collect::<Vec<_>>()
    };
    for (path, client, owner) in [
        (".claude/plugins/cache/x/y/.mcp.json", "claude-code", "a plugin"),
        ("src/app/.mcp.json", "claude-code", "a project"),
        (".gemini/extensions/x/gemini-extension.json", "gemini-cli", "an extension"),
        (".kiro/agents/mine.json", "kiro", "an agent"),
    ] {
        let what = format!("{owner} has servers that are not wrapped: a, b");
        assert_eq!(find(path, direct), [(client, what)], "{path}");
        assert_eq!(find(path, wrapped), [], "{path}");
        assert_eq!(find(path, "{}"), [], "{path}");
    }
    // A plugin's file may have no `mcpServers`.
    let plugin = r#"{"a": {"command": "npx"}}"#;
    assert_eq!(find(".claude/plugins/cache/x/.mcp.json", plugin).len(), 1);
    let settings = ".config/Code/User/settings.json";
    for old in [
        r#"{"mcp": {"servers": {"a": {"command": "x"}}}}"#,
        r#"{"mcp.servers": {"a": {"command": "x"}}}"#,
    ] {
        let what = "`settings.json` has servers that are not wrapped: a".to_owned();
        assert_eq!(find(settings, old), [("vscode", what)]);
    }
    assert_eq!(find(settings, r#"{"chat.mcp.discovery.enabled": false}"#), []);
    assert_eq!(find(settings, r#"{"chat.mcp.discovery.enabled": true}"#).len(), 1);
}

#[test]
fn an_entry_that_its_client_wrote_back_is_reported_as_that() {
    let (home, file) = Home::of(&fixture("warp"));
    home.write("bin/toolward", "");
    home.init();
    assert_eq!(home.states(), [State::Wrapped, State::Wrapped]);
    std::fs::write(&file, fixture("warp").content).unwrap();
    assert_eq!(home.states(), [State::Reverted, State::Reverted]);
}
