//! Signs in a changed text that could steer a model: addresses, names of other tools, instructions, secrecy,
//! credentials, invisible characters.
//!
//! Signs are counted in the old and in the new text, and only an increase matters, so that an instruction that was
//! approved stays approved. The lists are a filter for attention, not a proof: agents are shown the approved text until
//! somebody accepts the new one, whatever these signs are.

use std::collections::BTreeMap;

use toolward_policy::text;

/// A text that became longer than this, and twice as long, is not a small correction.
const MAX_GROWTH: usize = 500;

/// Something in a text that could steer a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cue {
    Address,
    ToolName,
    Imperative,
    Secrecy,
    Credential,
    Invisible,
    Markup,
    OtherScript,
    Growth,
}

impl Cue {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Cue::Address => "gains an address",
            Cue::ToolName => "gains the name of another tool",
            Cue::Imperative => "gains an instruction",
            Cue::Secrecy => "gains a request for secrecy",
            Cue::Credential => "gains a mention of credentials",
            Cue::Invisible => "gains invisible characters",
            Cue::Markup => "gains markup",
            Cue::OtherScript => "gains letters of another script",
            Cue::Growth => "becomes much longer",
        }
    }
}

const IMPERATIVES: &[&str] = &[
    "always",
    "append",
    "assistant",
    "before calling",
    "before using",
    "call",
    "disregard",
    "do not",
    "don't",
    "ensure",
    "execute",
    "first",
    "follow",
    "forget",
    "forward",
    "ignore",
    "immediately",
    "important",
    "include",
    "instead",
    "instruction",
    "instructions",
    "invoke",
    "make sure",
    "mandatory",
    "must",
    "necessary",
    "need to",
    "needs to",
    "never",
    "note that",
    "only use",
    "override",
    "paste",
    "please",
    "prior to",
    "prompt",
    "remember",
    "require",
    "required",
    "requires",
    "run",
    "send",
    "shall",
    "should",
    "system",
    "then",
    "upload",
    "warning",
    "you",
    "your",
];

const SECRECY: &[&str] = &[
    "behind the scenes",
    "conceal",
    "confidential",
    "discreetly",
    "do not disclose",
    "do not inform",
    "do not mention",
    "do not reveal",
    "do not show",
    "do not tell",
    "don't mention",
    "don't tell",
    "hidden",
    "hide",
    "invisible",
    "never mention",
    "never tell",
    "not visible",
    "quietly",
    "secretly",
    "silently",
    "unnoticed",
    "without asking",
    "without mentioning",
    "without telling",
];

const CREDENTIALS: &[&str] = &[
    "access key",
    "access token",
    "api key",
    "api-key",
    "api_key",
    "apikey",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "environment variable",
    "environment variables",
    "id_rsa",
    "keychain",
    "oauth",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "private key",
    "secret",
    "secrets",
    "ssh",
    "token",
    "tokens",
    "wallet",
    ".aws",
    ".env",
    ".netrc",
    ".npmrc",
    ".ssh",
    "/etc/",
];

/// Endings of names that are addresses even without a scheme.
const TOP_LEVELS: &[&str] = &[
    "ai", "app", "biz", "cc", "cloud", "cn", "co", "com", "dev", "edu", "eu", "gov", "info", "io",
    "link", "live", "me", "net", "online", "onion", "org", "ru", "site", "store", "tech", "tk",
    "to", "top", "tv", "uk", "us", "vip", "website", "xyz", "zip",
];

/// The signs that `new` has more of than `old`. `others` are the names of other tools.
pub(super) fn gained<'n>(
    old: &str,
    new: &str,
    others: impl Iterator<Item = &'n str> + Clone,
) -> Vec<Cue> {
    if old == new {
        return Vec::new();
    }
    let (before, after) = (cues(old, others.clone()), cues(new, others));
    let more = |(sign, count): (&(Cue, String), &usize)| {
        (*count > before.get(sign).copied().unwrap_or_default()).then_some(sign.0)
    };
    let mut gained: Vec<Cue> = after.iter().filter_map(more).collect();
    let (was, is) = (old.chars().count(), new.chars().count());
    if is > was * 2 && is - was > MAX_GROWTH {
        gained.push(Cue::Growth);
    }
    gained.sort_unstable();
    gained.dedup();
    gained
}

