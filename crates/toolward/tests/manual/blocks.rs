//! Fenced blocks: configurations load, commands print what is shown.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::pages::{Block, page, pages, root};
use crate::program::toolward;

/// Runs `toolward` on a block of a page; returns its output, or why it failed.
fn runs(block: &Block, before: &[&str], name: &str, after: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    // Files that hooks and layers of the pages name.
    for file in std::fs::read_dir(root().join("examples/hooks")).unwrap().flatten() {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::create_dir(folder.path().join("hooks")).unwrap();
    let hook = folder.path().join("hooks/office-hours");
    std::fs::copy(root().join("examples/hooks/office-hours"), hook).unwrap();
    let policy = root().join("examples/import/policy.sh");
    std::fs::copy(policy, folder.path().join("policy.sh")).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, &block.text).unwrap();
    let words = [before, &[path.to_str().unwrap()], after].concat();
    let run = toolward(&words, "");
    let why = format!("{}{}{}", block.text, run.stdout, run.stderr);
    (run.code == 0).then_some(run.stdout).ok_or(why)
}

/// Runs `toolward check`.
fn loads(block: &Block, flag: &str, name: &str) -> Result<String, String> {
    // Tool lists are known only for these servers.
    let known: &[&str] = match block.text.contains("demo-server") {
        true => &["--tools", "examples/tools"],
        false => &[],
    };
    let is_key = |line: &str| line.starts_with("servers") || line.starts_with("mcpServers");
    let has_servers = block.text.lines().any(is_key);
    let mut block = block.clone();
    // A page about rules shows no servers; a gateway's configuration has some.
    if flag == "-c" && !has_servers {
        block.text.push_str("servers:\n");
        for server in ["files", "tracker"] {
            block.text.push_str(&format!("  {server}: {{ url: \"http://127.0.0.1:9/mcp\" }}\n"));
        }
    }
    runs(&block, &["check", "--no-secrets", flag], name, known)
}

#[test]
fn every_configuration_loads() {
    let (mut whole, mut fragments, mut wrong) = (0, 0, Vec::new());
    for page in pages() {
        for block in page.blocks() {
            let loaded = match block.kind.as_str() {
                "yaml" => loads(&block, "-c", "toolward.yaml"),
                // A block without permissions is part of a larger file.
                "yaml part" => {
                    let text = format!("{}allowed_tools: [\"*\"]\n", block.text);
                    loads(&Block { text, ..block.clone() }, "-c", "toolward.yaml")
                }
                "yaml layer" => loads(&block, "--policy", "layer.yaml"),
                "yaml plugin" => runs(&block, &["import", "plugin"], "p", &["--server", "files"]),
                "toml" => loads(&block, "--policy", "layer.toml"),
                "json" if page.name == "docs/policy-formats.md" => {
                    loads(&block, "--policy", "layer.json")
                }
                "json client" => {
                    let read = serde_json::from_str::<Value>(&block.text);
                    read.map(|_| String::new()).map_err(|error| error.to_string())
                }
                "yaml workflow" => {
                    let file = root().join("examples/policy-tests/workflow.yml");
                    let same = block.text == std::fs::read_to_string(file).unwrap();
                    same.then(String::new).ok_or("it is not that of the example".into())
                }
                kind => {
                    let fragment = kind == "yaml fragment";
                    fragments += usize::from(fragment);
                    let known = fragment || !kind.starts_with("yaml");
                    known.then(String::new).ok_or(format!("what is `{kind}`?"))
                }
            };
            whole += usize::from(block.kind == "yaml");
            wrong.extend(loaded.err().map(|why| format!("{}:\n{why}", page.name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(whole > 30 && fragments < 10, "{whole} {fragments}");
}

#[test]
fn the_readme_shows_what_stands_in_the_examples() {
    let mut files = String::new();
    for entry in std::fs::read_dir(root().join("examples")).unwrap().flatten() {
        let Ok(within) = std::fs::read_dir(entry.path()) else { continue };
        for file in within.flatten().map(|file| file.path()) {
            let kind = file.extension().and_then(|extension| extension.to_str());
            if matches!(kind, Some("yaml" | "json")) {
                files.push_str(&std::fs::read_to_string(file).unwrap());
            }
        }
    }
    let blocks = page("README.md").blocks();
    let shown = blocks.iter().filter(|block| ["yaml", "json client"].contains(&&*block.kind));
    for block in shown.clone() {
        assert!(files.contains(&block.text), "no example has this:\n{}", block.text);
    }
    assert!(shown.count() >= 1);
}

#[test]
fn shown_files_of_other_systems_equal_their_native_form() {
    let page = page("docs/policy-formats.md");
    let blocks = page.blocks();
    let yaml = |text: &str| serde_json::from_str::<Value>(text).unwrap()["yaml"].clone();
    let mut pairs = 0;
    for (own, native) in blocks.iter().zip(blocks.iter().skip(1)) {
        let (format, server): (_, &[&str]) = match own.kind.as_str() {
            "json" => ("agents", &["--json"]),
            "toml" => ("toml", &["--json"]),
            "yaml plugin" => ("plugin", &["--server", "files"]),
            _ => continue,
        };
        let made = runs(own, &["import", format], "own", server).unwrap();
        if format == "plugin" {
            assert_eq!(made, native.text);
        } else {
            let written = runs(native, &["import", "policy"], "native", &["--json"]).unwrap();
            assert_eq!(yaml(&made), yaml(&written), "{}", own.text);
        }
        pairs += 1;
    }
    assert!(pairs >= 14, "{pairs}");
    let hook = blocks.iter().find(|block| block.kind == "bash").unwrap();
    let file = std::fs::read_to_string(root().join("examples/import/policy.sh")).unwrap();
    assert_eq!(hook.text, file);
}

#[test]
fn commands_print_what_is_shown() {
    let mut commands = 0;
    for page in pages() {
        // Examples run in their own directories, everything else in the repository.
        let folder = match page.name.starts_with("examples/") {
            true => page.folder(),
            false => root(),
        };
        // `console here` runs in a directory that has the page's last configuration as toolward.yaml.
        let here = tempfile::tempdir().unwrap();
        for block in page.blocks() {
            let folder = match block.kind.as_str() {
                "yaml" => {
                    std::fs::write(here.path().join("toolward.yaml"), &block.text).unwrap();
                    continue;
                }
                "console" => folder.as_path(),
                "console here" => here.path(),
                _ => continue,
            };
            for shown in format!("\n{}", block.text).split("\n$ ").skip(1) {
                let (command, output) = shown.split_once('\n').unwrap_or((shown, ""));
                let printed = shell(command, folder);
                let said = format!("{}: $ {command}\n{printed}", page.name);
                assert_eq!(printed.trim_end(), output.trim_end(), "{said}");
                commands += 1;
            }
        }
    }
    assert!(commands >= 10, "{commands}");
}

/// The output of a command in a shell that finds `toolward`.
fn shell(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_toolward")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let home = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:{path}", program.display()))
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}
