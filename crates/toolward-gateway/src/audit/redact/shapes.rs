//! Secrets that are known by their shape: the beginnings that issuers give to their tokens, and forms that
//! span several words.

use std::ops::Range;

/// How tokens of a kind begin; at least [`LEAST`] further characters follow.
const BEGINNINGS: [&str; 98] = [
    // GitHub, GitLab, Bitbucket, Atlassian
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "glrt-",
    "glptt-",
    "glft-",
    "glsoat-",
    "glcbt-",
    "glagent-",
    "ATBB",
    "ATATT3",
    // models
    "sk-",
    "gsk_",
    "xai-",
    "pplx-",
    "r8_",
    "hf_",
    "api_org_",
    "lsv2_pt_",
    "lsv2_sk_",
    "tvly-",
    // payments
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "sq0atp-",
    "sq0csp-",
    "access_token$production$",
    // chat and mail
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxr-",
    "xoxs-",
    "xoxe-",
    "xoxe.",
    "xapp-",
    "SG.",
    "xkeysib-",
    // packages
    "npm_",
    "pypi-",
    "rubygems_",
    "dckr_pat_",
    "dckr_oat_",
    "AKCp",
    // clouds
    "ya29.",
    "1//0",
    "AIza",
    "GOCSPX-",
    "dop_v1_",
    "doo_v1_",
    "dor_v1_",
    "dapi",
    "LTAI",
    "fo1_",
    "FlyV1",
    "HRKU-",
    "sbp_",
    "pscale_tkn_",
    "pscale_pw_",
    "pscale_oauth_",
    "pul-",
    "tskey-",
    // secrets managers
    "hvs.",
    "hvb.",
    "hvr.",
    "dp.pt.",
    "dp.st.",
    "dp.ct.",
    "dp.sa.",
    "dp.scim.",
    "dp.audit.",
    "ops_",
    "AGE-SECRET-KEY-1",
    "AGE-SECRET-KEY-PQ-1",
    // monitoring
    "glsa_",
    "glc_",
    "sntrys_",
    "sntryu_",
    "NRAK-",
    "NRJS-",
    "PMAK-",
    // shops, design, notes
    "shpat_",
    "shpss_",
    "shpca_",
    "shppa_",
    "lin_api_",
    "lin_oauth_",
    "figd_",
    "figo_",
    "ntn_",
    "secret_",
    "eyJhbGciOi",
];

/// The number of characters after a known prefix.
const LEAST: usize = 12;

/// Whether a text begins in the shape that issuers give to their tokens.
pub(super) fn begins_with_token(text: &str) -> bool {
    // Most words begin in none of these ways.
    let first = text.as_bytes().first();
    let long = |beginning: &&str| {
        if beginning.as_bytes().first() != first {
            return false;
        }
        let rest = text.strip_prefix(*beginning).unwrap_or_default();
        let random = rest.bytes().take(LEAST).all(|b| b != b'/' && b != b'=');
        // Words of a sentence or an identifier have no digits; tokens of these issuers do.
        let plain = ["dapi", "secret_", "ops_", "pul-", "api_org_"].contains(beginning);
        let telling = !plain || rest.bytes().any(|b| b.is_ascii_digit());
        rest.len() >= LEAST && random && telling
    };
    let signed = text.starts_with("eyJ")
        && text.len() >= 32
        && memchr::memchr_iter(b'.', text.as_bytes()).nth(1).is_some();
    signed || BEGINNINGS.iter().any(long) || FIXED.iter().any(|shape| shape.fits(text))
}

/// Tokens of one length.
struct Fixed {
    begin: &'static str,
    /// Characters behind the beginning.
    length: usize,
    of: fn(&u8) -> bool,
}

const FIXED: [Fixed; 7] = [
    // AWS
    Fixed { begin: "AKIA", length: 16, of: is_upper },
    Fixed { begin: "ASIA", length: 16, of: is_upper },
    // Twilio
    Fixed { begin: "SK", length: 32, of: is_hex },
    // Mailgun
    Fixed { begin: "key-", length: 32, of: is_hex },
    // Vault before 1.10
    Fixed { begin: "s.", length: 24, of: u8::is_ascii_alphanumeric },
    Fixed { begin: "b.", length: 24, of: u8::is_ascii_alphanumeric },
    // Airtable
    Fixed { begin: "pat", length: 14, of: u8::is_ascii_alphanumeric },
];

impl Fixed {
    fn fits(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.begin).map(str::as_bytes) else { return false };
        let next = rest.get(self.length);
        let ends = next.is_none_or(|next| !next.is_ascii_alphanumeric());
        // Airtable's are followed by a dot and 64 digits; alone, the beginning is a word.
        let whole = self.begin != "pat"
            || rest
                .get(self.length + 1..)
                .is_some_and(|rest| rest.len() >= 64 && next == Some(&b'.'));
        rest.get(..self.length).is_some_and(|part| part.iter().all(self.of)) && ends && whole
    }
}

