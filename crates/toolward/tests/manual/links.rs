//! Links, the table of contents, and tests that pages name.

use std::collections::BTreeSet;

use crate::pages::{Page, page, pages, root};

/// The targets of a page's links.
fn links(page: &Page) -> Vec<String> {
    let prose = page.prose();
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| Some(rest.split_once(')')?.0.to_string())).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for page in pages() {
        for link in links(&page) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let whole = format!("{}: the link {link}", page.name);
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => root().join(&page.name),
                path => page.folder().join(path),
            };
            let target = target.canonicalize().unwrap_or_else(|error| panic!("{whole}: {error}"));
            let name = target.strip_prefix(root()).unwrap().to_str().unwrap().to_string();
            // The manual is also a book: links to files outside of it would be dead there.
            assert!(!page.name.starts_with("docs/") || name.starts_with("docs/"), "{whole}");
            if !anchor.is_empty() {
                let anchors = crate::pages::page(&name).anchors();
                assert!(anchors.iter().any(|one| one == anchor), "{whole}: {anchors:?}");
            }
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let listed = links(&page("docs/SUMMARY.md"));
    let once: BTreeSet<String> = listed.iter().map(|link| format!("docs/{link}")).collect();
    assert_eq!(once.len(), listed.len());
    let there = pages().into_iter().map(|page| page.name).filter(|name| name.starts_with("docs/"));
    let there: BTreeSet<String> = there.filter(|name| name != "docs/SUMMARY.md").collect();
    assert_eq!(once, there);
}

#[test]
fn every_example_is_named_by_the_readme_and_has_one_of_its_own() {
    let readme = page("README.md").text;
    for entry in std::fs::read_dir(root().join("examples")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        // The saved lists are shared.
        if entry.path().is_dir() && name != "tools" {
            assert!(readme.contains(&format!("(examples/{name})")), "{name}");
            assert!(entry.path().join("README.md").exists(), "{name}");
        }
    }
}

#[test]
fn every_test_that_the_security_model_names_is_there() {
    let page = page("docs/security.md");
    let rows = page.text.lines().skip_while(|line| !line.contains("some of the tests"));
    let rows = rows.take_while(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let names: Vec<&str> = words.filter(|word| word.contains('_') && !word.contains('*')).collect();
    assert_tests_exist(&names);
    assert!(names.len() > 30, "{}", names.len());
}

#[test]
fn every_test_that_the_decision_function_names_is_there() {
    let page = page("docs/reference/semantics.md");
    let mut names = Vec::new();
    let rows = page.text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let own: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!own.is_empty(), "no test: {row}");
        names.extend(own);
    }
    assert_tests_exist(&names);
    assert!(names.len() > 30, "{}", names.len());
}

fn assert_tests_exist(names: &[&str]) {
    let mut sources = String::new();
    for folder in ["toolward", "toolward-gateway", "toolward-policy", "toolward-wire"] {
        read(&root().join("crates").join(folder).join("tests"), &mut sources);
    }
    for name in names {
        // Properties are written inside a macro.
        let written = sources.contains(&format!("fn {name}("));
        assert!(written || name.contains('/'), "{name}");
    }
}

fn read(folder: &std::path::Path, sources: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Each phase of `docs/life-of-a-call.md` names a file and a function of the gateway.
#[test]
fn every_phase_of_a_call_is_in_the_named_function() {
    let text = page("docs/life-of-a-call.md").text;
    let code = |cell: &str| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_string());
    let mut phases = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, file, function, _] = cells.as_slice() else { panic!("{row}") };
        let (Some(file), Some(function)) = (code(file), code(function)) else { continue };
        let source =
            std::fs::read_to_string(root().join("crates/toolward-gateway/src").join(&file));
        let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
        let found = ["(", "<"].iter().any(|end| source.contains(&format!("fn {function}{end}")));
        assert!(found, "{file} has no function `{function}`");
        phases += 1;
    }
    assert_eq!(phases, 14);
}
