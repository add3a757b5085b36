//! Fuzzes the scanner with any bytes.
//!
//! It accepts what serde_json accepts, except for ambiguous values, and reads the same. The rule
//! for responses reports every ambiguity that it tolerates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolward_fuzz::wire::{strict, well_formed};
use toolward_wire::scan::{Strictness, scan};
use toolward_wire::{MAX_RESPONSE_BYTES, Raw, Shape};

fuzz_target!(|data: &[u8]| {
    let raw = Raw::scan(data, MAX_RESPONSE_BYTES);
    let reference = strict(data);
    assert_eq!(raw.is_ok(), reference.is_some(), "{raw:?}");
    let everywhere = scan(data, MAX_RESPONSE_BYTES, Strictness::Everywhere);
    assert_eq!(everywhere.as_ref().err(), raw.as_ref().err());
    if let (Ok(raw), Some(value)) = (raw, reference) {
        assert_eq!(raw.to_json(), value);
        walk(raw);
    }

    match scan(data, MAX_RESPONSE_BYTES, Strictness::Response) {
        Ok(outline) => {
            assert!(well_formed(data));
            assert_eq!(outline.ambiguity.is_none(), everywhere.is_ok());
            assert_eq!(outline.root.of(data), data.trim_ascii());
        }
        Err(error) => assert!(error.at <= data.len() && everywhere.is_err()),
    }
});

/// Checks that the parts of a value are slices of its bytes, in document order.
fn walk(raw: Raw<'_>) {
    let mut at = 0;
    for member in raw.members() {
        assert!(member.key_span.start >= at && member.key_span.end < member.value_span.start);
        at = member.value_span.end;
        assert_eq!(member.value_span.of(raw.bytes()), member.value.bytes());
        // Keys are unique, so a lookup finds this member.
        assert_eq!(raw.member(&member.name()), Some(member.value));
        walk(member.value);
    }
    for (element, span) in raw.elements() {
        assert!(span.start >= at);
        at = span.end;
        assert_eq!(span.of(raw.bytes()), element.bytes());
        walk(element);
    }
    assert_eq!(raw.as_str().is_some(), raw.shape() == Shape::String);
}
