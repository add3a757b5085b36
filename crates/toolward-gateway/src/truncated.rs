//! Detects files that were truncated.

/// Whether `next` is a proper prefix of `active`, or becomes one without its final newlines.
pub fn is_beginning(next: &[u8], active: &[u8]) -> bool {
    let (cut, whole) = (without_newlines(next), without_newlines(active));
    let is_prefix = next.len() < active.len() && begins_with(active, next);
    is_prefix || (cut.len() < whole.len() && begins_with(whole, cut))
}

/// Takes the same time for each `beginning` of a length: the texts may be secrets.
fn begins_with(text: &[u8], beginning: &[u8]) -> bool {
    let difference =
        text.iter().zip(beginning).fold(0, |so_far, (one, other)| so_far | (one ^ other));
    text.len() >= beginning.len() && difference == 0
}

fn without_newlines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    text.get(..end.map_or(0, |end| end + 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_text_is_found_with_and_without_a_final_newline() {
        let active = b"a: 1\nb: 2\n";
        for cut in ["", "\n", "a: 1\n", "a: 1", "a: 1\nb:", "a: 1\nb:\n", "a: 1\r\n", "a: 1\nb: 2"]
        {
            assert!(is_beginning(cut.as_bytes(), active), "{cut:?}");
        }
        for other in ["a: 1\nb: 2\n", "a: 1\nb: 2\n\n", "a: 1\nb: 3\n", "b: 2\n", "a: 1\nc: 3\n"] {
            assert!(!is_beginning(other.as_bytes(), active), "{other:?}");
        }
    }
}
