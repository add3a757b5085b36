//! Finds secrets in a file that cannot be parsed: line by line, by the names of keys.
//!
//! The scan prefers false positives: it would rather mask a harmless value than print a secret.

use super::text::{Span, Text};

/// Keys whose values are secrets, at any path.
pub(crate) const SECRET_KEYS: [&str; 20] = [
    "tokens",
    "keys",
    "env",
    "headers",
    "headers_for",
    "oauth",
    "url",
    "serverurl",
    "httpurl",
    "token_url",
    "client_id",
    "client_secret",
    "issuer",
    "jwks",
    "store",
    "http",
    "sinks",
    "otlp",
    "syslog",
    "postgres",
];

/// Parts of typical names of secrets.
const SECRET_WORDS: [&str; 12] = [
    "token",
    "secret",
    "passw",
    "pwd",
    "api_key",
    "api-key",
    "apikey",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "private",
];

/// Whether an unknown key may have a secret value, judged by its name.
pub(crate) fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_KEYS.contains(&name.as_str()) || SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Hides values that may be secrets in a text that cannot be parsed.
pub(crate) fn hide(text: &Text) {
    text.hide_all(secrets(text.content()));
}

/// Spans of values of secret keys, on the same line and below.
fn secrets(text: &str) -> Vec<Span> {
    let mut scan = Scan::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        scan.line(at, line.trim_end_matches(['\n', '\r']));
        at += line.len();
    }
    scan.spans
}

#[derive(Default)]
struct Scan {
    spans: Vec<Span>,
    /// The column of the key whose secrets continue below it.
    under: Option<usize>,
    /// The column of the names below it.
    names: Option<usize>,
    /// Brackets that were opened after the key and not closed.
    open: usize,
}

impl Scan {
    fn line(&mut self, at: usize, line: &str) {
        let content = line.trim_start();
        let column = line.len() - content.len();
        if content.is_empty() {
            return;
        }
        if let Some(under) = self.under {
            let item = column == under && content.starts_with('-');
            let (key, _) = content.split_at(content.find(": ").unwrap_or(0));
            let ended = content.ends_with(':') || !key.is_empty();
            // A line that is not a key continues the previous one.
            if self.open > 0 || column > under || item || !(ended || content.starts_with('-')) {
                return self.below(at, line, column);
            }
            (self.under, self.names) = (None, None);
        }
        let Some((key, behind)) = first_secret(line) else { return };
        self.hide(at + behind, line.get(behind..).unwrap_or_default());
        (self.under, self.names) = (Some(key), None);
        self.count(line.get(behind..).unwrap_or_default());
    }

    /// A continuation line of a secret; keys of its own mapping remain visible.
    fn below(&mut self, at: usize, line: &str, column: usize) {
        let content = line.get(column..).unwrap_or_default();
        let name = content.find(": ").filter(|end| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'"');
            let name = content.as_bytes().get(..*end).unwrap_or_default();
            self.open == 0 && !content.starts_with('-') && name.iter().all(|b| plain(*b))
        });
        let own = *self.names.get_or_insert(column) == column;
        let shown = name.filter(|_| own).map_or(0, |end| end + 1);
        self.hide(at + column + shown, content.get(shown..).unwrap_or_default());
        self.count(content);
    }

    fn count(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '[' | '{' => self.open += 1,
                ']' | '}' => self.open = self.open.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn hide(&mut self, at: usize, text: &str) {
        let shown = text.trim_start();
        let start = at + text.len() - shown.len();
        if shown.chars().any(char::is_alphanumeric) {
            self.spans.push(Span::new(start, start + shown.trim_end().len()));
        }
    }
}

/// The column of the first secret key of a line, and the start of its value.
fn first_secret(line: &str) -> Option<(usize, usize)> {
    let marks = line.char_indices().filter(|(_, c)| matches!(c, ':' | '='));
    marks
        .filter_map(|(at, _)| {
            let before = line.get(..at)?.trim_end().trim_end_matches(['"', '\'']);
            let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            let name = before.rsplit(|c: char| !inside(c)).next()?;
            names_secret(name.trim_start_matches('-'))
                .then_some((before.len() - name.len(), at + 1))
        })
        // A quote before the name belongs to it.
        .map(|(key, behind)| {
            let quoted = key > 0 && matches!(line.as_bytes().get(key - 1), Some(b'"' | b'\''));
            (key - usize::from(quoted), behind)
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let spans = secrets(text);
        let hidden =
            |at: usize| spans.iter().any(|s| (s.start as usize..s.end as usize).contains(&at));
        text.char_indices().filter(|(at, _)| !hidden(*at)).map(|(_, c)| c).collect()
    }

    #[test]
    fn nothing_behind_or_below_a_secret_key_is_shown() {
        for text in [
            "tokens: SECRET",
            "a: { tokens: [SECRET], b: SECRET }\nlisten: kept",
            "tokens:\n- SECRET\n- SECRET\nlisten: kept",
            "tokens: [\nSECRET,\nSECRET\n]\nlisten: kept",
            "env:\n  A: SECRET\n  B: SECRET: x\n  C:\n    d: SECRET\nlisten: kept",
            "headers:\n  Authorization: Bearer: SECRET\nlisten: kept",
            "headers:\n  X: |\n    SECRET\n    y: SECRET\nlisten: kept",
            "url: \"https://a\nSECRET\"\nlisten: kept",
            "{\"tokens\": [\"SECRET\"\n\"SECRET\"]\n\"listen\": kept",
            "GITHUB_TOKEN=SECRET\nlisten: kept",
            "hooks:\n- name: kept\n  env: { A: SECRET\n  name: x\n",
            "  args: [--token=SECRET]\nlisten: kept",
            "# tokens: SECRET\nlisten: kept",
            "headers_for:\n  a:\n    Authorization: SECRET\nlisten: kept",
        ] {
            assert!(!shown(text).contains("SECRET"), "{}", shown(text));
            if text.ends_with("listen: kept") {
                assert!(shown(text).ends_with("listen: kept"), "{}", shown(text));
            }
        }
        let plain = "listen: 1\nagents:\n  a: { allow: { servers: [x] } }\n";
        assert_eq!(shown(plain), plain);
    }
}
