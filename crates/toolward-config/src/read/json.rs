//! Strict JSON parser: exactly one value, unique keys (compared after unescaping), no lone surrogates,
//! bounded depth.

use std::borrow::Cow;

use crate::diagnostics::fault::Fault;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::read::node::{Key, MAX_DEPTH, Map, Node, Value};

/// Reads one JSON value that is the whole text.
///
/// ```
/// let node = toolward_config::json::parse(r#"{"tool": "read_file"}"#).unwrap();
/// assert_eq!(node.get("tool").and_then(|tool| tool.as_str()), Some("read_file"));
/// assert!(toolward_config::json::parse(r#"{"a": 1, "\u0061": 2}"#).is_err());
/// ```
pub fn parse(text: &str) -> Result<Node<'_>, Fault> {
    read(text, false)
}

/// The same with comments and trailing commas, as in editors' settings.
pub(crate) fn parse_with_comments(text: &str) -> Result<Node<'_>, Fault> {
    read(text, true)
}

fn read(text: &str, comments: bool) -> Result<Node<'_>, Fault> {
    let mut reader = JsonParser { text, at: 0, comments };
    let node = reader.value(0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.fault("more text after the end of the JSON value")),
    }
}

struct JsonParser<'t> {
    text: &'t str,
    at: usize,
    /// Comments and trailing commas are accepted.
    comments: bool,
}

