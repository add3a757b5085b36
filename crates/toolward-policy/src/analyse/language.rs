//! The names that a search is about, roughly: rules that cannot match any of them are left out of it.
//!
//! Names are compared by what a pattern begins and ends with, after folding, so the answer is "no common name" or
//! "maybe". That is enough to leave nearly all of a hundred thousand rules out of a search for what one of them
//! matches, and costs two comparisons for each.

use crate::fnmatch::is_pattern;
use crate::selector::{Glob, fold};
use crate::source::Case;

/// Names that match one shape of each group.
#[derive(Default)]
pub(super) struct Language(Vec<Vec<Shape>>);

/// The prefix and suffix of every match of a pattern, in lower case.
struct Shape {
    prefix: String,
    suffix: String,
    /// Nothing else matches.
    exact: bool,
}

impl Language {
    /// Names that also match one of these patterns; with a server, `SERVER.NAME` may match instead.
    pub(super) fn narrow<'g>(
        &mut self,
        globs: impl Iterator<Item = &'g Glob>,
        server: Option<&str>,
    ) {
        let mut shapes = Vec::new();
        for glob in globs {
            let shape = Shape::of(glob.text());
            if let Some(server) = server {
                shapes.extend(shape.after(&format!("{}.", server.to_ascii_lowercase())));
            }
            shapes.push(shape);
        }
        self.0.push(shapes);
    }

    /// Whether a pattern may match one of the names, or `SERVER.NAME` of one, if a server is given.
    pub(super) fn meets(&self, glob: &Glob, server: Option<&str>) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let shape = Shape::of(glob.text());
        let after =
            server.and_then(|server| shape.after(&format!("{}.", server.to_ascii_lowercase())));
        let meets = |shapes: &Vec<Shape>| {
            let mut own = [Some(&shape), after.as_ref()].into_iter().flatten();
            own.any(|own| shapes.iter().any(|other| own.meets(other)))
        };
        self.0.iter().all(meets)
    }
}

impl Shape {
    fn of(text: &str) -> Shape {
        let wild = |c: char| matches!(c, '*' | '?' | '[' | ']');
        let exact = !is_pattern(text);
        let prefix = if exact { text } else { text.split(wild).next().unwrap_or_default() };
        let suffix = if exact { text } else { text.rsplit(wild).next().unwrap_or_default() };
        Shape { prefix: prefix.to_ascii_lowercase(), suffix: suffix.to_ascii_lowercase(), exact }
    }

    /// The rest of the names after `start`; `None` if no name starts with it.
    fn after(&self, start: &str) -> Option<Shape> {
        match self.prefix.strip_prefix(start) {
            // A suffix that is longer than the rest does not restrict it.
            Some(rest) if self.exact => {
                Some(Shape { prefix: rest.into(), suffix: rest.into(), exact: true })
            }
            Some(rest) => Some(Shape { prefix: rest.into(), suffix: String::new(), exact: false }),
            None if !self.exact && start.starts_with(&self.prefix) => {
                Some(Shape { prefix: String::new(), suffix: String::new(), exact: false })
            }
            None => None,
        }
    }

    fn meets(&self, other: &Shape) -> bool {
        let begins = |one: &Shape, other: &Shape| one.prefix.starts_with(&other.prefix);
        let ends = |one: &Shape, other: &Shape| one.suffix.ends_with(&other.suffix);
        match (self.exact, other.exact) {
            (true, true) => self.prefix == other.prefix,
            (true, false) => begins(self, other) && ends(self, other),
            (false, true) => begins(other, self) && ends(other, self),
            (false, false) => {
                (begins(self, other) || begins(other, self))
                    && (ends(self, other) || ends(other, self))
            }
        }
    }
}

/// The only name that a pattern matches: it has no wildcard, and upper case does not matter or is not folded.
pub(super) fn only_name(glob: &Glob, case: Case, folds_all: bool) -> Option<&str> {
    let exact = !is_pattern(glob.text());
    (exact && (case == Case::Sensitive || folds_all)).then(|| glob.text())
}

/// The names of an exact glob of an allowlist, which also matches `SERVER.NAME`.
pub(super) fn after_server<'t>(text: &'t str, case: Case, server: &str) -> Option<&'t str> {
    text.strip_prefix(&*fold(server, case))?.strip_prefix('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::common_name;

    fn meets(one: &str, other: &str) -> bool {
        let mut language = Language::default();
        language.narrow([Glob::new(one, Case::Sensitive)].iter(), None);
        language.meets(&Glob::new(other, Case::Sensitive), None)
    }

    #[test]
    fn patterns_with_a_common_name_are_never_told_apart() {
        let texts = [
            "a", "b", "ab", "a*", "*b", "*", "?", "[ab]", "a*b", "*a*", "a?", "[!a]b", "a[",
            "a[b]", "]*", "B", "*.a",
        ];
        for one in texts {
            for other in texts {
                if common_name(one, other).is_some() {
                    assert!(meets(one, other), "{one} {other}");
                }
            }
        }
        assert!(!meets("get_*", "put_*") && !meets("*_x", "*_y") && !meets("get_*", "put_a"));
        assert!(!meets("a", "b") && !meets("get_*", "get"));
    }

    #[test]
    fn a_name_after_its_server_is_kept() {
        let glob = |text: &str| Glob::new(text, Case::Insensitive);
        let mut language = Language::default();
        language.narrow([glob("push_*")].iter(), None);
        for (text, kept) in [
            ("git.push_x", true),
            ("git.pull", false),
            ("g*", true),
            ("git.*", true),
            ("hub.push_x", false),
            ("push_x", true),
            ("*sh_x", true),
            ("*.push_x", true),
        ] {
            assert_eq!(language.meets(&glob(text), Some("Git")), kept, "{text}");
        }
        let mut qualified = Language::default();
        qualified.narrow([glob("git.push")].iter(), Some("git"));
        assert!(qualified.meets(&glob("push"), None) && !qualified.meets(&glob("pull"), None));
    }
}
