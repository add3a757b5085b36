//! What the README shows is what the program prints.
#![allow(clippy::unwrap_used)]

mod program;

use program::toolward;

#[test]
fn console_blocks_are_true() {
    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let mut blocks = 0;
    for block in readme.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let (command, shown) = block.split_once('\n').unwrap();
        let line = command.strip_prefix("$ toolward ").unwrap();
        let words: Vec<&str> = line
            .split('\'')
            .enumerate()
            .flat_map(
                |(at, part)| {
                    if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
                },
            )
            .collect();
        let run = toolward(&words, "");
        assert_eq!(
            run.stdout.lines().collect::<Vec<_>>(),
            shown.lines().collect::<Vec<_>>(),
            "{command}"
        );
        blocks += 1;
    }
    assert!(blocks >= 2);
}

#[test]
fn the_policy_of_the_readme_is_valid() {
    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let yaml = readme.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolward.yaml");
    std::fs::write(&path, yaml).unwrap();
    let run = toolward(
        &["check", "-c", path.to_str().unwrap(), "--tools", "examples/first-policy/tools"],
        "",
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}