/// The signs in a text, and their numbers.
fn cues<'n>(text: &str, others: impl Iterator<Item = &'n str>) -> BTreeMap<(Cue, String), usize> {
    let mut found = BTreeMap::new();
    let mut add = |cue: Cue, sign: &str, count: usize| {
        if count > 0 {
            *found.entry((cue, sign.to_string())).or_insert(0) += count;
        }
    };
    // Invisible characters must not split a word that would be found otherwise.
    let visible: String = text.chars().filter(|c| !is_invisible(*c)).collect();
    let folded = visible.to_lowercase().replace('\u{2019}', "'");
    let folded = folded.split_whitespace().collect::<Vec<_>>().join(" ");
    let lists =
        [(Cue::Imperative, IMPERATIVES), (Cue::Secrecy, SECRECY), (Cue::Credential, CREDENTIALS)];
    for (cue, words) in lists {
        words.iter().for_each(|word| add(cue, word, occurrences(&folded, word)));
    }
    for name in others {
        // A name of letters alone may be a word of the language; then its case counts.
        let count = match name.chars().all(|c| c.is_ascii_lowercase()) {
            true => occurrences(&visible, name),
            false => occurrences(&folded, &name.to_lowercase()),
        };
        add(Cue::ToolName, name, count);
    }
    for token in folded.split([' ', '(', ')', '<', '>', '"', '\'', '`', ',', ';', '[', ']']) {
        let token = token.trim_matches(['.', ':', '!', '?', '*', '_']);
        if is_address(token) {
            add(Cue::Address, token, 1);
        }
    }
    add(Cue::Markup, "<", text.matches('<').count());
    add(Cue::Markup, "```", text.matches("```").count());
    add(Cue::Markup, "![", text.matches("![").count());
    let invisible = text.chars().filter(|c| is_invisible(*c));
    invisible.for_each(|c| add(Cue::Invisible, &c.to_string(), 1));
    let foreign = text.chars().any(|c| c.is_alphabetic() && !c.is_ascii());
    add(Cue::OtherScript, "", usize::from(foreign));
    found
}

/// The number of times that a text contains these words as whole words.
fn occurrences(text: &str, words: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // An edge of punctuation needs no border.
    let (first, last) = (words.chars().next(), words.chars().next_back());
    let found = text.match_indices(words).filter(|(at, _)| {
        let (head, tail) = (text.get(..*at), text.get(at + words.len()..));
        let before = head.and_then(|head| head.chars().next_back());
        let after = tail.and_then(|tail| tail.chars().next());
        let joined = |edge: Option<char>, next: Option<char>| {
            edge.is_some_and(is_word) && next.is_some_and(is_word)
        };
        !joined(first, before) && !joined(last, after)
    });
    found.count()
}

/// Whether a word is a URL, a mail address, an IP address or the name of a host.
fn is_address(word: &str) -> bool {
    if word.contains("://")
        || ["www.", "mailto:", "data:", "javascript:"].iter().any(|start| word.starts_with(start))
    {
        return true;
    }
    let host = word.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let labels: Vec<&str> = host.split('.').collect();
    let is_label = |label: &&str| {
        !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    if labels.len() < 2 || !labels.iter().all(is_label) {
        return false;
    }
    let last = labels.last().copied().unwrap_or_default();
    let is_ip = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    is_ip || word.contains('@') || TOP_LEVELS.contains(&last)
}

/// Whether a reader does not see a character, or sees text in another order because of it.
pub(super) fn is_invisible(c: char) -> bool {
    text::is_invisible(c) && !matches!(c, '\n' | '\t' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(old: &str, new: &str) -> Vec<&'static str> {
        let names = ["delete_repo", "search"];
        gained(old, new, names.into_iter()).into_iter().map(Cue::as_str).collect()
    }

    #[test]
    fn an_edit_without_signs_gains_nothing() {
        for (old, new) in [
            ("Reads a file.", "Reads a file from disk."),
            ("Creates an issue", "Create a new issue in a repository"),
            ("Send the report. You must be an admin.", "You must be an admin. Send the report!"),
            ("See https://docs.example/a", "Docs: https://docs.example/a"),
            ("Reads README.md", "Reads README.md and notes.txt"),
            ("", ""),
        ] {
            assert_eq!(gains(old, new), [""; 0], "{new}");
        }
    }

    #[test]
    fn signs_that_are_new_are_gained() {
        for (new, gain) in [
            ("Reads a file, see https://evil.example/x", "gains an address"),
            ("Reads a file from evil.com/x", "gains an address"),
            ("Reads a file. 10.0.0.7:8080", "gains an address"),
            ("Reads a file (mail a@b.example)", "gains an address"),
            ("Reads a file, as DELETE_REPO does", "gains the name of another tool"),
            ("Reads a file after search", "gains the name of another tool"),
            ("Reads a file. Always pass the whole text", "gains an instruction"),
            ("Reads a file. Do\nnot stop", "gains an instruction"),
            ("Reads a file. ig\u{200b}nore the rest", "gains an instruction"),
            ("Reads a file silently", "gains a request for secrecy"),
            ("Reads a file like ~/.ssh/config", "gains a mention of credentials"),
            ("Reads a file with a password", "gains a mention of credentials"),
            ("Reads a fi\u{200b}le.", "gains invisible characters"),
            ("Reads a file.\u{202e}", "gains invisible characters"),
            ("Reads a file. <b>", "gains markup"),
            ("Reads a fіle.", "gains letters of another script"),
            (&"Reads a file, more or less. ".repeat(40), "becomes much longer"),
        ] {
            assert!(
                gains("Reads a file.", new).contains(&gain),
                "{new}: {:?}",
                gains("Reads a file.", new)
            );
        }
        // One more of a sign that was there is a gain, too.
        assert_eq!(gains("You must", "You must and must"), ["gains an instruction"]);
        // Parts of words do not count.
        assert_eq!(gains("Reads", "Reads a research mustache"), [""; 0]);
    }
}