impl<'t> JsonParser<'t> {
    fn value(&mut self, depth: usize) -> Result<Node<'t>, Fault> {
        self.skip_space();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Str(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(c) if c.is_ascii_alphabetic() => self.word()?,
            Some(b'\'') => {
                return Err(self.fault("JSON strings are in double quotes, not single ones"));
            }
            Some(b'/' | b'#') if self.at_comment() => {
                return Err(self.fault("JSON has no comments"));
            }
            Some(b']' | b'}') => return Err(self.fault("expected a value before this")),
            Some(_) => return Err(self.fault("expected a JSON value")),
            None => return Err(self.fault("the text ends where a JSON value is expected")),
        };
        Ok(Node::new(Span::new(start, self.at), value))
    }

    fn map(&mut self, depth: usize) -> Result<Value<'t>, Fault> {
        let open = self.open(depth)?;
        let mut entries = Vec::new();
        self.skip_space();
        if !self.eat(b'}') {
            loop {
                self.skip_space();
                let start = self.at;
                let name = match self.peek() {
                    Some(b'"') => self.string()?,
                    Some(b'}') => return Err(self.fault("a comma is not allowed before `}`")),
                    Some(b'/' | b'#') if self.at_comment() => {
                        return Err(self.fault("JSON has no comments"));
                    }
                    None => return Err(self.unclosed(open, '{')),
                    Some(_) => return Err(self.fault("expected a key in double quotes")),
                };
                let key = Key { span: Span::new(start, self.at), name };
                self.skip_space();
                if !self.eat(b':') {
                    return Err(match self.peek() {
                        None => self.unclosed(open, '{'),
                        Some(_) => {
                            self.fault(format!("expected `:` after the key {}", quoted(&key.name)))
                        }
                    });
                }
                entries.push((key, self.value(depth + 1)?));
                if self.ends(open, '{', b'}')? {
                    break;
                }
            }
        }
        let mut faults = Vec::new();
        let map = Map::new(entries, &mut faults);
        faults.into_iter().next().map_or(Ok(Value::Map(map)), Err)
    }

    fn list(&mut self, depth: usize) -> Result<Value<'t>, Fault> {
        let open = self.open(depth)?;
        let mut items = Vec::new();
        self.skip_space();
        if !self.eat(b']') {
            loop {
                self.skip_space();
                match self.peek() {
                    Some(b']') => return Err(self.fault("a comma is not allowed before `]`")),
                    None => return Err(self.unclosed(open, '[')),
                    Some(_) => items.push(self.value(depth + 1)?),
                }
                if self.ends(open, '[', b']')? {
                    break;
                }
            }
        }
        Ok(Value::Seq(items))
    }

    fn open(&mut self, depth: usize) -> Result<usize, Fault> {
        if depth >= MAX_DEPTH {
            return Err(self.fault(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.at += 1;
        Ok(self.at - 1)
    }

    /// After an item: true at the closing bracket, false at a comma.
    fn ends(&mut self, open: usize, opened: char, close: u8) -> Result<bool, Fault> {
        self.skip_space();
        if self.eat(b',') {
            if self.comments {
                self.skip_space();
                return Ok(self.eat(close));
            }
            return Ok(false);
        }
        if self.eat(close) {
            return Ok(true);
        }
        Err(match self.peek() {
            None => self.unclosed(open, opened),
            Some(_) => self.fault(format!("expected `,` or `{}`", close as char)),
        })
    }

    fn word(&mut self) -> Result<Value<'t>, Fault> {
        let rest = self.rest();
        let len = rest.bytes().take_while(|c| c.is_ascii_alphanumeric() || *c == b'_').count();
        let word = &rest[..len];
        let value = match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => {
                let span = Span::new(self.at, self.at + len);
                let fault = Fault::new(span, format!("{} is not a JSON value", quoted(word)));
                return Err(match word {
                    "True" | "False" | "None" | "TRUE" | "FALSE" => {
                        fault.help("JSON writes `true`, `false` and `null`")
                    }
                    "NaN" | "Infinity" => fault.help("JSON has only finite numbers"),
                    _ => fault.help("a string must be in double quotes"),
                });
            }
        };
        self.at += len;
        Ok(value)
    }

    fn number(&mut self) -> Result<Value<'t>, Fault> {
        let start = self.at;
        self.eat(b'-');
        if self.eat(b'0') {
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.fault("a number may not begin with a zero"));
            }
        } else {
            self.digits()?;
        }
        let mut whole = true;
        if self.eat(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            whole = false;
            let _sign = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let written = &self.text[start..self.at];
        if whole && written != "-0" {
            if let Ok(value) = written.parse() {
                return Ok(Value::Int(value));
            }
            if let Ok(value) = written.parse() {
                return Ok(Value::UInt(value));
            }
        }
        match written.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            _ => Err(Fault::new(Span::new(start, self.at), "the number is too large")),
        }
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let len = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return Err(self.fault("expected a digit"));
        }
        self.at += len;
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'t, str>, Fault> {
        let open = self.at;
        self.at += 1;
        let mut owned: Option<String> = None;
        loop {
            let rest = self.rest();
            let plain = rest.bytes().take_while(|c| !matches!(c, b'"' | b'\\' | 0..=0x1f)).count();
            let run = &rest[..plain];
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(match owned {
                        None => Cow::Borrowed(run),
                        Some(text) => Cow::Owned(text + run),
                    });
                }
                Some(b'\\') => {
                    let text = owned.get_or_insert_default();
                    text.push_str(run);
                    text.push(self.escape()?);
                }
                Some(_) => {
                    return Err(self
                        .fault("a string contains a control character")
                        .help("write it as an escape, e.g. `\\n` for a line break"));
                }
                None => {
                    return Err(Fault::new(Span::new(open, open + 1), "the string is not closed")
                        .label("it begins here"));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let start = self.at;
        self.at += 1;
        let bad = |reader: &Self, message: &str| {
            let end = (start..=reader.at).rev().find(|at| reader.text.is_char_boundary(*at));
            Fault::new(Span::new(start, end.unwrap_or(start)), message)
        };
        let Some(letter) = self.peek() else {
            return Err(bad(self, "the string is not closed"));
        };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex4().ok_or_else(|| bad(self, "expected four hex digits"))?;
                let code = match high {
                    0xd800..=0xdbff => {
                        let low = if self.rest().starts_with("\\u") {
                            self.at += 2;
                            self.hex4()
                        } else {
                            None
                        };
                        match low {
                            Some(low @ 0xdc00..=0xdfff) => {
                                0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                            }
                            _ => return Err(bad(self, "a surrogate escape without its pair")),
                        }
                    }
                    code => code,
                };
                char::from_u32(code)
                    .ok_or_else(|| bad(self, "a surrogate escape without its pair"))?
            }
            _ => return Err(bad(self, "unknown escape in a string")),
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        if !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        loop {
            while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
                self.at += 1;
            }
            let rest = self.rest();
            let end = match self.comments {
                true if rest.starts_with("//") => rest.find('\n'),
                true if rest.starts_with("/*") => rest.find("*/").map(|end| end + 2),
                _ => return,
            };
            self.at += end.unwrap_or(rest.len());
        }
    }

    fn at_comment(&self) -> bool {
        ["//", "/*", "#"].iter().any(|begin| self.rest().starts_with(begin))
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        let len = self.rest().chars().next().map_or(0, char::len_utf8);
        Fault::new(Span::new(self.at, self.at + len), message)
    }

    fn unclosed(&self, open: usize, opened: char) -> Fault {
        self.fault(format!("the text ends before `{opened}` is closed"))
            .related(Span::new(open, open + 1), "opened here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        parse(text).unwrap_err().message
    }

    #[test]
    fn values_are_read_as_serde_json_reads_them() {
        for text in [
            "null",
            "true",
            " [1, -2, 3.5, 1e3, 18446744073709551615, -0] ",
            "\"a\\n\\u00e9\\ud83d\\ude00/\\/\"",
            "{\"a\": {\"b\": []}, \"c\": \"\"}",
            "[[[[]]]]",
            "\"é\u{7f}\"",
            "123456789012345678901234567890",
        ] {
            let ours = parse(text).unwrap().to_json();
            let theirs: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(ours, theirs, "{text}");
        }
    }

    #[test]
    fn input_that_is_not_strict_json_is_rejected() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a: 1}",
            "{'a': 1}",
            "[1] 2",
            "01",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "True",
            "NaN",
            "// x\n1",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"a\nb\"",
            "\"abc",
            "1e400",
            "{\"a\" 1}",
            "{\"a\":}",
            "[1 2]",
            "\u{feff}1",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\0",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn duplicate_keys_are_compared_after_unescaping() {
        assert!(fault(r#"{"name": 1, "\u006eame": 2}"#).contains("`name` is duplicated"));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert!(fault(&nested(MAX_DEPTH + 1)).contains("64 levels"));
        assert!(parse(&"[".repeat(1_000_000)).is_err());
    }
}
