//! The Markdown pages, parsed.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A page in Markdown.
pub struct Page {
    /// Its path from the root of the repository.
    pub name: String,
    pub text: String,
}

/// A fenced block.
#[derive(Clone)]
pub struct Block {
    /// The text after the opening fence: a language, and options.
    pub kind: String,
    pub text: String,
}

/// A page by its name.
pub fn page(name: &str) -> Page {
    let text = std::fs::read_to_string(root().join(name)).unwrap();
    Page { name: name.into(), text }
}

/// All pages, written by hand or generated for people.
pub fn pages() -> Vec<Page> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        names.extend(Some(name).filter(|name| name.ends_with(".md")));
    }
    for folder in ["docs", "examples"] {
        below(folder, &mut names);
    }
    names.sort();
    names.iter().map(|name| page(name)).collect()
}

fn below(folder: &str, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
        let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if entry.path().is_dir() {
            below(&name, names);
        } else if name.ends_with(".md") {
            names.push(name);
        }
    }
}

impl Page {
    /// The page's directory.
    pub fn folder(&self) -> PathBuf {
        root().join(&self.name).parent().unwrap().into()
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for line in self.text.lines() {
            let inner = line.trim_start();
            match (inner.strip_prefix("```"), &mut open) {
                (Some(kind), None) => {
                    let block = Block { kind: kind.trim().into(), text: String::new() };
                    open = Some((line.len() - inner.len(), block));
                }
                (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
                (None, Some((indent, block))) => {
                    block.text.push_str(line.get(*indent..).unwrap_or_default());
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.name);
        blocks
    }

    /// The text without fenced blocks and code spans.
    pub fn prose(&self) -> String {
        let mut prose = String::new();
        let mut fenced = false;
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                let parts = line.split('`').enumerate();
                prose.extend(parts.filter(|(at, _)| at % 2 == 0).map(|(_, part)| part));
                prose.push('\n');
            }
        }
        prose
    }

    /// The anchors of its headings.
    pub fn anchors(&self) -> Vec<String> {
        let mut fenced = false;
        let mut anchors = Vec::new();
        for line in self.text.lines() {
            fenced ^= line.trim_start().starts_with("```");
            let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
            let words = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
        anchors
    }
}
