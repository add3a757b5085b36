//! `envFile`: environment variables of a server, read from a file with `NAME=VALUE` lines.

use std::path::PathBuf;

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Mark;
use crate::io::{Files, reason};

/// An `envFile`, and where the configuration references it.
#[derive(Debug, Clone)]
pub struct EnvFile {
    pub path: PathBuf,
    pub(crate) mark: Mark,
}

impl EnvFile {
    /// The variables in the order of the file. Values are not expanded.
    pub(crate) fn read(&self, files: &impl Files) -> Result<Vec<(String, String)>, Diagnostic> {
        let shown = quoted(&self.path.to_string_lossy());
        let wrong = |message: String| Diagnostic::error(message).at_mark(self.mark.clone());
        let bytes = files.read(&self.path).map_err(|error| {
            wrong(format!("the file {shown} cannot be read: {}", reason(&error)))
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| wrong(format!("the file {shown} is not valid UTF-8")))?;
        let mut variables = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line);
            let (name, value) = line.split_once('=').unwrap_or(("", ""));
            let name = name.trim();
            // A line may contain a secret, so it is not shown.
            if name.is_empty() || name.contains(char::is_whitespace) {
                let message = format!("line {} of the file {shown} is not `NAME=VALUE`", at + 1);
                return Err(wrong(message));
            }
            variables.push((name.to_owned(), unquoted(value.trim()).to_owned()));
        }
        Ok(variables)
    }
}

fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}
