//! Edits of one entry leave everything else of a file as it is, byte for byte, and can be undone.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::json;
use toolward_config::splice::{Edit, FileFormat, Refused, SourceText, Step};

/// The edits that `init` makes to a stdio entry.
fn stdio() -> Vec<Edit> {
    vec![
        Edit::set("command", json!("/usr/local/bin/toolward")),
        Edit::set("args", json!(["stdio", "--agent", "cursor", "--server", "a"])),
    ]
}

/// The edits that `init` makes to an HTTP entry.
fn http() -> Vec<Edit> {
    let mut edits = stdio();
    edits.push(Edit::Set(
        vec!["env".into(), "TOOLWARD_HEADER_1".into()],
        json!("Bearer ${input:t}"),
    ));
    edits.extend(["url", "headers"].map(|name| Edit::Remove(name.into())));
    edits
}

/// Edits, checks that it can be undone and repeated, and returns the edited file.
fn edited(file: &str, format: FileFormat, path: &[Step], edits: &[Edit]) -> String {
    let text = SourceText::decode(file.as_bytes(), format).unwrap();
    assert_eq!(text.encode(), file.as_bytes());
    let new = text.edit(path, edits).unwrap_or_else(|why| panic!("{why}: {file}"));
    let (old_entry, new_entry) = (text.entry(path).unwrap(), new.entry(path).unwrap());
    assert_eq!(new.edit(path, edits).unwrap(), new, "{file}");
    let restored =
        new.replace(path, new_entry, old_entry).unwrap_or_else(|why| panic!("{why}: {file}"));
    assert_eq!(String::from_utf8(restored.encode()).unwrap(), file);
    String::from_utf8(new.encode()).unwrap()
}

fn servers(key: &str) -> [Step; 2] {
    [Step::key(key), Step::key("a")]
}

#[test]
fn json_keeps_comments_commas_line_ends_tabs_and_the_byte_order_mark() {
    let file = "\u{feff}{\r\n\t// mine\r\n\t\"x\": [1,2 , 3,],\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\r\n\t\t\t\"command\": \"npx\", // why\r\n\t\t\t\"autoApprove\": [\"t\"],\r\n\t\t},\r\n\t\t\"b\": {}, /* b */\r\n\t},\r\n}\r\n";
    let new = edited(file, FileFormat::Jsonc, &servers("mcpServers"), &stdio());
    let wanted = file.replace("\"npx\"", "\"/usr/local/bin/toolward\"").replace(
        "[\"t\"],",
        "[\"t\"],\r\n\t\t\t\"args\": [\"stdio\",\"--agent\",\"cursor\",\"--server\",\"a\"],",
    );
    assert_eq!(new, wanted);
}

#[test]
fn members_of_an_http_entry_are_replaced_by_those_of_a_program() {
    let file = r#"{"mcpServers": {"a": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${input:t}"}, "timeout": 5}}, "z": 1}"#;
    let new = edited(file, FileFormat::Jsonc, &servers("mcpServers"), &http());
    assert_eq!(
        new,
        r#"{"mcpServers": {"a": {"type": "http", "timeout": 5, "command": "/usr/local/bin/toolward", "args": ["stdio","--agent","cursor","--server","a"], "env": {"TOOLWARD_HEADER_1":"Bearer ${input:t}"}}}, "z": 1}"#
    );
}

