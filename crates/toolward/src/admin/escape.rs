//! Escapes values in templates: text is sanitized, then HTML-escaped.

use std::fmt::{self, Write};

use askama::filters::Escaper;
use toolward_config::sanitize;

/// The escaper of all templates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text;

impl Escaper for Text {
    fn write_escaped_str<W: Write>(&self, mut to: W, text: &str) -> fmt::Result {
        let text = sanitize(text);
        let mut rest = &*text;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'', '`']) {
            let (plain, special) = rest.split_at(at);
            to.write_str(plain)?;
            let mut chars = special.chars();
            to.write_str(match chars.next() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                _ => "&#96;",
            })?;
            rest = chars.as_str();
        }
        to.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_survives() {
        let mut out = String::new();
        let hostile = "<script>\"'`&\u{1b}[31m\u{202e}\n</script>";
        Text.write_escaped_str(&mut out, hostile).unwrap();
        let shown =
            "&lt;script&gt;&quot;&#39;&#96;&amp;\u{241b}[31m\u{fffd}\u{240a}&lt;/script&gt;";
        assert_eq!(out, shown);
    }
}
