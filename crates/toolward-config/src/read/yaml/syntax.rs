//! Help for YAML syntax errors.

use granit_parser::{ErrorKind, ScanError};

use super::first_char;
use crate::diagnostics::fault::Fault;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::read::node::MAX_DEPTH;

/// The first character that YAML does not allow.
pub(super) fn unprintable(text: &str) -> Option<Fault> {
    // Only bytes below 0x20, and the first bytes of DEL, C1 and the noncharacters, can be one.
    let suspicious =
        |byte: u8| byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r') || byte >= 0x7f;
    if !text.bytes().any(suspicious) {
        return None;
    }
    let (at, c) = text.char_indices().find(|(_, c)| {
        c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    })?;
    let help = match c {
        '\0' => "is this a text file?",
        _ => "in double quotes it can be written as an escape such as `\\x07`",
    };
    let message = format!("the control character U+{:04X} is not allowed in a YAML file", c as u32);
    Some(Fault::new(Span::new(at, at + c.len_utf8()), message).help(help))
}

pub(super) fn fault(text: &str, error: &ScanError) -> Fault {
    let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
    let here = first_char(text, Span::new(at, at));
    let found = text.get(here.start as usize..here.end as usize).unwrap_or_default();
    let closed = text.get(..at).is_some_and(|before| before.ends_with([']', '}']));
    let (message, help): (String, &str) = match error.kind() {
        ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedNodeContent
        | ErrorKind::InvalidDocumentEnd
            if closed =>
        {
            (
                "more text follows the closing bracket".into(),
                "a name that begins with `[` or `{` needs quotes",
            )
        }
        ErrorKind::InvalidQuotedScalarIndent => (
            "a quoted string is not closed before this line".into(),
            "end the string with the quote it began with",
        ),
        ErrorKind::InvalidColonPlacement => (
            "a `:` is not allowed here".into(),
            "is a `[` or `{` above not closed? a value that contains `: ` needs quotes",
        ),
        ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => {
            ("a quoted string is not closed".into(), "end the string with the quote it began with")
        }
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::InvalidBlockEntryWhitespace
        | ErrorKind::InvalidMappingValueWhitespace
        | ErrorKind::TabInPlainScalar => {
            ("a tab may not be used for indentation in YAML".into(), "indent with spaces")
        }
        ErrorKind::MissingAnchorOrAliasName => (
            "`*` and `&` have a special meaning in YAML".into(),
            "put the value in quotes: `\"*\"`",
        ),
        ErrorKind::UnexpectedCharacter { character } => (
            format!("{} may not begin a value in YAML", quoted(&character.to_string())),
            "put the value in quotes",
        ),
        ErrorKind::DirectiveDisallowed => (
            "YAML directives (lines that begin with `%`) are not supported".into(),
            "a value that begins with `%` needs quotes",
        ),
        ErrorKind::MappingValueNotAllowed => (
            "a `:` followed by a space is not allowed here".into(),
            "a value that contains `: ` needs quotes; a key above may be missing its `:`",
        ),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => (
            "expected `:` after this key".into(),
            "a line is `key: value` or `- entry`; check the indentation",
        ),
        ErrorKind::InvalidIndentation
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::MappingKeyNotAllowed
        | ErrorKind::InvalidBlockScalarIndent
        | ErrorKind::InvalidFlowScalarIndent => (
            "the indentation does not fit the lines above".into(),
            "entries of one list or mapping begin in the same column",
        ),
        ErrorKind::UnclosedFlowCollection { open } => {
            (format!("`{open}` is not closed"), "add the closing bracket")
        }
        ErrorKind::UnexpectedEofFlowSequence | ErrorKind::ExpectedFlowSequenceSeparator => {
            ("expected `,` or `]`".into(), "entries in brackets are separated by commas")
        }
        ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator => {
            ("expected `,` or `}`".into(), "entries in braces are separated by commas")
        }
        ErrorKind::MisplacedFlowCollectionEnd => (
            format!("{} closes nothing", quoted(found)),
            "a name that contains brackets needs \
                quotes",
        ),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            (format!("`{open}` is closed by `{close}`"), "check the brackets")
        }
        ErrorKind::InvalidTrailingSingleQuotedScalar
        | ErrorKind::InvalidTrailingDoubleQuotedScalar => (
            "more text follows a quoted string".into(),
            "put the whole value in quotes; inside single quotes a quote is doubled",
        ),
        ErrorKind::UnknownQuotedScalarEscape => (
            "unknown escape in a double-quoted string".into(),
            "write a backslash as `\\\\` in double quotes, or use single quotes",
        ),
        ErrorKind::CommentNotSeparated => {
            ("a comment needs a space before `#`".into(), "a value that contains `#` needs quotes")
        }
        ErrorKind::RecursionLimitExceeded => {
            (format!("nested more than {MAX_DEPTH} levels deep"), "")
        }
        kind => (format!("invalid YAML: {kind}"), ""),
    };
    let fault = Fault::new(here, message);
    if help.is_empty() { fault } else { fault.help(help) }
}