#[test]
fn toml_tables_inline_tables_and_tables_below_are_edited() {
    let sections = "# top\nmodel = \"o3\" # mine\n\n[mcp_servers.a] # first\n# about it\ncommand = 'npx'\nargs = [\n  \"-y\", # yes\n  \"pkg\",\n]\n\n[mcp_servers.a.env]\nTOKEN = \"t\"\n\n[other]\nx = 1979-05-27\n";
    let new = edited(sections, FileFormat::Toml, &servers("mcp_servers"), &stdio());
    assert_eq!(
        new,
        "# top\nmodel = \"o3\" # mine\n\n[mcp_servers.a] # first\n# about it\ncommand = \"/usr/local/bin/toolward\"\nargs = [\"stdio\", \"--agent\", \"cursor\", \"--server\", \"a\"]\n\n[mcp_servers.a.env]\nTOKEN = \"t\"\n\n[other]\nx = 1979-05-27\n"
    );
    let http_table = "[mcp_servers.a]\r\nurl = \"https://x.example\"\r\n\r\n[mcp_servers.a.headers]\r\nX = \"1\"\r\n\r\n# last\r\n[z]\r\n";
    let new = edited(http_table, FileFormat::Toml, &servers("mcp_servers"), &http());
    assert!(new.ends_with("\r\n\r\n# last\r\n[z]\r\n"), "{new}");
    assert!(!new.contains("x.example") && !new.contains("headers"), "{new}");
    let inline = "[mcp_servers]\na = { command = \"npx\", env = { T = \"1\" } } # c\nb = {}\n";
    let new = edited(inline, FileFormat::Toml, &servers("mcp_servers"), &stdio());
    assert!(new.contains("env = { T = \"1\" }, args = [\"stdio\""), "{new}");
}

#[test]
fn a_toml_header_in_a_string_is_not_a_header() {
    let file = "note = '''\n[mcp_servers.a]\ncommand = \"fake\"\n'''\n[mcp_servers.\"a\"] # c\ncommand = \"npx\"\n";
    let new = edited(file, FileFormat::Toml, &servers("mcp_servers"), &stdio());
    assert!(new.starts_with("note = '''\n[mcp_servers.a]\ncommand = \"fake\"\n'''\n"), "{new}");
}

#[test]
fn yaml_blocks_flows_and_lists_by_name_are_edited() {
    let map = "# goose\nextensions:\n  a:\n    cmd: npx # c\n    args:\n    - -y\n    - \"x y\"\n    envs: {T: '1'}\n  b: {cmd: z}\n";
    let edits = [
        Edit::set("cmd", json!("/usr/local/bin/toolward")),
        Edit::set("args", json!(["stdio"])),
        Edit::set("type", json!("stdio")),
    ];
    let new = edited(map, FileFormat::Yaml, &servers("extensions"), &edits);
    assert_eq!(
        new,
        "# goose\nextensions:\n  a:\n    type: \"stdio\"\n    cmd: \"/usr/local/bin/toolward\" # c\n    args: [\"stdio\"]\n    envs: {T: '1'}\n  b: {cmd: z}\n"
    );
    let list = "name: x\r\nmcpServers:\r\n  - name: a\r\n    url: https://x.example\r\n    # about\r\n    headers:\r\n      A: b\r\n  - name: b\r\n    command: z\r\n";
    let path = [Step::key("mcpServers"), Step::Named("a".into())];
    let new = edited(list, FileFormat::Yaml, &path, &http());
    assert!(new.ends_with("\r\n  - name: b\r\n    command: z\r\n"), "{new}");
    let flow = "mcpServers: [{name: a, command: npx}, {name: b}]\n";
    let new = edited(flow, FileFormat::Yaml, &path, &stdio());
    assert!(new.ends_with("}, {name: b}]\n"), "{new}");
}

#[test]
fn files_that_do_not_parse_or_have_duplicate_keys_are_refused() {
    let cases = [
        ("{\"a\": 1, \"a\": 2}", FileFormat::Jsonc, "duplicated"),
        ("{\"a\": ", FileFormat::Jsonc, "line 1"),
        ("{\"a\": 1}}", FileFormat::Jsonc, "more text"),
        ("a = 1\na = 2\n", FileFormat::Toml, "line 2"),
        ("[a\n", FileFormat::Toml, "invalid TOML"),
        ("a: 1\na: 2\n", FileFormat::Yaml, "duplicated"),
        ("a: [1\n", FileFormat::Yaml, "line"),
        ("a: &x 1\nb: *x\n", FileFormat::Yaml, "aliases"),
    ];
    for (file, format, words) in cases {
        let refused = SourceText::decode(file.as_bytes(), format).unwrap_err();
        assert!(refused.to_string().contains(words), "{file}: {refused}");
    }
    assert_eq!(SourceText::decode(b"{\"a\": \"\xff\"}", FileFormat::Jsonc), Err(Refused::NotUtf8));
}

