//! Bytes of a file to text: UTF-8 without a byte order mark, at most 256 MiB.

use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::secret_lines;
use super::text::{MAX_BYTES, Span, Text};

impl Text {
    /// Decodes the bytes of a file: UTF-8, without a leading byte order mark.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Arc<Self>, Diagnostic> {
        let name = name.into();
        if bytes.len() > MAX_BYTES {
            return Err(Diagnostic::error(format!("the file `{name}` is larger than 256 MiB")));
        }
        match String::from_utf8(bytes) {
            Ok(content) => {
                let content = match content.strip_prefix('\u{feff}') {
                    Some(rest) => rest.to_owned(),
                    None => content,
                };
                Ok(Text::new(name, content))
            }
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let bytes = error.as_bytes();
                let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
                // The lossy text has a replacement character at the position of the invalid bytes.
                let text = Text::new(name, String::from_utf8_lossy(bytes));
                secret_lines::hide(&text);
                let end = at + char::REPLACEMENT_CHARACTER.len_utf8();
                let diagnostic = Diagnostic::error("the file is not valid UTF-8")
                    .at(&text, Span::new(at, end))
                    .label("this is not a UTF-8 character");
                Err(if utf16 {
                    diagnostic.help("it looks like UTF-16: save the file as UTF-8")
                } else {
                    diagnostic.help("save the file as UTF-8")
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf16_is_named() {
        let error = Text::from_bytes("a.yaml", vec![0xff, 0xfe, b'a', 0]).unwrap_err();
        assert!(error.help_text().contains("UTF-16"));
    }
}
