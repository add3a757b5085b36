//! `cargo xtask imports`: the import graph of every crate, and a failure if modules import each other in a cycle.
//!
//! A module imports only modules further down the request path, so a reader can follow a request by reading
//! the list of files. The rules:
//!
//! - **Siblings, at every level.** For each module that has children, the graph between those children
//!   must have no cycle. `a` imports `b` if anything in `a` or below it mentions anything in `b` or below it.
//! - **A parent and its child are one unit.** A child may use its parent's items and the parent its
//!   children's, because a reader opens them together. Neither direction is an edge.
//! - **An item belongs to the module that defines it.** Re-exports and imports are followed: a child that
//!   uses `super::Thing`, which the parent imports from a sibling, imports that sibling. A `pub use` is
//!   also an import of the module that contains it.
//! - **Test code does not count**: items under `#[cfg(test)]` may use anything.
//!
//! Sources are parsed, not compiled: `use` trees, inline paths, and paths among the arguments of macros.

mod graph;
mod paths;
mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use graph::Graph;
use source::Modules;

pub const USAGE: &str = "cargo xtask imports [--quiet] [CRATE]";

pub fn main(words: &[&str]) -> ExitCode {
    let quiet = words.contains(&"--quiet");
    let wanted: Vec<&str> = words.iter().filter(|word| **word != "--quiet").copied().collect();
    let mut failed = false;
    let mut found = false;
    for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        let name = package(&source);
        if !wanted.is_empty() && !wanted.contains(&name.as_str()) {
            continue;
        }
        found = true;
        match Modules::read(&source) {
            Ok(modules) => failed |= !passes(&name, report(&name, &modules, quiet)),
            Err(error) => {
                eprintln!("{name}: {error}");
                failed = true;
            }
        }
    }
    if !found {
        eprintln!("no such crate: {}", wanted.join(", "));
    }
    if failed || !found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The source directories of all packages in the workspace.
fn sources(root: &Path) -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut sources: Vec<PathBuf> = crates.map(|entry| entry.path().join("src")).collect();
    let others = ["benches/src", "xtask/src", "xtask/program/src"];
    sources.extend(others.map(|source| root.join(source)));
    sources.retain(|source| source.is_dir());
    sources.sort();
    sources
}

/// The name of the package that has this source directory.
fn package(source: &Path) -> String {
    let manifest = std::fs::read_to_string(source.join("../Cargo.toml")).unwrap_or_default();
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    name.unwrap_or("unnamed").trim_matches('"').to_string()
}

fn passes(name: &str, cycles: usize) -> bool {
    if cycles > 0 {
        eprintln!("{name}: modules import each other; move what both need further down");
    }
    cycles == 0
}

/// Prints the graphs of one crate and returns the number of cycles.
fn report(name: &str, modules: &Modules, quiet: bool) -> usize {
    let graphs = modules.graphs();
    let edges: usize = graphs.values().map(Graph::edges).sum();
    let cycles: usize = graphs.values().map(|graph| graph.cycles().len()).sum();
    println!("{name}: {} modules, {edges} imports, {cycles} cycles", modules.len());
    for (parent, graph) in &graphs {
        let cycles = graph.cycles();
        let place = [name].into_iter().chain(parent.iter().map(String::as_str));
        let place = place.collect::<Vec<_>>().join("::");
        if !quiet {
            println!("  {place}");
            for (from, to) in graph.in_order() {
                println!("    {from} → {}", if to.is_empty() { "·".into() } else { to.join(", ") });
            }
        }
        for cycle in cycles {
            println!(
                "  cycle in {place}: {}",
                cycle.iter().cloned().collect::<Vec<_>>().join(", ")
            );
            for (from, to, by) in graph.between(&cycle) {
                println!("    {from} → {to} (in {})", by.join(", "));
            }
        }
    }
    cycles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cycles of a crate with these files, each as `parent: member, member`.
    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let modules = Modules::read(directory.path()).unwrap();
        let graphs = modules.graphs();
        let cycles = graphs.iter().flat_map(|(parent, graph)| {
            graph.cycles().into_iter().map(move |cycle| {
                let members: Vec<String> = cycle.into_iter().collect();
                format!("{}: {}", parent.join("::"), members.join(", "))
            })
        });
        cycles.collect()
    }

    #[test]
    fn siblings_that_import_each_other_are_a_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f() { crate::c::g() }"),
            ("c.rs", "pub fn g() { println!(\"{}\", crate::a::A) }"),
        ]);
        assert_eq!(found, [": a, b, c"]);
    }

    #[test]
    fn one_direction_is_no_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_child_and_its_parent_are_one_unit() {
        let found = cycles(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod x; pub struct A; fn f() { x::g() }"),
            ("a/x.rs", "use super::A; pub fn g() {}"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn nested_siblings_are_checked_too() {
        let found = cycles(&[
            ("main.rs", "mod a;"),
            ("a.rs", "mod x; mod y;"),
            ("a/x.rs", "use super::y::Y; pub struct X;"),
            ("a/y.rs", "pub struct Y; fn f(x: crate::a::x::X) {}"),
        ]);
        assert_eq!(found, ["a: x, y"]);
    }

    #[test]
    fn names_that_a_parent_imports_are_followed_to_their_module() {
        let private = ("a.rs", "mod x; mod y; use y::Y; pub struct A;");
        let glob = ("a.rs", "mod x; mod y; pub use y::*; pub struct A;");
        for parent in [private, glob] {
            let found = cycles(&[
                ("lib.rs", "mod a;"),
                parent,
                ("a/x.rs", "use super::Y; pub struct X;"),
                ("a/y.rs", "use super::x::X; pub struct Y;"),
            ]);
            assert_eq!(found, ["a: x, y"]);
        }
    }

    #[test]
    fn a_reexport_is_an_import() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f(a: crate::a::A) {}"),
        ]);
        assert_eq!(found, [": a, b"]);
    }

    #[test]
    fn test_code_may_use_anything() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            (
                "b.rs",
                "pub struct B; impl B { #[cfg(test)] fn f() { crate::a::A; } }\n\
                      #[cfg(test)] use crate::a::A; #[cfg(test)] mod tests { use crate::a::A; }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