#[test]
fn entries_that_cannot_be_edited_are_refused() {
    let spread = "[mcp_servers.a]\ncommand = \"x\"\n[z]\ny = 1\n[mcp_servers.a.env]\nT = \"1\"\n";
    let dotted = "mcp_servers.a.command = \"x\"\n";
    for file in [spread, dotted] {
        let text = SourceText::decode(file.as_bytes(), FileFormat::Toml).unwrap();
        let refused = text.edit(&servers("mcp_servers"), &stdio()).unwrap_err();
        assert!(matches!(refused, Refused::Unsupported(_)), "{file}: {refused}");
    }
    let twice = "mcpServers:\n- name: a\n  command: x\n- name: a\n  command: y\n";
    let text = SourceText::decode(twice.as_bytes(), FileFormat::Yaml).unwrap();
    let path = [Step::key("mcpServers"), Step::Named("a".into())];
    assert_eq!(text.edit(&path, &stdio()), Err(Refused::Missing));
    let text = SourceText::decode(b"{\"mcpServers\": {\"a\": 1}}", FileFormat::Jsonc).unwrap();
    assert!(matches!(text.edit(&servers("mcpServers"), &stdio()), Err(Refused::Unsupported(_))));
}

#[test]
fn an_entry_that_someone_edited_is_not_replaced() {
    let file = r#"{"mcpServers": {"a": {"command": "npx"}}}"#;
    let text = SourceText::decode(file.as_bytes(), FileFormat::Jsonc).unwrap();
    let path = servers("mcpServers");
    assert_eq!(text.replace(&path, "{\"command\": \"other\"}", "{}"), Err(Refused::Changed));
    // Text that would end the entry early changes other parts of the file.
    let entry = text.entry(&path).unwrap();
    assert_eq!(text.replace(&path, entry, "{}, \"b\": {}"), Err(Refused::Unsafe));
    assert_eq!(text.replace(&path, entry, "{"), Err(Refused::Unsafe));
}

/// White space and comments between the tokens of JSON.
fn gap() -> impl Strategy<Value = String> {
    let gaps = ["", " ", "\n  ", "\r\n\t", " // c }\n", "/* , } */", "\n\n"];
    proptest::sample::select(gaps.to_vec()).prop_map(String::from)
}

fn word() -> impl Strategy<Value = String> {
    "[a-z \u{e9}\u{1f600}\\\\\"{},:#\\[\\]]{0,6}".prop_map(|text| json!(text).to_string())
}

/// A JSON value with random gaps.
fn json_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![word(), Just("1.50".into()), Just("null".into()), Just("true".into())];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let items = proptest::collection::vec((gap(), inner.clone(), gap()), 0..4);
        let list = items.prop_map(|items| {
            let items: Vec<_> = items.iter().map(|(a, item, b)| format!("{a}{item}{b}")).collect();
            format!("[{}]", items.join(","))
        });
        let members = proptest::collection::vec((gap(), inner, gap()), 0..4);
        let map = members.prop_map(|members| object(&members, false));
        prop_oneof![list, map]
    })
}

/// An object with the keys `k0`, `k1`, and so on.
fn object(members: &[(String, String, String)], trailing: bool) -> String {
    let members: Vec<_> = members
        .iter()
        .enumerate()
        .map(|(at, (before, value, after))| format!("{before}\"k{at}\":{after}{value}{after}"))
        .collect();
    let comma = if trailing && !members.is_empty() { "," } else { "" };
    format!("{{{}{comma}}}", members.join(","))
}

/// An entry with some of the members that `init` touches, in random order.
fn json_entry() -> impl Strategy<Value = String> {
    let names = ["command", "args", "url", "headers", "disabled", "timeout"];
    let chosen = proptest::sample::subsequence(names.to_vec(), 1..=names.len()).prop_shuffle();
    (chosen, gap(), gap(), json_value(), any::<bool>()).prop_map(
        |(names, a, b, value, trailing)| {
            let members: Vec<_> =
                names.iter().map(|name| format!("{a}\"{name}\"{b}:{a}{value}{b}")).collect();
            let comma = if trailing { "," } else { "" };
            format!("{{{}{comma}{a}}}", members.join(","))
        },
    )
}

