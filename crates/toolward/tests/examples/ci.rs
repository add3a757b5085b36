//! The pipeline step for pull requests, in a real git repository.

use super::support::{Example, example};

/// The example in a repository of its own, with a branch for each change.
fn repository(branches: &[(&str, &str, &str)]) -> Example {
    let example = example("ci");
    let run = |line: &str| {
        let (code, said) = example.shell(line);
        assert_eq!(code, 0, "{line}: {said}");
    };
    run("cp -r ../tools tools");
    run("git init -q -b main && git config user.name t && git config user.email t@example.com");
    run("git add -A && git commit -qm policy");
    for (branch, from, to) in branches {
        run(&format!("git checkout -q -b {branch} main"));
        let file = example.folder().join("toolward.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        run("git commit -qam change");
    }
    example
}

#[test]
fn a_pull_request_that_widens_is_refused_and_one_that_narrows_passes() {
    let example = repository(&[
        // A narrower deny does not look like a grant.
        ("widens", "[\"delete_*\"]", "[delete_issue]"),
        ("narrows", "\"hint:read-only\"", "\"hint:read-only+closed-world\""),
        ("breaks", "\"hint:read-only\", create_issue", "\"hint:read-only\""),
    ]);
    let check = |branch: &str, environment: &str| {
        example.shell(&format!("git checkout -q {branch} && {environment} ./check-policy.sh main"))
    };
    let (code, said) = check("widens", "");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("**Policy change: wider in"), "{said}");
    assert!(
        said.contains("| **wider** | `triager: tracker/delete_ (readOnlyHint: true)` |"),
        "{said}"
    );
    assert!(said.contains("refused: the change allows more"), "{said}");
    let report = std::fs::read_to_string(example.folder().join("policy-report.md")).unwrap();
    assert!(report.starts_with("**Policy change: wider"), "{report}");
    // A person can allow it.
    let (code, said) = check("widens", "ALLOW_WIDER=1");
    assert_eq!(code, 0, "{said}");

    let (code, said) = check("narrows", "");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("**Policy change: nothing becomes wider**"), "{said}");

    // A policy whose tests fail is refused before it is compared.
    let (code, said) = check("breaks", "ALLOW_WIDER=1");
    assert_ne!(code, 0, "{said}");
    assert!(!said.contains("Policy change"), "{said}");

    let (code, said) = check("main", "");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no difference"), "{said}");
}

#[test]
fn the_configuration_is_found_on_the_base_branch_by_any_path() {
    let example = repository(&[("widens", "[\"delete_*\"]", "[delete_issue]")]);
    let check = |line: &str| example.shell(&format!("git checkout -q widens && {line}"));
    for line in [
        "./check-policy.sh main \"$PWD/toolward.yaml\"",
        "mkdir -p sub && cd sub && TOOL_LISTS=../tools ../check-policy.sh main ../toolward.yaml",
        "./check-policy.sh main ./toolward.yaml",
    ] {
        let (code, said) = check(line);
        assert_eq!(code, 1, "{line}: {said}");
        assert!(said.contains("refused: the change allows more"), "{line}: {said}");
    }
    // Without a version on the base branch, nothing is checked.
    for line in [
        "cp toolward.yaml .. && ./check-policy.sh main ../toolward.yaml",
        "git init -q ../other && cp toolward.yaml ../other && ./check-policy.sh main ../other/toolward.yaml",
        "./check-policy.sh no-such-branch",
    ] {
        let (code, said) = check(line);
        assert_ne!(code, 0, "{line}: {said}");
        assert!(!said.contains("is new"), "{line}: {said}");
    }
}

#[test]
fn the_commands_of_the_readme_work() {
    let example = example("ci");
    let readme = example.file("README.md");
    let commands =
        readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let commands = commands.replace("origin/main", "main");
    let repository =
        "git init -q -b main && git config user.name t && git config user.email t@example.com";
    let (code, said) = example
        .shell(&format!("set -e\n{repository}\ngit add -A\ngit commit -qm policy\n{commands}"));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no difference"), "{said}");
}
