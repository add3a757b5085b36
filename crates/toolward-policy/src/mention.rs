//! The arguments that a condition mentions. Refusals echo them and report those that are missing.

use serde_json::Value;

use crate::argument_path::ArgumentReads;

/// An argument by its path: `args.from.name` is `["from", "name"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    path: Box<[Box<str>]>,
    /// Only inside `has(…)`, for which a missing argument is not an error.
    tested: bool,
}

impl Mention {
    /// All arguments that an expression mentions by name, in order, without duplicates.
    pub(crate) fn all(reads: &ArgumentReads) -> Box<[Mention]> {
        let mut found: Vec<Mention> = Vec::new();
        for read in reads.paths.iter().filter(|read| !read.keys.is_empty()) {
            match found.iter_mut().find(|known| known.path == read.keys) {
                Some(known) => known.tested &= read.tested,
                None => found.push(Mention { path: read.keys.clone(), tested: read.tested }),
            }
        }
        found.into()
    }

    /// The path with dots: `from.name`.
    pub(crate) fn name(&self) -> String {
        self.path.join(".")
    }

    /// The last part of the path: the key under which the value is found.
    pub(crate) fn key(&self) -> &str {
        self.path.last().map_or("", |key| key)
    }

    /// The value in a call's arguments.
    pub(crate) fn value<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(arguments, |value, key| value.get(&**key))
    }

    /// Whether the expression fails without this argument, and the arguments lack it.
    pub(crate) fn is_missing(&self, arguments: &Value) -> bool {
        !self.tested && self.value(arguments).is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::condition::Condition;

    fn names(condition: &str) -> Vec<String> {
        Condition::new(condition).unwrap().mentions().iter().map(|one| one.name()).collect()
    }

    #[test]
    fn arguments_are_found_wherever_a_condition_names_them() {
        assert_eq!(names(r#"args.path.startsWith("drafts/")"#), ["path"]);
        assert_eq!(
            names(r#"args["path"] == "a" && args.from.name != args.path"#),
            ["path", "from.name"]
        );
        assert_eq!(names("args.list.all(x, x < args.most)"), ["list", "most"]);
        assert_eq!(names("!has(args.force) || args.force == false"), ["force"]);
        assert_eq!(names("size(args) < 3 && action == 'go'"), Vec::<String>::new());
    }

    #[test]
    fn an_argument_that_is_only_tested_is_never_missing() {
        let tested = Condition::new("!has(args.force)").unwrap();
        assert!(!tested.mentions()[0].is_missing(&json!({})));
        let read = Condition::new("has(args.a) && args.a.b == 1").unwrap();
        let missing: Vec<bool> =
            read.mentions().iter().map(|one| one.is_missing(&json!({"a": {}}))).collect();
        assert_eq!(missing, [false, true]);
    }
}
