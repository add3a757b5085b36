//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Result, at, list};

pub(super) const NAME: &str = "SHA256SUMS";

pub(super) fn write(out: &Path) -> Result<()> {
    let mut sums = String::new();
    for file in list(out)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name != NAME {
            sums.push_str(&format!("{}  {name}\n", digest_of(&file)?));
        }
    }
    super::write(&out.join(NAME), sums)
}

/// Prints every package with its size.
pub(super) fn print(out: &Path) -> Result<()> {
    for file in list(out)? {
        let bytes = file.metadata().or_else(|error| at(&file, error))?.len();
        println!("{:>12}  {}", bytes, file.file_name().unwrap_or_default().to_string_lossy());
    }
    Ok(())
}

pub(super) fn digest_of(file: &Path) -> Result<String> {
    let content = std::fs::read(file).or_else(|error| at(file, error))?;
    Ok(digest(&content))
}

pub(super) fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
