//! Parses a browser's request: the path, and the fields of the query string or form.

use toolward_wire::http::RequestHead;

/// A request to a view.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    /// The part of the path after the view's name, such as `events` of `live/events`.
    pub(crate) rest: String,
    fields: Vec<(String, String)>,
    /// htmx requests a fragment, not a whole page.
    pub(crate) fragment: bool,
    /// The event after which a stream resumes.
    pub(crate) last_event: Option<String>,
}

impl Query {
    /// `None` if the fields are malformed.
    pub(crate) fn read(head: &RequestHead, fields: &str, rest: &str) -> Option<Query> {
        let says = |name: &str| head.headers.get(name) == Some("true");
        Some(Query {
            rest: rest.into(),
            fields: fields_of(fields)?,
            fragment: says("hx-request") && !says("hx-history-restore-request"),
            last_event: head.headers.get("last-event-id").map(String::from),
        })
    }

    /// The first field of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let named = self.fields.iter().find(|(found, _)| found == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The same, if it is not empty.
    pub(crate) fn word(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// All fields of this name, in order.
    pub(crate) fn all<'q>(&'q self, name: &str) -> impl Iterator<Item = &'q str> {
        let named = self.fields.iter().filter(move |(found, _)| found == name);
        named.map(|(_, value)| value.as_str())
    }
}

/// Fields as browsers send them in queries and forms.
pub(super) fn fields_of(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes a value for a URL.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_send_them() {
        let fields = fields_of("a=1&b=x+y%2F%C3%A9&c&a=").unwrap();
        let words: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(words, [("a", "1"), ("b", "x y/é"), ("c", ""), ("a", "")]);
        for bad in ["a=%", "a=%f", "a=%zz", "a=%ff"] {
            assert!(fields_of(bad).is_none(), "{bad}");
        }
        assert_eq!(decoded(&encoded("a b/é&=+%")).unwrap(), "a b/é&=+%");
    }
}
