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
pub(super) struct Language<'g>(Vec<Vec<Shape<'g>>>);

/// The prefix and suffix of every match of a pattern; upper and lower case are not distinguished.
#[derive(Clone, Copy)]
struct Shape<'g> {
    prefix: &'g str,
    suffix: &'g str,
    /// Nothing else matches.
    exact: bool,
}

impl<'g> Language<'g> {
    /// Names that also match one of these patterns; with a server, `SERVER.NAME` may match instead.
    pub(super) fn narrow(&mut self, globs: impl Iterator<Item = &'g Glob>, server: Option<&str>) {
        let mut shapes = Vec::new();
        for glob in globs {
            let shape = Shape::of(glob.text());
            shapes.extend(server.and_then(|server| shape.after(server)));
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
        let after = server.and_then(|server| shape.after(server));
        let meets = |shapes: &Vec<Shape<'_>>| {
            let mut own = [Some(shape), after].into_iter().flatten();
            own.any(|own| shapes.iter().any(|other| own.meets(other)))
        };
        self.0.iter().all(meets)
    }
}

impl<'g> Shape<'g> {
    fn of(text: &'g str) -> Shape<'g> {
        let wild = |b: &u8| matches!(b, b'*' | b'?' | b'[' | b']');
        if !is_pattern(text) {
            return Shape { prefix: text, suffix: text, exact: true };
        }
        let first = text.bytes().position(|b| wild(&b)).unwrap_or_default();
        let last = text.bytes().rposition(|b| wild(&b)).map_or(0, |last| last + 1);
        Shape { prefix: &text[..first], suffix: &text[last..], exact: false }
    }

    /// The rest of the names after `SERVER.`; `None` if no name starts with it.
    fn after(&self, server: &str) -> Option<Shape<'g>> {
        let prefix = self.prefix;
        let common = prefix.len().min(server.len());
        if !begins(prefix, server.get(..common)?) {
            return None;
        }
        match prefix.get(server.len()..) {
            Some(rest) if !rest.is_empty() => {
                let rest = rest.strip_prefix('.')?;
                // A suffix that is longer than the rest does not restrict it.
                let suffix = if self.exact { rest } else { "" };
                Some(Shape { prefix: rest, suffix, exact: self.exact })
            }
            _ => (!self.exact).then_some(Shape { prefix: "", suffix: "", exact: false }),
        }
    }

    fn meets(&self, other: &Shape<'_>) -> bool {
        let starts = |one: &Shape<'_>, other: &Shape<'_>| begins(one.prefix, other.prefix);
        let stops = |one: &Shape<'_>, other: &Shape<'_>| ends(one.suffix, other.suffix);
        match (self.exact, other.exact) {
            (true, true) => self.prefix.eq_ignore_ascii_case(other.prefix),
            (true, false) => starts(self, other) && stops(self, other),
            (false, true) => starts(other, self) && stops(other, self),
            (false, false) => {
                (starts(self, other) || starts(other, self))
                    && (stops(self, other) || stops(other, self))
            }
        }
    }
}

/// Whether a text begins with another one, upper or lower case.
fn begins(text: &str, start: &str) -> bool {
    let (text, start) = (text.as_bytes(), start.as_bytes());
    text.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start))
}

fn ends(text: &str, end: &str) -> bool {
    let (text, end) = (text.as_bytes(), end.as_bytes());
    let at = text.len().checked_sub(end.len());
    at.is_some_and(|at| text[at..].eq_ignore_ascii_case(end))
}

/// Whether a pattern may match `SERVER.NAME`.
pub(super) fn may_follow(glob: &Glob, server: &str) -> bool {
    Shape::of(glob.text()).after(server).is_some()
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
        let own = [Glob::new(one, Case::Sensitive)];
        language.narrow(own.iter(), None);
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
        let (push, qualified_push) = ([glob("push_*")], [glob("git.push")]);
        let mut language = Language::default();
        language.narrow(push.iter(), None);
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
        qualified.narrow(qualified_push.iter(), Some("git"));
        assert!(qualified.meets(&glob("push"), None) && !qualified.meets(&glob("pull"), None));
    }
}