proptest! {
    #[test]
    fn any_json_file_is_restored(
        (a, b, before, entry, after) in (gap(), gap(), json_value(), json_entry(), json_value()),
        (bom, trailing) in (any::<bool>(), any::<bool>()),
    ) {
        let (bom, comma) = (if bom { "\u{feff}" } else { "" }, if trailing { "," } else { "" });
        let file = format!(
            "{bom}{a}{{{b}\"x\":{a}{before},{b}\"mcpServers\":{{{a}\"a\"{b}:{a}{entry}{comma}{b}}},{a}\"y\":{after}{comma}}}{a}"
        );
        for edits in [stdio(), http()] {
            let new = edited(&file, FileFormat::Jsonc, &servers("mcpServers"), &edits);
            prop_assert!(new.starts_with(file.split("\"mcpServers\"").next().unwrap()));
        }
    }

    #[test]
    fn any_toml_file_is_restored(
        lines in proptest::collection::vec(proptest::sample::select(vec![
            "command = \"npx\"", "url = 'https://x.example'", "# comment [mcp_servers.a]", "",
            "args = [\n \"a b\", # c\n]", "headers = { A = \"b\" }", "  enabled = true # x",
            "note = \"\"\"\n[z]\n\"\"\"", "startup_timeout_sec = 1.5",
        ]), 1..6),
        (env, crlf, first) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let mut seen = std::collections::HashSet::new();
        let mut own: Vec<&str> = lines.into_iter().filter(|line| seen.insert(line.split('=').next().unwrap().trim())).collect();
        if !own.iter().any(|line| line.contains('=')) {
            own.push("enabled = false");
        }
        let before = if first { "" } else { "model = \"m\" # m\n\n[mcp_servers.b]\ncommand = 'b'\n\n" };
        let env = if env { "\n[mcp_servers.a.env]\nT = \"1\"\n" } else { "" };
        let file = format!("{before}[mcp_servers.a]\n{}\n{env}\n# tail\n[tail]\nx = 1 \n", own.join("\n"));
        let file = if crlf { file.replace('\n', "\r\n") } else { file };
        for edits in [stdio(), http()] {
            let new = edited(&file, FileFormat::Toml, &servers("mcp_servers"), &edits);
            let ends = if crlf { "\r\n" } else { "\n" };
            prop_assert!(new.starts_with(&before.replace('\n', ends)));
        }
    }

    #[test]
    fn any_yaml_file_is_restored(
        members in proptest::sample::subsequence(vec![
            "command: npx  # c", "args:\nI- -y\nI- 'a: b'", "url: \"https://x.example\"",
            "headers:\nI  A: b\nI  # in between\nI  C: d", "disabled: false", "text: |\nI  # not\nI  a comment", "empty:",
        ], 1..=7).prop_shuffle(),
        (indent, crlf, list, gap) in (1usize..5, any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let outer = " ".repeat(indent);
        let inner = if list { format!("{outer}  ") } else { outer.repeat(2) };
        let gap = if gap { format!("\n{outer}# a comment\n") } else { String::new() };
        let body: Vec<_> = members.iter().map(|member| format!("{inner}{}", member.replace('I', &inner))).collect();
        let head = if list { format!("{outer}- name: a") } else { format!("{outer}a:") };
        let tail = if list { format!("{outer}- name: b\n{outer}  command: z") } else { format!("{outer}b: {{}}") };
        let file = format!("x: [1] # x\nmcpServers:\n{head}\n{}\n{gap}{tail}\n# end\n", body.join("\n"));
        let file = if crlf { file.replace('\n', "\r\n") } else { file };
        let step = if list { Step::Named("a".into()) } else { Step::key("a") };
        let path = [Step::key("mcpServers"), step];
        for edits in [stdio(), http()] {
            let new = edited(&file, FileFormat::Yaml, &path, &edits);
            let end = if crlf { format!("{}\r\n# end\r\n", tail.replace('\n', "\r\n")) } else { format!("{tail}\n# end\n") };
            prop_assert!(new.ends_with(&end), "{}", new);
        }
    }
}
