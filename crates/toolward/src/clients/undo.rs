//! The changes of `uninit`: entries get their old text back, unless they were edited after `init`.

use std::path::{Path, PathBuf};

use toolward_config::splice::{FileFormat, SourceText};

use crate::clients::journal::{Journal, Record};
use crate::clients::masked_diff;
use crate::clients::replace_file;
use crate::clients::table::client;

/// One record, and the change of its entry.
#[derive(Debug)]
pub(crate) struct Undone {
    pub(crate) record: Record,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It gets its old text back, with these lines changed (values are masked).
    Restored(Vec<String>),
    /// It has its old text, or was removed: there is nothing to undo.
    Nothing,
    /// It was edited after `init`; the lines show the difference from the text that `init` wrote.
    Edited(Vec<String>),
    /// The file cannot be read or written.
    Failed(String),
}

/// The undo of all records, or of those of some clients.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) undone: Vec<Undone>,
    files: Vec<(PathBuf, Vec<u8>, Vec<u8>)>,
    journal: Journal,
    journal_file: PathBuf,
    /// The gateway's configuration, and whether it is removed.
    pub(crate) created: Option<(PathBuf, bool)>,
}

impl Undo {
    /// Plans without changing anything.
    pub(crate) fn new(home: &Path, clients: &[String]) -> Result<Undo, String> {
        let journal_file = Journal::file(home);
        let journal = Journal::load(&journal_file).map_err(|why| {
            format!("the journal {} cannot be read: {why}", journal_file.display())
        })?;
        let is_wanted = |record: &&Record| clients.is_empty() || clients.contains(&record.client);
        let wanted: Vec<Record> = journal.records.iter().filter(is_wanted).cloned().collect();
        let mut names: Vec<PathBuf> = wanted.iter().map(|record| record.file.clone()).collect();
        names.dedup();
        let (mut undone, mut files) = (Vec::new(), Vec::new());
        for file in names {
            let of_file = wanted.iter().filter(|record| record.file == file);
            let (outcomes, change) = undo_file(&file, of_file.cloned());
            undone.extend(outcomes);
            files.extend(change.map(|(before, after)| (file, before, after)));
        }
        let created = match &journal.created {
            // Other entries may still use it.
            Some(_) if undone.len() < journal.records.len() => None,
            Some((path, text)) => {
                let is_same = std::fs::read(path).is_ok_and(|now| now == text.as_bytes());
                Some((path.clone(), is_same))
            }
            None => None,
        };
        Ok(Undo { undone, files, journal, journal_file, created })
    }

    /// How many entries get their old text back.
    pub(crate) fn changes(&self) -> usize {
        let restored = |undone: &&Undone| matches!(undone.outcome, Outcome::Restored(_));
        self.undone.iter().filter(restored).count()
    }

    /// Whether entries stay wrapped, so that the gateway's configuration stays too.
    pub(crate) fn is_partial(&self) -> bool {
        let stays = |outcome: &Outcome| matches!(outcome, Outcome::Edited(_) | Outcome::Failed(_));
        self.undone.iter().any(|undone| stays(&undone.outcome))
    }

    /// Makes the changes. Records of entries that stay are kept.
    pub(crate) fn apply(&mut self) -> Result<(), String> {
        for (file, before, after) in &self.files {
            if let Err(why) = replace_file::replace(file, before, after) {
                for undone in self.undone.iter_mut().filter(|one| one.record.file == *file) {
                    undone.outcome = Outcome::Failed(why.to_string());
                }
            }
        }
        let is_over =
            |outcome: &Outcome| matches!(outcome, Outcome::Restored(_) | Outcome::Nothing);
        let over: Vec<&Record> = self
            .undone
            .iter()
            .filter(|undone| is_over(&undone.outcome))
            .map(|undone| &undone.record)
            .collect();
        self.journal.records.retain(|record| !over.contains(&record));
        if self.journal.records.is_empty() {
            self.journal.paths.clear();
            if let Some((path, is_same)) = &self.created {
                if *is_same {
                    std::fs::remove_file(path)
                        .map_err(|error| format!("{}: {error}", path.display()))?;
                }
                self.journal.created = None;
            }
        }
        let failed = |error| format!("{}: {error}", self.journal_file.display());
        self.journal.save(&self.journal_file).map_err(failed)
    }
}

type Change = Option<(Vec<u8>, Vec<u8>)>;

fn undo_file(file: &Path, records: impl Iterator<Item = Record>) -> (Vec<Undone>, Change) {
    let failed = |records: Vec<Record>, why: String| {
        let outcome = |record| Undone { record, outcome: Outcome::Failed(why.clone()) };
        (records.into_iter().map(outcome).collect(), None)
    };
    let records: Vec<Record> = records.collect();
    let before = match replace_file::read(file) {
        Ok(bytes) => bytes,
        Err(_) if file.symlink_metadata().is_err() => {
            let gone = |record| Undone { record, outcome: Outcome::Nothing };
            return (records.into_iter().map(gone).collect(), None);
        }
        Err(why) => return failed(records, why.to_string()),
    };
    let mut text = match SourceText::decode(&before, format(file)) {
        Ok(text) => text,
        Err(why) => return failed(records, why.to_string()),
    };
    let mut undone = Vec::new();
    for record in records {
        let path = &record.path;
        let outcome = match text.entry(path).map(String::from) {
            None => Outcome::Nothing,
            // A client may have formatted its file again.
            Some(now) if text.entry_means(path, &record.new) => {
                match text.replace(path, &now, &record.old) {
                    Ok(restored) => {
                        let shown = |text: &SourceText| masked_diff::masked(text, path);
                        let diff = masked_diff::lines(&shown(&text), &shown(&restored));
                        text = restored;
                        Outcome::Restored(diff)
                    }
                    Err(why) => Outcome::Failed(why.to_string()),
                }
            }
            Some(_) if text.entry_means(path, &record.old) => Outcome::Nothing,
            Some(now) => {
                let expected = text.replace(path, &now, &record.new).ok();
                let expected = expected.map(|text| masked_diff::masked(&text, path));
                let now = masked_diff::masked(&text, path);
                Outcome::Edited(masked_diff::lines(&expected.unwrap_or_default(), &now))
            }
        };
        undone.push(Undone { record, outcome });
    }
    let after = text.encode();
    let change = (after != before).then_some((before, after));
    (undone, change)
}

fn format(file: &Path) -> FileFormat {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => FileFormat::Toml,
        Some("yaml" | "yml") => FileFormat::Yaml,
        _ => FileFormat::Jsonc,
    }
}

/// The client's name for people.
pub(crate) fn client_name(id: &str) -> &str {
    client(id).map_or(id, |client| client.name)
}