fn is_upper(byte: &u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_hex(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Secrets that are more than one word.
pub(super) fn spanning(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    telegram(text).chain(webhooks(text)).chain(flags(text))
}

/// Telegram's bot tokens: `123456789:` and 35 characters.
fn telegram(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    const SECRET: usize = 35;
    let of_secret = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let bytes = text.as_bytes();
    memchr::memchr_iter(b':', bytes).filter_map(move |colon| {
        let before = bytes.get(..colon)?;
        let digits = before.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let after = bytes.get(colon + 1..)?;
        let secret = after.iter().take_while(|b| of_secret(b)).count();
        let fits = (6..=12).contains(&digits) && secret == SECRET;
        fits.then(|| colon - digits..colon + 1 + secret)
    })
}

/// Addresses whose path is the secret.
fn webhooks(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    const PATHS: [&str; 4] = [
        "hooks.slack.com/services/",
        "hooks.slack.com/workflows/",
        "/api/webhooks/",
        "webhook.office.com/",
    ];
    PATHS.iter().flat_map(move |path| {
        text.match_indices(path).filter_map(move |(at, path)| {
            let begin = at + path.len();
            let rest = text.get(begin..)?;
            let secret =
                rest.split(|c: char| c.is_whitespace() || "\"'\\<>)]}".contains(c)).next()?;
            (secret.len() >= 8).then(|| begin..begin + secret.len())
        })
    })
}

/// Passwords behind a flag that does not say so.
fn flags(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut words = words(text);
    let mut command = Command::default();
    std::iter::from_fn(move || {
        loop {
            let (begin, word) = words.next()?;
            match command.secret(word) {
                // Flags that say what they hold are found with other assignments.
                None | Some(Secret::Named) => {}
                Some(Secret::Within(at)) => return Some(begin + at..begin + word.len()),
                Some(Secret::Next(kind)) => {
                    let (begin, value) = words.next()?;
                    let end = begin + quoted(text, begin).unwrap_or(value).len();
                    if kind.is_secret(text.get(begin..end).unwrap_or_default()) {
                        return Some(begin..end);
                    }
                }
            }
        }
    })
}

/// The word at a place up to its closing quote, if it is quoted.
fn quoted(text: &str, begin: usize) -> Option<&str> {
    let quote = text.get(..begin)?.chars().next_back().filter(|c| matches!(c, '"' | '\''))?;
    text.get(begin..)?.split([quote, '\n']).next()
}

/// A command line as it is read word by word.
#[derive(Default)]
pub(super) struct Command {
    program: &'static str,
}

/// Where the secret of a flag is.
pub(super) enum Secret {
    /// In the same word, from here on.
    Within(usize),
    /// It is the next word, if that is of this kind.
    Next(Kind),
    /// It is the next word: the flag says so itself.
    Named,
}

impl Command {
    /// The secret that a word has or announces.
    pub(super) fn secret(&mut self, word: &str) -> Option<Secret> {
        let name = word.rsplit('/').next().unwrap_or(word);
        if let Some(program) = PROGRAMS.iter().find(|program| **program == name) {
            self.program = program;
        }
        if let Some(kind) = Kind::of(self.program, word) {
            return Some(Secret::Next(kind));
        }
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, value),
            // Written together: `curl -uA:B`, `mysql -psecret`.
            _ => word.split_at_checked(2).filter(|(flag, _)| flag.starts_with('-'))?,
        };
        let mysql = self.program.starts_with("mysql") || self.program == "mariadb";
        let kind = match Kind::of(self.program, flag) {
            None if mysql && flag == "-p" => Kind::Password,
            kind => kind?,
        };
        kind.is_secret(value).then(|| Secret::Within(word.len() - value.len()))
    }
}

/// What the word behind a flag is.
pub(super) enum Kind {
    /// `user:password`
    User,
    Password,
}

/// Programs whose short flags take a password.
const PROGRAMS: [&str; 13] = [
    "curl",
    "sshpass",
    "redis-cli",
    "valkey-cli",
    "ldapsearch",
    "ldapadd",
    "ldapmodify",
    "ldapdelete",
    "mysql",
    "mysqldump",
    "mysqladmin",
    "mariadb",
    "mongosh",
];

impl Kind {
    fn of(program: &str, flag: &str) -> Option<Kind> {
        match (program, flag) {
            (_, "-u" | "--user" | "-U" | "--proxy-user") => Some(Kind::User),
            // Short flags of `curl` can be joined: `-sSLu user:password`.
            ("curl", joined) if is_joined(joined) && joined.ends_with(['u', 'U']) => {
                Some(Kind::User)
            }
            ("sshpass" | "mongosh", "-p") => Some(Kind::Password),
            ("redis-cli" | "valkey-cli", "-a") => Some(Kind::Password),
            (ldap, "-w") if ldap.starts_with("ldap") => Some(Kind::Password),
            _ => None,
        }
    }

    pub(super) fn is_secret(&self, value: &str) -> bool {
        match self {
            Kind::Password => !value.is_empty() && !value.starts_with('-'),
            // `docker run -u 1000:1000` names a user and a group.
            Kind::User => value.split_once(':').is_some_and(|(user, password)| {
                let numbers = [user, password].concat().bytes().all(|b| b.is_ascii_digit());
                !password.is_empty() && !numbers
            }),
        }
    }
}

/// Whether a word is several short flags.
fn is_joined(word: &str) -> bool {
    let flags = word.strip_prefix('-').unwrap_or_default();
    flags.len() > 1 && flags.bytes().all(|flag| flag.is_ascii_alphanumeric() || flag == b'#')
}

/// Words between spaces and quotes.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let between = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',' | '[' | ']');
    let mut at = 0;
    text.split(between).filter_map(move |word| {
        let begin = at;
        at += word.len();
        at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((begin, word))
    })
}
