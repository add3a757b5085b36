//! Truncated files beside the policy: secrets, variables, included servers.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::harness::{Gate, Setup, agent_at, setup};
use super::reload::{beside, listed, replace, said, two};

const TOKEN: &str = "3f9a61c07be24d58a1f0";

/// Replaces a file that only its owner may read.
fn replace_secret(path: &Path, text: &str) {
    replace(path, text);
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn with_token_file() -> Setup {
    let setup = setup().web("s", "modern", two());
    replace_secret(&setup.path("token"), &format!("{TOKEN}\n"));
    setup.agents(json!({"a": {"tokens": ["${file:token}"], "allow": {"servers": ["s"]}}}))
}

/// Reloads with every prefix of a file, and with each of them ended by a newline. Returns how many of
/// the reloads were rejected because the file is a prefix of its active version.
fn cut_everywhere(gate: &Gate, file: &Path, whole: &str, mut then: impl FnMut(&str)) -> usize {
    let mut refused = 0;
    for end in 0..whole.len() {
        for cut in [whole[..end].to_string(), format!("{}\n", &whole[..end])] {
            if cut == whole {
                continue;
            }
            replace_secret(file, &cut);
            let (code, told) = beside(gate, &["reload"]);
            // Without its final newline, a file of JSON has the same data; other files may be secrets.
            let is_same = cut == whole.trim_end() && whole.starts_with('{');
            assert_eq!(code, if is_same { 0 } else { 3 }, "cut at {end}: {told}");
            if told.contains("truncated: ") {
                assert!(told.contains(&*file.to_string_lossy()), "{told}");
                assert!(told.contains("toolward reload --accept"), "{told}");
                refused += 1;
            }
            then(&cut);
        }
    }
    refused
}

#[test]
fn a_truncated_token_file_changes_no_token() {
    let gate = with_token_file().start();
    let (whole, file) = (agent_at(gate.port, TOKEN), gate.file("token"));
    assert_eq!(listed(&whole).len(), 2);
    let refused = cut_everywhere(&gate, &file, &format!("{TOKEN}\n"), |cut| {
        let cut = cut.trim_end();
        if !cut.is_empty() && cut != TOKEN {
            let reply = agent_at(gate.port, cut).modern_reply(json!(1), "tools/list", json!({}));
            assert_eq!(reply.status, 401, "{cut}");
        }
        assert_eq!(listed(&whole).len(), 2);
    });
    // Shorter ones are not valid tokens.
    assert!(refused >= 2 * (TOKEN.len() - 16), "{refused}");
    // The watcher rejects it too.
    gate.said.lock().unwrap().clear();
    replace_secret(&file, &TOKEN[..18]);
    said(&gate, "toolward reload --accept");
    assert_eq!(listed(&whole).len(), 2);
    let (code, told) = beside(&gate, &["reload", "--accept"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(listed(&agent_at(gate.port, &TOKEN[..18])).len(), 2);
    assert_eq!(whole.modern_reply(json!(1), "tools/list", json!({})).status, 401);
    // Another token is not a prefix, and neither are longer ones.
    for next in ["another-token-of-agent-a", "another-token-of-agent-a-2"] {
        replace_secret(&file, next);
        let (code, told) = beside(&gate, &["reload"]);
        assert_eq!(code, 0, "{told}");
        assert_eq!(listed(&agent_at(gate.port, next)).len(), 2);
    }
}

#[test]
fn comments_and_blank_lines_at_the_end_can_be_removed() {
    let gate = with_token_file().set("policies", json!(["rules.yaml"]));
    let rules = "# Rules\nallowed_tools: ['*']\nmessage: |\n  Ask in\n  # platform\n";
    replace(&gate.path("rules.yaml"), &format!("{rules}\n\n# To do: more\n# rules\n"));
    let gate = gate.start();
    let file = gate.file("rules.yaml");
    for shorter in [
        format!("{rules}\n\n# To do: more\n# ru"),
        format!("{rules}\n\n# To do"),
        format!("{rules}\n\n"),
        format!("{rules}\n"),
        rules.into(),
    ] {
        replace(&file, &shorter);
        let (code, told) = beside(&gate, &["reload"]);
        assert_eq!(code, 0, "{shorter:?}: {told}");
    }
    // In a text, a `#` is not a comment.
    for cut in [rules.replace("  # platform\n", ""), rules.replace("  # platform\n", "  # plat\n")]
    {
        replace(&file, &cut);
        let (code, told) = beside(&gate, &["reload"]);
        assert!(code == 3 && told.contains("truncated: "), "{cut:?}: {told}");
    }
}

#[test]
fn an_empty_secret_file_is_an_error_at_the_start_and_on_a_reload() {
    for empty in ["", "\n", "\r\n", "  \n", "\n\n"] {
        let setup = with_token_file();
        replace_secret(&setup.path("token"), empty);
        let (code, told) = setup.fails();
        assert!(code == 3 && told.contains("is empty"), "{empty:?}: {code} {told}");
    }
    let gate = with_token_file().start();
    replace_secret(&gate.file("token"), " \n");
    let (code, told) = beside(&gate, &["reload", "--accept"]);
    assert!(code == 3 && told.contains("is empty"), "{code} {told}");
}

#[test]
fn a_file_of_variables_or_servers_that_was_cut_is_not_applied() {
    let variables = "SAFE=1\nREAD_ONLY=true\n";
    let setup =
        setup().agents(json!({"a": {"allow": {"servers": ["*"]}}})).web("s", "modern", two());
    replace_secret(&setup.path("variables"), variables);
    let server = json!({"command": "cat", "envFile": "variables"});
    let servers = json!({"mcpServers": {"other": server}}).to_string() + "\n";
    replace(&setup.path("mcp.json"), &servers);
    let gate = setup.set("servers_from", json!(["mcp.json"])).start();
    let refused = cut_everywhere(&gate, &gate.file("variables"), variables, |_| {});
    // The others are not lines of the form `NAME=VALUE`.
    assert!(refused >= 10, "{refused}");
    replace_secret(&gate.file("variables"), variables);
    let refused = cut_everywhere(&gate, &gate.file("mcp.json"), &servers, |_| {});
    assert_eq!(refused, 0, "truncated JSON is not JSON");
    replace(&gate.file("mcp.json"), &servers);
    let (code, told) = beside(&gate, &["reload"]);
    assert_eq!(code, 0, "{told}");
}
