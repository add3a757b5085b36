//! Renders reasons: names in backticks become code, and locations are shortened to the file name.

use super::short;

/// A part of a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Code(String),
    /// `file:line:column`, in full and without the directories.
    Place(String, String),
}

/// The parts of a reason, in order.
pub(crate) fn pieces(reason: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = reason;
    while let Some((text, after)) = rest.split_once('`') {
        let Some((code, after)) = after.split_once('`') else { break };
        push_text(text, &mut pieces);
        pieces.push(Piece::Code(code.into()));
        rest = after;
    }
    push_text(rest, &mut pieces);
    pieces
}

/// Whether a reason contains the location of its rule.
pub(crate) fn has_place(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| matches!(piece, Piece::Place(..)))
}

/// Text; a location in parentheses becomes a separate piece.
fn push_text(text: &str, pieces: &mut Vec<Piece>) {
    let mut push = |text: &str| {
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
    };
    let found = text.rsplit_once('(').and_then(|(before, after)| {
        let (place, after) = after.split_once(')')?;
        is_place(place).then_some((before, place, after))
    });
    let Some((before, place, after)) = found else { return push(text) };
    push(before);
    pieces.push(Piece::Place(place.into(), short(place).into()));
    if !after.is_empty() {
        pieces.push(Piece::Text(after.into()));
    }
}

fn is_place(text: &str) -> bool {
    let mut parts = text.rsplitn(3, ':');
    let mut number = || parts.next().is_some_and(|part| part.parse::<u32>().is_ok());
    number() && number() && parts.next().is_some_and(|file| !file.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_code_and_places_are_short() {
        let text = |text: &str| Piece::Text(text.into());
        let code = |text: &str| Piece::Code(text.into());
        let place = Piece::Place("/etc/my policies/p.yaml:3:14".into(), "p.yaml:3:14".into());
        let reason = "`a` covers `s/t` (/etc/my policies/p.yaml:3:14)";
        let expected = [code("a"), text(" covers "), code("s/t"), text(" "), place];
        assert_eq!(pieces(reason), expected);
        assert!(has_place(&pieces(reason)));
        for plain in ["", "no rule (at all)", "ratio (1:2)", "an odd ` sign", "(a:1)"] {
            assert!(!has_place(&pieces(plain)), "{plain}");
            let whole: String = pieces(plain)
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) | Piece::Code(text) | Piece::Place(text, _) => text.as_str(),
                })
                .collect();
            assert_eq!(whole, plain);
        }
    }
}
