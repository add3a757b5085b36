//! The trace context of W3C: `VERSION-TRACE-SPAN-FLAGS` in hexadecimal digits.

use std::fmt;

/// The span that a request continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) sampled: bool,
}

impl Parent {
    /// `None` if the text is not valid: then a request begins a trace of its own.
    pub(crate) fn parse(text: &str) -> Option<Parent> {
        let mut parts = text.split('-');
        let (version, trace) = (parts.next()?, parts.next()?);
        let (span, flags) = (parts.next()?, parts.next()?);
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits
                && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
        };
        // Later versions may add parts.
        let complete = version != "00" || parts.next().is_none();
        if !is_hex(version, 2) || version == "ff" || !complete || !is_hex(flags, 2) {
            return None;
        }
        if !is_hex(trace, 32) || !is_hex(span, 16) {
            return None;
        }
        let (trace, span) =
            (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        (trace != 0 && span != 0).then_some(Parent { trace, span, sampled })
    }
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parent { trace, span, sampled } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_read_and_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent::parse(text).unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), text);
        let other = Parent::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more");
        assert!(!other.unwrap().sampled);
    }

    #[test]
    fn an_invalid_context_is_ignored() {
        for bad in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-+0f067aa0ba902b7-01",
        ] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
    }
}
