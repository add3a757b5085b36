//! Secret values: written as references, resolved in a separate step, never printed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Mark;
use crate::io::Directories;
use crate::io::{Env, Files, reason};
use crate::keys::value_syntax::{ReferencePart, reference_parts};
use crate::read::node::Node;
use crate::read::reader::Reader;

/// Text with references such as `${NAME}` and `${file:PATH}`.
#[derive(Clone)]
pub struct Secret {
    parts: Vec<ReferencePart>,
    mark: Mark,
    value: Option<String>,
}

impl Secret {
    /// Reads a value with references; `None` if its syntax is invalid, which validation has reported.
    pub(crate) fn read(
        reader: &Reader<'_>,
        node: &Node<'_>,
        directories: &Directories<'_>,
    ) -> Option<Secret> {
        Secret::new(node.as_str()?, reader.mark(node.span), directories)
    }

    fn new(written: &str, mark: Mark, directories: &Directories<'_>) -> Option<Self> {
        let mut parts = reference_parts(written).ok()?;
        for part in &mut parts {
            if let ReferencePart::File(path) = part {
                *path = directories.path(path).to_string_lossy().into_owned();
            }
        }
        // Text without references needs no resolving.
        let value = match parts.as_slice() {
            [] => Some(String::new()),
            [ReferencePart::Literal(text)] => Some(text.clone()),
            _ => None,
        };
        Some(Secret { parts, mark, value })
    }

    /// Literal text: `${NAME}` in it is not a reference.
    pub(crate) fn literal(text: impl Into<String>, mark: Mark) -> Self {
        let text = text.into();
        Secret { parts: vec![ReferencePart::Literal(text.clone())], mark, value: Some(text) }
    }

    /// The value; `None` before its references were resolved.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The text with its references instead of their values. Directories of files are left out.
    pub fn with_references(&self) -> String {
        let part = |part: &ReferencePart| match part {
            ReferencePart::Literal(text) => text.clone(),
            ReferencePart::Env(name) => format!("${{{name}}}"),
            ReferencePart::EnvOr(name, default) => format!("${{{name}:-{default}}}"),
            ReferencePart::File(path) => {
                let name = Path::new(path).file_name().unwrap_or_default();
                format!("${{file:{}}}", name.to_string_lossy())
            }
        };
        self.parts.iter().map(part).collect()
    }

    /// Whether the value is written in the file in plain text.
    pub fn is_literal(&self) -> bool {
        matches!(self.parts.as_slice(), [] | [ReferencePart::Literal(_)])
    }

    /// The location of the value, for diagnostics.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Files that the references name.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.parts.iter().filter_map(|part| match part {
            ReferencePart::File(path) => Some(PathBuf::from(path)),
            _ => None,
        })
    }

    /// Resolves the references.
    pub(crate) fn resolve(&mut self, env: &impl Env, files: &impl Files) -> Result<(), Diagnostic> {
        let mut value = String::new();
        for part in &self.parts {
            match part {
                ReferencePart::Literal(text) => value.push_str(text),
                ReferencePart::Env(name) => value.push_str(&self.variable(name, env)?),
                ReferencePart::EnvOr(name, default) => match env.var(name) {
                    Some(set) if !set.is_empty() => value.push_str(&self.variable(name, env)?),
                    _ => value.push_str(default),
                },
                ReferencePart::File(path) => value.push_str(&self.file(path, files)?),
            }
        }
        self.value = Some(value);
        Ok(())
    }

    fn variable(&self, name: &str, env: &impl Env) -> Result<String, Diagnostic> {
        let shown = quoted(name);
        match env.var(name).map(std::ffi::OsString::into_string) {
            Some(Ok(value)) if value.is_empty() => {
                Err(self.error(format!("the variable {shown} is empty")))
            }
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => Err(self.error(format!("the variable {shown} is not valid UTF-8"))),
            None => Err(self
                .error(format!("the variable {shown} is not set"))
                .help("set it in the environment of the gateway")),
        }
    }

    fn file(&self, path: &str, files: &impl Files) -> Result<String, Diagnostic> {
        let shown = quoted(path);
        let bytes = files.read(Path::new(path)).map_err(|error| {
            self.error(format!("the file {shown} cannot be read: {}", reason(&error)))
                .help("the path is relative to the file that contains the reference")
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| self.error(format!("the file {shown} is not valid UTF-8")))?;
        // Editors end a file with a line break, which is not part of the secret.
        let line = text
            .strip_suffix('\n')
            .map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
        match line.trim().is_empty() {
            true => Err(self.error(format!("the file {shown} is empty"))),
            false => Ok(line.to_owned()),
        }
    }

    /// An error at the location of this value.
    pub(crate) fn error(&self, message: impl AsRef<str>) -> Diagnostic {
        Diagnostic::error(message).at_mark(self.mark.clone())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Two secrets are equal if they are written the same way.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

/// Hashes the reference, never the resolved value.
impl std::hash::Hash for Secret {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
    }
}
