//! Mistakes in files, and the diagnostics that the program prints.
//!
//! A case is a file in `tests/mistakes`: sections that begin with `=== `, the last of them the expected
//! output. `UPDATE_EXPECTED=1 cargo test -p toolward-config --test mistakes` rewrites it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use toolward_config::{
    Diagnostic, Format, Inline, Loader, Options, PolicyFile, PolicyFlag, load_inline,
};

#[test]
fn every_mistake_is_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for path in cases {
        let content = fs::read_to_string(&path).unwrap();
        let case = Case::parse(&content);
        let found = case.run();
        if update {
            fs::write(&path, format!("{}=== expected\n{found}\n", case.given)).unwrap();
        } else if found.trim_end() != case.expected.trim_end() {
            wrong.push(format!("{}\n{found}\n", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n\n{}", wrong.len(), wrong.join("\n"));
}

#[derive(Default)]
struct Case {
    /// Everything before the expected output, unchanged.
    given: String,
    expected: String,
    files: HashMap<PathBuf, String>,
    env: HashMap<String, String>,
    options: Options,
    inline: Option<String>,
    resolve: bool,
}

impl Case {
    fn parse(content: &str) -> Self {
        let mut case = Case::default();
        let (given, expected) = content.split_once("=== expected\n").unwrap_or((content, ""));
        case.given = given.to_owned();
        case.expected = expected.to_owned();
        for section in given.split("=== ").filter(|section| !section.is_empty()) {
            let (head, body) = section.split_once('\n').unwrap();
            let (kind, argument) = head.split_once(' ').unwrap_or((head, ""));
            let mut file = |path: &str| {
                case.files.insert(path.into(), body.to_owned());
                PathBuf::from(path)
            };
            match kind {
                "main" => case.options.main = Some(file(argument)),
                "file" => drop(file(argument)),
                "policy" | "allowlist-config" => {
                    let (path, format) = match argument.split_once(" --format ") {
                        Some((path, format)) => (path, Format::from_name(format)),
                        None => (argument, None),
                    };
                    let flag = match kind {
                        "policy" => PolicyFlag::Policy,
                        _ => PolicyFlag::AllowlistConfig,
                    };
                    let path = file(path);
                    case.options.policies.push(PolicyFile { path, flag, format });
                }
                "missing" => case.options.main = Some(argument.into()),
                "inline" => case.inline = Some(body.to_owned()),
                "env" => {
                    let (name, value) = argument.split_once('=').unwrap();
                    case.env.insert(name.into(), value.into());
                }
                "reload" => case.options.reload = true,
                "resolve" => case.resolve = true,
                _ => panic!("unknown section `{kind}`"),
            }
        }
        case
    }

    fn run(&self) -> String {
        let result = match &self.inline {
            Some(policy) => load_inline(Inline::Text(policy)),
            None => Loader { files: &self.files, env: &self.env }.load(&self.options),
        };
        let diagnostics = match result {
            Ok(mut loaded) if self.resolve => loaded.config.resolve_secrets(&self.env, &self.files),
            Ok(loaded) => loaded.warnings,
            Err(failed) => failed.diagnostics,
        };
        let shown: Vec<_> =
            diagnostics.iter().map(|found: &Diagnostic| found.render(false)).collect();
        shown.join("\n\n")
    }
}
