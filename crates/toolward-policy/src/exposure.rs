//! Exposure: which of a server's tools and prompts exist for clients, and under which names.
//!
//! Exposure is decided on original names, before any policy. Clients see and call display names.
//! The mapping between the two is injective: load rejects anything that would make it ambiguous.

use hashbrown::{HashMap, HashSet};

use crate::fnmatch::is_pattern;
use crate::selector::Glob;
use crate::source::{Case, ExposeSource};

/// The compiled `expose` or `expose_prompts` list of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposure {
    named: HashMap<Box<str>, Shown>,
    patterns: Vec<(Glob, Option<Box<str>>)>,
    /// Display name → original name.
    renamed: HashMap<Box<str>, Box<str>>,
}

/// How an exposed tool or prompt is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub name: Box<str>,
    /// Replaces the server's description if set.
    pub description: Option<Box<str>>,
}

/// Why a list is rejected, with the index of the offending entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureError {
    pub entry: usize,
    pub problem: ExposureProblem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExposureProblem {
    EmptyName,
    ExposedTwice(String),
    DisplayNameTwice(String),
    RenamedToItself(String),
    /// The display name is the original name of another entry.
    TakesOriginalName(String),
    RenamedPattern(String),
}

impl std::fmt::Display for ExposureProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EmptyName => write!(f, "a name is empty"),
            Self::ExposedTwice(name) => write!(f, "`{name}` is exposed twice"),
            Self::DisplayNameTwice(name) => {
                write!(f, "two entries are shown under the name `{name}`")
            }
            Self::RenamedToItself(name) => write!(f, "`{name}` is renamed to itself"),
            Self::TakesOriginalName(name) => {
                write!(f, "the display name `{name}` is the original name of another entry")
            }
            Self::RenamedPattern(name) => {
                write!(f, "the pattern `{name}` may match several names, which cannot share one")
            }
        }
    }
}

impl Exposure {
    pub fn new(source: &ExposeSource) -> Result<Exposure, ExposureError> {
        let mut exposure = Exposure::default();
        let originals: HashSet<&str> =
            source.entries.iter().map(|entry| entry.name.as_str()).collect();
        let mut seen = HashSet::new();
        for (index, entry) in source.entries.iter().enumerate() {
            let refuse = |problem| Err(ExposureError { entry: index, problem });
            let original = entry.name.as_str();
            if original.is_empty() || entry.display_name.as_deref() == Some("") {
                return refuse(ExposureProblem::EmptyName);
            }
            if !seen.insert(original) {
                return refuse(ExposureProblem::ExposedTwice(original.into()));
            }
            let pattern = !source.literal && is_pattern(original);
            if let Some(name) = entry.display_name.as_deref() {
                if pattern {
                    return refuse(ExposureProblem::RenamedPattern(original.into()));
                }
                if name == original {
                    return refuse(ExposureProblem::RenamedToItself(original.into()));
                }
                if originals.contains(name) {
                    return refuse(ExposureProblem::TakesOriginalName(name.into()));
                }
                if exposure.renamed.insert(name.into(), original.into()).is_some() {
                    return refuse(ExposureProblem::DisplayNameTwice(name.into()));
                }
            }
            let description: Option<Box<str>> = entry.display_description.as_deref().map(Box::from);
            if pattern {
                exposure.patterns.push((Glob::new(original, Case::Sensitive), description));
            } else {
                let name = entry.display_name.as_deref().unwrap_or(original).into();
                exposure.named.insert(original.into(), Shown { name, description });
            }
        }
        Ok(exposure)
    }

    /// How the entry with this original name is shown; `None` if it does not exist for clients.
    pub fn show(&self, original: &str) -> Option<Shown> {
        if let Some(shown) = self.named.get(original) {
            return Some(shown.clone());
        }
        let mut patterns = self.patterns.iter();
        let (_, description) = patterns.find(|(pattern, _)| pattern.matches(original))?;
        let shown = || Shown { name: original.into(), description: description.clone() };
        (!self.is_taken(original)).then(shown)
    }

    /// Whether a rename uses this name, so that an entry with this original name is hidden.
    pub fn is_taken(&self, name: &str) -> bool {
        self.renamed.contains_key(name)
    }

    /// The original name of what clients call `name`.
    pub fn original<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if let Some(tool) = self.renamed.get(name) {
            return Some(tool);
        }
        self.show(name).is_some_and(|shown| *shown.name == *name).then_some(name)
    }

    /// The original name behind a display name.
    pub fn renamed_from(&self, name: &str) -> Option<&str> {
        self.renamed.get(name).map(|tool| &**tool)
    }

    /// Display names and original names.
    pub fn renames(&self) -> impl Iterator<Item = (&str, &str)> {
        self.renamed.iter().map(|(name, tool)| (&**name, &**tool))
    }

    /// Names that are treated individually: exposed ones, and those that a rename has taken.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().chain(self.renamed.keys()).map(|name| &**name)
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = &Glob> {
        self.patterns.iter().map(|(glob, _)| glob)
    }

    /// Whether an entry exposes exactly this name.
    pub fn names_exactly(&self, original: &str) -> bool {
        self.named.contains_key(original)
    }
}
