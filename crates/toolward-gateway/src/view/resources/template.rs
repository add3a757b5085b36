//! URI templates (RFC 6570), matched against URIs.
//!
//! Only to find the server that owns a URI; the policy decides on the URI itself. A match is therefore generous about
//! the values of variables, and strict about the literal text.

/// Expressions in one template; one with more matches nothing.
const MAX_EXPRESSIONS: usize = 32;

/// A parsed template.
pub(super) struct Template<'t> {
    parts: Vec<Part<'t>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'t> {
    Literal(&'t str),
    /// `{name}`: at least one character, and no slash.
    Segment,
    /// An expression whose value may contain slashes, or be empty: `{+path}`, `{/path*}`, `{?query}`.
    Any,
}

impl<'t> Template<'t> {
    /// `None` if a brace is unbalanced, or there are too many expressions.
    pub(super) fn parse(text: &'t str) -> Option<Template<'t>> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (literal, expression) = (rest.get(..open)?, rest.get(open + 1..)?);
            let close = expression.find('}')?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal));
            }
            let body = expression.get(..close)?;
            let reserved = body.starts_with(['+', '#', '.', '/', ';', '?', '&']);
            let part = if reserved || body.ends_with('*') { Part::Any } else { Part::Segment };
            parts.push(part);
            rest = expression.get(close + 1..)?;
        }
        if rest.contains('}') {
            return None;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest));
        }
        let expressions = parts.iter().filter(|part| !matches!(part, Part::Literal(_))).count();
        (expressions <= MAX_EXPRESSIONS).then_some(Template { parts })
    }

    /// Whether it begins with a literal scheme.
    pub(super) fn has_scheme(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Literal(text)) if text.contains(':'))
    }

    /// Whether a URI is an expansion of it. Takes time linear in the URI for each part.
    pub(super) fn matches(&self, uri: &str) -> bool {
        let bytes = uri.as_bytes();
        // The positions in the URI that the parts so far can reach.
        let mut reached = vec![false; bytes.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            let mut next = vec![false; bytes.len() + 1];
            match part {
                Part::Literal(text) => {
                    let text = text.as_bytes();
                    for (at, _) in reached.iter().enumerate().filter(|(_, is)| **is) {
                        if bytes.get(at..).is_some_and(|rest| rest.starts_with(text)) {
                            next[at + text.len()] = true;
                        }
                    }
                }
                Part::Segment => {
                    let mut within = false;
                    for at in 0..bytes.len() {
                        within = (within || reached[at]) && bytes[at] != b'/';
                        next[at + 1] = within;
                    }
                }
                Part::Any => {
                    let mut within = false;
                    for at in 0..=bytes.len() {
                        within |= reached[at];
                        next[at] = within;
                    }
                }
            }
            reached = next;
        }
        reached.last() == Some(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_match_templates_as_servers_match_them() {
        for (template, uri, expected) in [
            ("file:///{path}", "file:///a.txt", true),
            ("file:///{path}", "file:///a/b.txt", false),
            ("file:///{+path}", "file:///a/b.txt", true),
            ("repo://{owner}/{name}/issues", "repo://me/it/issues", true),
            ("repo://{owner}/{name}/issues", "repo://me/it/issues/1", false),
            ("repo://{owner}/{name}/issues", "repo:///it/issues", false),
            ("note:{id}", "note:1", true),
            ("note:{id}", "note:", false),
            ("search://q{?text,limit}", "search://q", true),
            ("search://q{?text,limit}", "search://q?text=a&limit=3", true),
            ("a:{x}-{y}-{z}", "a:1-2-3-4", true),
            ("exact:thing", "exact:thing", true),
            ("exact:thing", "exact:things", false),
            ("{+any}", "file:///etc/passwd", true),
        ] {
            let parsed = Template::parse(template).unwrap();
            assert_eq!(parsed.matches(uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn hostile_templates_match_nothing() {
        let many = "{a}".repeat(33);
        for template in ["{", "}", "a:{b", "a:b}", "a:{b}}", &many] {
            assert!(Template::parse(template).is_none(), "{template}");
        }
        // Many expressions and a long URI: no exponential search.
        let template = "a:".to_string() + &"{x}-".repeat(32);
        let uri = "a:".to_string() + &"-".repeat(64 << 10);
        assert!(!Template::parse(&template).unwrap().matches(&(uri + "!")));
    }

    #[test]
    fn a_literal_scheme_is_required_to_own_anything_among_several_servers() {
        assert!(Template::parse("file:///{path}").unwrap().has_scheme());
        assert!(!Template::parse("{scheme}://x").unwrap().has_scheme());
    }
}
