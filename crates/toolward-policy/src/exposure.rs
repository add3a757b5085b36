//! Which of a server's tools exist for clients at all, and under which names.
//!
//! Exposure is decided on original names, before any policy; display names are what clients see
//! and call. The map between the two is injective: load refuses what would make it ambiguous.

use hashbrown::{HashMap, HashSet};

use crate::fnmatch::is_pattern;
use crate::selector::Glob;
use crate::source::{Case, ExposeSource};

/// The compiled `expose` list of a server.
#[derive(Debug, Clone, Default)]
pub struct Exposure {
    named: HashMap<Box<str>, Shown>,
    patterns: Vec<(Glob, Option<Box<str>>)>,
    /// Display name → original name.
    renamed: HashMap<Box<str>, Box<str>>,
}

/// How an exposed tool is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub name: Box<str>,
    /// Replaces the server's description where it is given.
    pub description: Option<Box<str>>,
}

/// Why an `expose` list is refused, with the index of the offending entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureError {
    pub entry: usize,
    pub problem: ExposureProblem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExposureProblem {
    EmptyName,
    ToolTwice(String),
    DisplayNameTwice(String),
    RenamedToItself(String),
    /// The display name is the original name of another entry.
    TakesOriginalName(String),
    RenamedPattern(String),
}

impl std::fmt::Display for ExposureProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EmptyName => write!(f, "a tool's name is empty"),
            Self::ToolTwice(tool) => write!(f, "the tool `{tool}` is exposed twice"),
            Self::DisplayNameTwice(name) => {
                write!(f, "two tools are shown under the name `{name}`")
            }
            Self::RenamedToItself(tool) => write!(f, "`{tool}` is renamed to itself"),
            Self::TakesOriginalName(name) => {
                write!(f, "the display name `{name}` is the original name of another exposed tool")
            }
            Self::RenamedPattern(tool) => {
                write!(f, "the pattern `{tool}` cannot have one display name for several tools")
            }
        }
    }
}

impl Exposure {
    pub fn new(source: &ExposeSource) -> Result<Exposure, ExposureError> {
        let mut exposure = Exposure::default();
        let originals: HashSet<&str> =
            source.entries.iter().map(|entry| entry.tool.as_str()).collect();
        let mut seen = HashSet::new();
        for (index, entry) in source.entries.iter().enumerate() {
            let refuse = |problem| Err(ExposureError { entry: index, problem });
            let tool = entry.tool.as_str();
            if tool.is_empty() || entry.display_name.as_deref() == Some("") {
                return refuse(ExposureProblem::EmptyName);
            }
            if !seen.insert(tool) {
                return refuse(ExposureProblem::ToolTwice(tool.into()));
            }
            let pattern = !source.literal && is_pattern(tool);
            if let Some(name) = entry.display_name.as_deref() {
                if pattern {
                    return refuse(ExposureProblem::RenamedPattern(tool.into()));
                }
                if name == tool {
                    return refuse(ExposureProblem::RenamedToItself(tool.into()));
                }
                if originals.contains(name) {
                    return refuse(ExposureProblem::TakesOriginalName(name.into()));
                }
                if exposure.renamed.insert(name.into(), tool.into()).is_some() {
                    return refuse(ExposureProblem::DisplayNameTwice(name.into()));
                }
            }
            let description: Option<Box<str>> = entry.display_description.as_deref().map(Box::from);
            if pattern {
                exposure.patterns.push((Glob::new(tool, Case::Sensitive), description));
            } else {
                let name = entry.display_name.as_deref().unwrap_or(tool).into();
                exposure.named.insert(tool.into(), Shown { name, description });
            }
        }
        Ok(exposure)
    }

    /// How the tool with this original name is shown; `None` where it does not exist for clients.
    pub fn show(&self, tool: &str) -> Option<Shown> {
        if let Some(shown) = self.named.get(tool) {
            return Some(shown.clone());
        }
        let (_, description) = self.patterns.iter().find(|(pattern, _)| pattern.matches(tool))?;
        let shown = || Shown { name: tool.into(), description: description.clone() };
        (!self.is_taken(tool)).then(shown)
    }

    /// Whether a rename has taken this name, so that a tool that has it originally is hidden.
    pub fn is_taken(&self, name: &str) -> bool {
        self.renamed.contains_key(name)
    }

    /// The original name of the tool that clients call `name`.
    pub fn original<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if let Some(tool) = self.renamed.get(name) {
            return Some(tool);
        }
        self.show(name).is_some_and(|shown| *shown.name == *name).then_some(name)
    }

    /// The tool behind a display name.
    pub fn renamed_from(&self, name: &str) -> Option<&str> {
        self.renamed.get(name).map(|tool| &**tool)
    }

    /// Display names and the tools they stand for.
    pub fn renames(&self) -> impl Iterator<Item = (&str, &str)> {
        self.renamed.iter().map(|(name, tool)| (&**name, &**tool))
    }

    /// Whether an entry exposes exactly this tool.
    pub fn names_exactly(&self, tool: &str) -> bool {
        self.named.contains_key(tool)
    }
}
