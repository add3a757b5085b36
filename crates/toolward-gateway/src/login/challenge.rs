//! The `WWW-Authenticate` header of a protected server.

/// The parameters of a bearer challenge.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) resource_metadata: Option<String>,
    pub(crate) scope: Option<String>,
}

/// The maximum length of a parameter.
const MAX_LENGTH: usize = 2048;

impl Challenge {
    /// Parses a header. `None` if it has no bearer challenge.
    pub(crate) fn parse(header: &str) -> Option<Challenge> {
        let at = header.to_ascii_lowercase().find("bearer")?;
        let mut rest = header.get(at + "bearer".len()..)?;
        let mut challenge = Challenge::default();
        while let Some((name, value, after)) = parameter(rest) {
            let value = Some(value).filter(|value| value.len() <= MAX_LENGTH);
            match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => challenge.resource_metadata = value,
                "scope" => {
                    let is_scope = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
                    challenge.scope = value.filter(|value| value.bytes().all(is_scope));
                }
                _ => {}
            }
            rest = after;
        }
        Some(challenge)
    }
}

/// The first parameter of a list, and the rest.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', '\t', ',']);
    let (name, rest) = text.split_once('=')?;
    let name = name.trim();
    // A space in a name: another challenge begins.
    if name.is_empty() || name.contains([' ', ',', '"']) {
        return None;
    }
    let rest = rest.trim_start();
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([',', ' ']).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(end);
        return Some((name, value.into(), rest));
    };
    let (mut value, mut characters) = (String::new(), quoted.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name, value, quoted.get(at + 1..)?)),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_has_parameters() {
        let metadata = "https://s.example/.well-known/oauth-protected-resource/mcp";
        for header in [
            format!("Bearer resource_metadata=\"{metadata}\", scope=\"a b\""),
            format!("bearer  error=\"invalid_token\",resource_metadata={metadata},Scope=\"a b\""),
            format!("Basic realm=\"x\", Bearer scope=\"a \\b\", resource_metadata=\"{metadata}\""),
        ] {
            let challenge = Challenge::parse(&header).unwrap();
            assert_eq!(challenge.resource_metadata.as_deref(), Some(metadata), "{header}");
            assert_eq!(challenge.scope.as_deref(), Some("a b"), "{header}");
        }
        assert_eq!(Challenge::parse("Bearer"), Some(Challenge::default()));
        assert_eq!(Challenge::parse("Basic realm=\"x\""), None);
        let cut = Challenge::parse("Bearer resource_metadata=\"https://s");
        assert_eq!(cut, Some(Challenge::default()));
    }
}
