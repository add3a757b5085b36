//! The files that are searched.

use std::path::{Path, PathBuf};

use super::prose::{self, Text};

/// Every text that is searched.
pub fn texts(root: &Path) -> Result<Vec<Text>, String> {
    let mut texts = Vec::new();
    for top in ["crates", "xtask", "benches", "docs", "examples"] {
        for file in files(&root.join(top)) {
            read(root, &file, &mut texts)?;
        }
    }
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        read(root, &root.join(page), &mut texts)?;
    }
    Ok(texts)
}

fn read(root: &Path, file: &Path, texts: &mut Vec<Text>) -> Result<(), String> {
    let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    let third_party = name.contains(".min.") || name.contains("/target/");
    // Generated pages repeat texts that are counted in the sources.
    if third_party || name.starts_with("docs/reference/") {
        return Ok(());
    }
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    let content = || std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"));
    match &*extension {
        "rs" => prose::rust(&name, &content()?, is_test, texts),
        "md" if name == "CHANGELOG.md" => {
            let whole = content()?;
            let newest = whole.splitn(3, "\n## ").take(2).collect::<Vec<_>>().join("\n## ");
            prose::markdown(&name, &newest, texts);
        }
        "md" if !is_test => prose::markdown(&name, &content()?, texts),
        "yaml" | "sh" | "py" | "bash" | "lua" if !is_test => {
            prose::script(&name, &content()?, texts);
        }
        "html" if name.contains("/templates/") => prose::html(&name, &content()?, texts),
        "js" if name.contains("/assets/") => prose::javascript(&name, &content()?, texts),
        _ => {}
    }
    Ok(())
}

/// All files under a directory, in order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.into_iter().flat_map(below).collect()
}
