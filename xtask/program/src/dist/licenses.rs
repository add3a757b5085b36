//! The licenses of the crates that are linked into the program, which packages with the program must contain.

use std::collections::BTreeMap;
use std::path::Path;

use super::sbom::{Crates, word};
use super::{Dist, Result, list};

pub(super) const NAME: &str = "THIRD-PARTY-LICENSES";

/// How the files begin that contain a license or a notice.
const BEGINNINGS: [&str; 5] = ["license", "licence", "copying", "copyright", "notice"];

/// Every text once, after the names of the crates that have it.
pub(super) fn texts(dist: &Dist) -> Result<String> {
    let crates = Crates::read(dist)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut overview = String::new();
    for id in crates.linked.keys() {
        let package = &crates.packages[id];
        // Crates of the workspace have no source.
        if package["source"].is_null() {
            continue;
        }
        let title = format!("{} {}", word(package, "name"), word(package, "version"));
        overview.push_str(&format!("{title}: {}\n", word(package, "license")));
        let manifest = word(package, "manifest_path");
        for file in list(Path::new(&manifest).parent().unwrap_or(Path::new("")))? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            if file.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) {
                let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_default())
                    .trim()
                    .to_string();
                texts.entry(text).or_default().push(title.clone());
            }
        }
    }
    let texts = texts
        .iter()
        .map(|(text, titles)| format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), titles.join(", ")));
    Ok(format!(
        "Toolward contains the following crates, under these licenses.\n\n{overview}{}",
        texts.collect::<String>()
    ))
}
