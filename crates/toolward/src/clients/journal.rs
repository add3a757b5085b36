//! The journal of `init`: the old and new text of every entry that was changed, for an exact undo.
//!
//! One file in the state directory, for this user only, because old entries may contain secrets. It is written
//! before the clients' files: a process that is killed in between leaves a record of a change that was not made,
//! which `uninit` recognizes.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolward_config::splice::Step;

use crate::clients::replace_file;

/// The changes that `init` made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Journal {
    /// The gateway's configuration, if `init` created it, with its content at that time.
    pub(crate) created: Option<(PathBuf, String)>,
    pub(crate) records: Vec<Record>,
    /// Files that were named with `--path`, by client.
    pub(crate) paths: Vec<(String, PathBuf)>,
}

/// One entry that was changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) client: String,
    pub(crate) file: PathBuf,
    pub(crate) path: Vec<Step>,
    /// The server in the gateway's configuration.
    pub(crate) server: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

impl Journal {
    /// The path of a user's journal.
    pub(crate) fn file(home: &Path) -> PathBuf {
        home.join(".local/state/toolward/init.json")
    }

    /// Reads the journal; one that does not exist is empty.
    pub(crate) fn load(file: &Path) -> Result<Journal, String> {
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Journal::default()),
            Err(error) => return Err(error.to_string()),
        };
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Journal::of_json(&value).ok_or_else(|| "it is not a journal of `toolward init`".into())
    }

    /// Writes the journal, or removes it if it is empty.
    pub(crate) fn save(&self, file: &Path) -> io::Result<()> {
        if self.records.is_empty() && self.created.is_none() && self.paths.is_empty() {
            return match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let text = format!("{:#}\n", self.to_json());
        match std::fs::read(file) {
            Ok(old) => replace_file::replace(file, &old, text.as_bytes())
                .map_err(|why| io::Error::other(why.to_string())),
            Err(_) => replace_file::create(file, text.as_bytes()),
        }
    }

    /// The journal record of an entry.
    pub(crate) fn record(&self, file: &Path, path: &[Step]) -> Option<&Record> {
        self.records.iter().find(|record| record.file == file && record.path == path)
    }

    /// Adds a record, instead of an earlier one of the same entry.
    pub(crate) fn add(&mut self, record: Record) {
        self.records.retain(|known| known.file != record.file || known.path != record.path);
        self.records.push(record);
    }

    fn to_json(&self) -> Value {
        let records = self.records.iter().map(|record| {
            let path = record.path.iter().map(|step| match step {
                Step::Key(name) => json!({"key": name}),
                Step::Named(name) => json!({"named": name}),
            });
            json!({
                "client": record.client,
                "file": record.file,
                "path": path.collect::<Vec<_>>(),
                "server": record.server,
                "old": record.old,
                "new": record.new,
            })
        });
        json!({
            "version": 1,
            "created": self.created.as_ref().map(|(file, text)| json!({"file": file, "text": text})),
            "records": records.collect::<Vec<_>>(),
            "paths": self.paths.iter().map(|(client, file)| json!({"client": client, "file": file}))
                .collect::<Vec<_>>(),
        })
    }

    fn of_json(value: &Value) -> Option<Journal> {
        if value["version"] != 1 {
            return None;
        }
        let text = |value: &Value| value.as_str().map(String::from);
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let created = match &value["created"] {
            Value::Null => None,
            created => Some((path(&created["file"])?, text(&created["text"])?)),
        };
        let record = |value: &Value| {
            let step = |step: &Value| match (step["key"].as_str(), step["named"].as_str()) {
                (Some(key), None) => Some(Step::key(key)),
                (None, Some(name)) => Some(Step::Named(name.into())),
                _ => None,
            };
            Some(Record {
                client: text(&value["client"])?,
                file: path(&value["file"])?,
                path: value["path"].as_array()?.iter().map(step).collect::<Option<_>>()?,
                server: text(&value["server"])?,
                old: text(&value["old"])?,
                new: text(&value["new"])?,
            })
        };
        let records = value["records"].as_array()?.iter().map(record).collect::<Option<_>>()?;
        let paths = value["paths"].as_array()?.iter();
        let paths = paths.map(|one| Some((text(&one["client"])?, path(&one["file"])?)));
        Some(Journal { created, records, paths: paths.collect::<Option<_>>()? })
    }
}
