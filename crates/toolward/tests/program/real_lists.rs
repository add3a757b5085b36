//! Tool lists of real servers. They are not part of this repository, because others wrote them.

use std::path::PathBuf;

use serde_json::Value;

/// Each file with its list, by name; `None` if the directory is not there.
pub fn real_lists() -> Option<Vec<(PathBuf, Value)>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let Ok(entries) = std::fs::read_dir(directory) else {
        eprintln!("skipped: there are no real tool lists beside this repository");
        return None;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    assert!(!files.is_empty());
    let read = |file: PathBuf| {
        let list = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        (file, list)
    };
    Some(files.into_iter().map(read).collect())
}
