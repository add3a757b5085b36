//! The active files, line by line, with the hit counts of their rules.

use std::collections::HashMap;

use toolward_config::{Disk, LoadedConfig};

use super::hits::{Hit, Hits};

pub(super) struct File {
    pub(super) name: String,
    /// The file on disk has changed.
    pub(super) differs: bool,
    pub(super) lines: Vec<FileLine>,
}

pub(super) struct FileLine {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) hits: Vec<Hit>,
}

/// The files, and rules that are in no displayable file.
pub(super) fn with_hits(loaded: &LoadedConfig, hits: &Hits) -> (Vec<File>, Vec<Hit>) {
    let mut files: Vec<File> = Vec::new();
    for shown in loaded.shown() {
        let Some(lines) = &shown.lines else { continue };
        let line = |(at, text): (usize, &String)| FileLine {
            number: at + 1,
            text: untabbed(text),
            hits: Vec::new(),
        };
        files.push(File {
            differs: shown.differs(&Disk),
            lines: lines.iter().enumerate().map(line).collect(),
            name: shown.name,
        });
    }
    let places = files.iter().enumerate().map(|(at, file)| (file.name.clone(), at));
    let places: HashMap<String, usize> = places.collect();
    let mut loose = Vec::new();
    for (rule, hit) in &hits.rules {
        let file = places.get(&rule.layer).and_then(|at| files.get_mut(*at));
        let line = usize::try_from(rule.place.line).ok().and_then(|line| line.checked_sub(1));
        match file.zip(line).and_then(|(file, line)| file.lines.get_mut(line)) {
            Some(line) => line.hits.push(hit.clone()),
            None => loose.push(hit.clone()),
        }
    }
    (files, loose)
}

/// A tab would be rendered as a symbol.
fn untabbed(text: &str) -> String {
    text.replace('\t', "    ")
}
