//! Reviewed hints for the tools of well-known servers, for `servers.S.hints_from`.
//!
//! Many servers send no annotations, so all of their tools count as destructive. Others claim more than is true: a tool
//! that saves a file is annotated as read-only. The sets in `hints/` are data, one file for each server: its packages,
//! the version that was reviewed, and the hints of each tool. A server is identified by its command line, which the
//! operator wrote, and never by the name that it gives itself.
//!
//! ```
//! use toolward_config::hint_sets;
//!
//! let set = hint_sets::matching("npx", &["-y", "@modelcontextprotocol/server-github"]).unwrap();
//! assert_eq!(set.name, "github-legacy");
//! assert_eq!(set.hints("merge_pull_request").unwrap(), ["destructive", "open-world"]);
//! ```

mod package;

use std::sync::LazyLock;

use serde_json::Value;

/// The hints of one server's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintSet {
    /// Its name in `hints_from: builtin:NAME`.
    pub name: &'static str,
    /// Packages, images and programs that are this server, such as `npm:@playwright/mcp`.
    pub packages: Vec<String>,
    /// The name and version that the reviewed server gave itself.
    pub server: String,
    pub version: String,
    /// Whether the tools of that version have annotations.
    pub is_annotated: bool,
    /// Tools and their hints, in the server's order.
    pub tools: Vec<(String, Vec<String>)>,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../hints/", $name, ".json")))),*]
    };
}

/// The sets, by name.
const FILES: &[(&str, &str)] = files![
    "aws-kb-retrieval",
    "brave-search",
    "brightdata",
    "chrome-devtools",
    "context7",
    "everart",
    "everything",
    "fetch",
    "filesystem",
    "git",
    "github-legacy",
    "gitlab",
    "gitlab-zereight",
    "google-maps",
    "memory",
    "playwright",
    "postgres",
    "puppeteer",
    "sequential-thinking",
    "slack",
    "sqlite",
    "time",
];

/// All sets, sorted by name.
pub fn all() -> &'static [HintSet] {
    // A test parses every file, so none is left out here.
    static ALL: LazyLock<Vec<HintSet>> = LazyLock::new(|| {
        FILES.iter().filter_map(|(name, text)| HintSet::read(name, text)).collect()
    });
    &ALL
}

/// The set with this name.
pub fn named(name: &str) -> Option<&'static HintSet> {
    all().iter().find(|set| set.name == name)
}

/// The set of the server that a command line starts.
pub fn matching(command: &str, args: &[&str]) -> Option<&'static HintSet> {
    let package = package::of_command(command, args)?;
    all().iter().find(|set| set.packages.contains(&package))
}

impl HintSet {
    /// The hints of a tool.
    pub fn hints(&self, tool: &str) -> Option<&[String]> {
        let found = self.tools.iter().find(|(name, _)| name == tool);
        found.map(|(_, hints)| hints.as_slice())
    }

    fn read(name: &'static str, text: &str) -> Option<HintSet> {
        let value: Value = serde_json::from_str(text).ok()?;
        let tools = value["tools"].as_object()?.iter();
        Some(HintSet {
            name,
            packages: strings(&value["packages"])?,
            server: value["server"].as_str()?.into(),
            version: value["version"].as_str()?.into(),
            is_annotated: value["annotated"].as_bool()?,
            tools: tools
                .map(|(tool, hints)| Some((tool.clone(), strings(hints)?)))
                .collect::<Option<_>>()?,
        })
    }
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(String::from)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_is_a_set_with_known_hints_that_decide_both_questions() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/hints");
        let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
        let files: BTreeSet<String> = files.map(|file| file.into_string().unwrap()).collect();
        let sets: BTreeSet<String> = all().iter().map(|set| format!("{}.json", set.name)).collect();
        assert_eq!(files, sets);
        assert!(FILES.is_sorted());
        let kinds = ["read-only", "destructive", "non-destructive"];
        let worlds = ["open-world", "closed-world"];
        for set in all() {
            assert!(!set.tools.is_empty() && !set.version.is_empty(), "{}", set.name);
            for (tool, hints) in &set.tools {
                let count = |words: &[&str]| {
                    hints.iter().filter(|hint| words.contains(&hint.as_str())).count()
                };
                let known = count(&kinds) + count(&worlds) + count(&["idempotent"]);
                assert_eq!((count(&kinds), count(&worlds)), (1, 1), "{}/{tool}", set.name);
                assert_eq!(known, hints.len(), "{}/{tool}", set.name);
            }
        }
    }

    #[test]
    fn a_package_belongs_to_one_set() {
        let packages: Vec<&String> = all().iter().flat_map(|set| &set.packages).collect();
        let distinct: BTreeSet<&String> = packages.iter().copied().collect();
        assert_eq!(packages.len(), distinct.len());
        for package in packages {
            let (kind, name) = package.split_once(':').unwrap();
            assert!(["npm", "pypi", "oci", "bin"].contains(&kind) && !name.is_empty(), "{package}");
        }
    }
}
