//! Splits names, descriptions and queries into words, stems them, and has the table of synonyms.

/// Longer words are ignored.
const MAX_WORD_LENGTH: usize = 64;

/// Stop words.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "by", "can", "could",
    "do", "does", "for", "from", "give", "have", "how", "i", "if", "in", "into", "is", "it", "its",
    "let", "me", "my", "need", "of", "on", "or", "our", "please", "should", "some", "that", "the",
    "their", "them", "there", "this", "to", "tool", "us", "use", "using", "want", "was", "what",
    "when", "where", "which", "will", "with", "would", "you", "your",
];

/// Groups of synonyms.
const SYNONYMS: &[&[&str]] = &[
    &["delete", "remove", "erase", "drop", "rm", "unlink"],
    &["create", "make", "new", "add", "start", "open"],
    &["get", "read", "show", "view", "fetch", "retrieve", "display", "see"],
    &["list", "enumerate", "show"],
    &["search", "find", "lookup", "look", "query", "locate"],
    &["update", "edit", "modify", "change"],
    &["send", "post", "publish", "write"],
    &["write", "save", "store"],
    &["run", "execute", "call", "invoke", "evaluate"],
    &["move", "rename"],
    &["open", "navigate", "visit", "go"],
    &["press", "click", "push"],
    &["picture", "image", "photo"],
    &["screenshot", "capture"],
    &["folder", "directory", "dir"],
    &["repository", "repo", "project"],
    &["webpage", "website", "page", "site", "url"],
    &["web", "internet", "online"],
    &["comment", "note", "reply"],
    &["message", "chat"],
    &["ticket", "issue", "bug"],
    &["person", "user", "member", "people"],
    &["history", "log"],
    &["difference", "diff", "compare", "change"],
    &["database", "db", "sql"],
    &["javascript", "js", "script"],
    &["documentation", "docs", "doc", "manual"],
    &["route", "directions"],
    &["address", "location", "place"],
    &["clock", "time"],
    &["download", "fetch"],
    &["remember", "memory"],
    &["environment", "env"],
    &["compress", "gzip", "zip"],
    &["emoji", "reaction"],
    &["pr", "pull"],
    &["mr", "merge"],
    &["ci", "pipeline"],
];

/// The words of a text, lowercased, in order: `readFile`, `read_file` and `Read File` have the same
/// words.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        let humps = c.is_uppercase()
            && (before.is_lowercase() || (before.is_uppercase() && next.is_lowercase()));
        // In scripts without spaces between words, each character counts as a word.
        let alone = c >= '\u{2e80}';
        if humps || alone || before >= '\u{2e80}' || !c.is_alphanumeric() {
            finish(&mut words, &mut word);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    finish(&mut words, &mut word);
    words
}

fn finish(words: &mut Vec<String>, word: &mut String) {
    let word = std::mem::take(word);
    if !word.is_empty() && word.len() <= MAX_WORD_LENGTH {
        words.push(word);
    }
}

pub(super) fn is_empty(word: &str) -> bool {
    STOP_WORDS.contains(&word)
}

/// The stem of a word: `creating`, `created` and `creates` have the same one. It need not be a word.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || word.len() < 4 {
        return word.into();
    }
    let mut stem = word.to_string();
    if let Some(rest) = word.strip_suffix("ies") {
        stem = format!("{rest}y");
    } else if let Some(rest) = strip_any(word, &["sses", "shes", "ches", "xes"], 2) {
        stem = rest.into();
    } else if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") {
        stem.pop();
    }
    for ending in ["ing", "ed", "ion"] {
        if let Some(rest) = stem.strip_suffix(ending)
            && rest.len() >= 3
            && rest.contains(['a', 'e', 'i', 'o', 'u', 'y'])
        {
            stem = undouble(rest).into();
            break;
        }
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    stem
}

/// Removes `off` letters from a word that has one of these endings.
fn strip_any<'w>(word: &'w str, endings: &[&str], off: usize) -> Option<&'w str> {
    let fits = endings.iter().any(|ending| word.ends_with(ending));
    word.get(..word.len() - off).filter(|_| fits)
}

/// `runn` of `running` is `run`; `call` of `calling` stays.
fn undouble(word: &str) -> &str {
    let mut last = word.chars().rev();
    match (last.next(), last.next()) {
        (Some(a), Some(b)) if a == b && !matches!(a, 'l' | 's' | 'z') => {
            word.get(..word.len() - 1).unwrap_or(word)
        }
        _ => word,
    }
}

/// The stems of a word's synonyms.
pub(super) fn alike(word: &str) -> Vec<String> {
    let own = stem(word);
    let groups = SYNONYMS.iter().filter(|group| group.iter().any(|one| stem(one) == own));
    let mut found: Vec<String> =
        groups.flat_map(|group| group.iter().map(|one| stem(one))).collect();
    found.sort_unstable();
    found.dedup();
    found.retain(|one| *one != own);
    found
}

/// Whether two words differ by at most one typo: a missing, extra or wrong letter, or two swapped ones.
pub(super) fn nearly(one: &str, other: &str) -> bool {
    if one.is_ascii() && other.is_ascii() {
        return one_slip(one.as_bytes(), other.as_bytes());
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    one_slip(&one, &other)
}

fn one_slip<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    if long.len() - short.len() > 1 {
        return false;
    }
    let same = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    let (short, long) = (short.get(same..).unwrap_or(&[]), long.get(same..).unwrap_or(&[]));
    match (short, long) {
        ([], rest) => rest.len() <= 1,
        (short, [_, rest @ ..]) if short.len() == rest.len() => short == rest,
        ([_, x @ ..], [_, y @ ..]) if x == y => true,
        ([p, q, x @ ..], [r, s, y @ ..]) => p == s && q == r && x == y,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_every_spelling_have_the_same_words() {
        for name in ["read_text_file", "readTextFile", "Read Text-File", "read.text/file"] {
            assert_eq!(split(name), ["read", "text", "file"], "{name}");
        }
        assert_eq!(split("parseHTMLPage2x"), ["parse", "html", "page2x"]);
        assert_eq!(split("検索ab"), ["検", "索", "ab"]);
        assert!(split("  --- ").is_empty());
    }

    #[test]
    fn endings_do_not_distinguish_words() {
        for (one, other) in [
            ("creates", "creating"),
            ("created", "create"),
            ("files", "file"),
            ("directories", "directory"),
            ("running", "run"),
            ("branches", "branch"),
            ("calls", "calling"),
            ("calculation", "calculate"),
            ("searches", "search"),
        ] {
            assert_eq!(stem(one), stem(other), "{one} {other}");
        }
        for (one, other) in [("status", "state"), ("process", "proceed"), ("news", "new")] {
            assert_ne!((stem(one), one), (stem(other), other));
        }
    }

    #[test]
    fn one_slip_of_the_hand_is_near_and_two_are_not() {
        for (one, other) in [
            ("screnshot", "screenshot"),
            ("serach", "search"),
            ("commmit", "commit"),
            ("isdue", "issue"),
            ("branc", "branch"),
            ("issue", "issue"),
        ] {
            assert!(nearly(one, other) && nearly(other, one), "{one} {other}");
        }
        for (one, other) in [("issue", "tissues"), ("abcd", "badc"), ("", "ab"), ("file", "time")] {
            assert!(!nearly(one, other) && !nearly(other, one), "{one} {other}");
        }
    }

    #[test]
    fn words_that_people_use_for_each_other_find_each_other() {
        assert!(alike("removing").contains(&stem("delete")));
        assert!(alike("repo").contains(&stem("repository")));
        assert!(alike("xylophone").is_empty());
    }
}
