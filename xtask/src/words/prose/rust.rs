//! Comments and string literals of Rust sources.

use super::{Paragraph, Text};
use crate::words::area::Area;

/// Everything from the first `#[cfg(test)]` on counts as a test, as it does by convention in this workspace.
pub fn rust(file: &str, content: &str, is_test: bool, texts: &mut Vec<Text>) {
    let tests = if is_test { Some(0) } else { content.find("#[cfg(test)]") };
    let area = |at: usize, area: Area| {
        if tests.is_some_and(|tests| at >= tests) { Area::Tests } else { area }
    };
    let mut comment = Paragraph::new(file, Area::Comments);
    let mut scanner = Scanner { content, at: 0, line: 1 };
    let mut last_line = 0;
    while let Some(piece) = scanner.next() {
        match piece {
            Piece::Comment { text, at, line } => {
                // Comments in lines that follow each other are one text.
                if line != last_line + 1 {
                    comment.end(texts);
                }
                comment.area = area(at, Area::Comments);
                comment.line(text.trim_start_matches(['/', '!', '*']), line);
                last_line = line + text.matches('\n').count();
            }
            Piece::Literal { text, at, line } => {
                if text.trim().contains(' ') {
                    texts.push(Text::new(file, area(at, Area::Strings), &unescaped(text), line));
                }
            }
        }
    }
    comment.end(texts);
}

enum Piece<'a> {
    Comment { text: &'a str, at: usize, line: usize },
    Literal { text: &'a str, at: usize, line: usize },
}

/// Finds comments and literals without parsing the rest.
struct Scanner<'a> {
    content: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Scanner<'a> {
    fn next(&mut self) -> Option<Piece<'a>> {
        loop {
            let rest = &self.content[self.at..];
            let c = rest.chars().next()?;
            let (at, line) = (self.at, self.line);
            if rest.starts_with("//") {
                let text = self.take(rest.find('\n').unwrap_or(rest.len()));
                return Some(Piece::Comment { text, at, line });
            }
            if rest.starts_with("/*") {
                let text = self.take(rest.find("*/").map_or(rest.len(), |end| end + 2));
                return Some(Piece::Comment { text, at, line });
            }
            if let Some((open, close)) = opening(rest, self.content[..self.at].chars().last()) {
                self.take(open);
                let rest = &self.content[self.at..];
                let text = self.take(end(rest, &close));
                self.take(close.len().min(self.content.len() - self.at));
                return Some(Piece::Literal { text, at, line });
            }
            // A character in quotes may be a quote; a lifetime has no second quote.
            let quoted = rest.strip_prefix('\'').and_then(|rest| {
                let inside = if rest.starts_with('\\') {
                    2 + rest[2..].find('\'')?
                } else {
                    rest.chars().next()?.len_utf8()
                };
                rest[inside..].starts_with('\'').then_some(inside + 2)
            });
            self.take(quoted.unwrap_or(c.len_utf8()));
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.content[self.at..self.at + length];
        self.at += length;
        self.line += taken.matches('\n').count();
        taken
    }
}

/// The length of the opening of a literal that begins here, and what closes it.
fn opening(rest: &str, before: Option<char>) -> Option<(usize, String)> {
    if rest.starts_with('"') {
        return Some((1, "\"".into()));
    }
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let raw = rest.strip_prefix("br").or(rest.strip_prefix('r'))?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let opening = rest.len() - raw.len() + hashes + 1;
    raw[hashes..].starts_with('"').then(|| (opening, format!("\"{}", "#".repeat(hashes))))
}

/// Where the literal ends, from behind its opening.
fn end(rest: &str, close: &str) -> usize {
    if close.len() > 1 {
        return rest.find(close).unwrap_or(rest.len());
    }
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    rest.len()
}

/// A literal as it reads: `\n` ends a line of output, a backslash at the end of a line joins two.
fn unescaped(text: &str) -> String {
    text.replace("\\\n", "\n").replace("\\n", ". ").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_messages_are_found_and_nothing_else() {
        let source = r##"
//! One two.
//! Three.
fn name<'a>(quote: char) { let _ = quote == '"' || quote == '\''; } // four
const A: &str = "five \"six\" \
    seven"; const B: &str = r#"eight "nine""#; const C: &str = "key";
#[cfg(test)]
mod tests { /* ten */ }
"##;
        let mut texts = Vec::new();
        rust("a.rs", source, false, &mut texts);
        let found: Vec<String> =
            texts.iter().map(|text| format!("{}: {:?}", text.area, text.tokens)).collect();
        let found = found.join("\n");
        for (word, line) in [("one", 2), ("three", 3), ("four", 4), ("seven", 6), ("nine", 6)] {
            assert!(found.contains(&format!("Word(\"{word}\", {line})")), "{word}: {found}");
        }
        assert!(found.contains("tests: [Word(\"ten\", 8)"), "{found}");
        assert!(!found.contains("quote") && !found.contains("key"), "{found}");
    }
}
