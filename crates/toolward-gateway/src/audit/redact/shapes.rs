//! Secrets that are known by their shape: the beginnings that issuers give to their tokens, and forms that
//! span several words.

use std::ops::Range;

/// How tokens of a kind begin; at least [`LEAST`] further characters follow.
const BEGINNINGS: [&str; 148] = [
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
    "glimt-",
    "gloas-",
    "glffct-",
    "GR1348941",
    "sgp_",
    "ATBB",
    "ATATT3",
    "ATCTT3",
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
    "nvapi-",
    "csk-",
    "tgp_v1_",
    "pcsk_",
    "jina_",
    "bedrock-api-key-",
    // payments
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "sq0atp-",
    "sq0csp-",
    "access_token$production$",
    "FLWSECK",
    "shippo_live_",
    "shippo_test_",
    "duffel_live_",
    "duffel_test_",
    "access-production-",
    "access-sandbox-",
    // chat and mail
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxr-",
    "xoxs-",
    "xoxe-",
    "xoxe.",
    "xoxc-",
    "xoxd-",
    "xapp-",
    "xwfp-",
    "SG.",
    "xkeysib-",
    "xsmtpsib-",
    "mlsn.",
    // packages
    "npm_",
    "pypi-",
    "rubygems_",
    "CLOJARS_",
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
    "fm1_",
    "fm2_",
    "FlyV1",
    "nfp_",
    "vercel_blob_rw_",
    "sha256~",
    "AQVN",
    "HRKU-",
    "sbp_",
    "sb_secret_",
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
    "age-secret-key-1",
    "age-secret-key-pq-1",
    // monitoring
    "glsa_",
    "glc_",
    "sntrys_",
    "sntryu_",
    "NRAK-",
    "NRJS-",
    "PMAK-",
    "NRII-",
    "dt0c01.",
    "dt0s01.",
    "eyJrIjoi",
    "phx_",
    "rdme_",
    "pnu_",
    // shops, design, notes
    "shpat_",
    "shpss_",
    "shpca_",
    "shppa_",
    "lin_api_",
    "lin_oauth_",
    "figd_",
    "figo_",
    "fio-u-",
    "CFPAT-",
    "dnkey-",
    "tfp_",
    "pat-na1-",
    "pat-eu1-",
    "p8e-",
    "sk.eyJ",
    "apify_api_",
    "ntn_",
    "secret_",
    "eyJhbGciOi",
];

/// Beginnings of ordinary words too.
const WORDS: [&str; 12] = [
    "dapi",
    "secret_",
    "ops_",
    "pul-",
    "api_org_",
    "access-production-",
    "access-sandbox-",
    "jina_",
    "csk-",
    "rdme_",
    "tfp_",
    "p8e-",
];

/// Tokens of known parts are not longer, in bytes; one more tells that a token is.
const MAX_PART: usize = 200;
/// The two dots of a JWT are looked for in this many bytes.
const MAX_JWT: usize = 8192;

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
        let plain = WORDS.contains(beginning);
        let telling = !plain || rest.bytes().take(MAX_PART).any(|b| b.is_ascii_digit());
        rest.len() >= LEAST && random && telling
    };
    let signed = text.starts_with("eyJ")
        && text.len() >= 32
        && memchr::memchr_iter(b'.', beginning_of(text, MAX_JWT).as_bytes()).nth(1).is_some();
    signed
        || BEGINNINGS.iter().any(long)
        || FIXED.iter().any(|shape| shape.fits(text))
        || in_parts(beginning_of(text, MAX_PART))
}

/// Tokens of one length.
struct Fixed {
    begin: &'static str,
    /// Characters behind the beginning.
    length: usize,
    of: fn(&u8) -> bool,
}

const FIXED: [Fixed; 20] = [
    // AWS
    Fixed { begin: "ABIA", length: 16, of: is_upper },
    Fixed { begin: "ACCA", length: 16, of: is_upper },
    // ElevenLabs
    Fixed { begin: "sk_", length: 48, of: is_hex },
    // SonarQube
    Fixed { begin: "squ_", length: 40, of: is_hex },
    Fixed { begin: "sqp_", length: 40, of: is_hex },
    Fixed { begin: "sqa_", length: 40, of: is_hex },
    // Octopus Deploy
    Fixed { begin: "API-", length: 26, of: is_upper },
    // NuGet, crates.io
    Fixed { begin: "oy2", length: 43, of: u8::is_ascii_alphanumeric },
    Fixed { begin: "cio", length: 32, of: u8::is_ascii_alphanumeric },
    // EasyPost
    Fixed { begin: "EZAK", length: 54, of: u8::is_ascii_alphanumeric },
    Fixed { begin: "EZTK", length: 54, of: u8::is_ascii_alphanumeric },
    // Infracost
    Fixed { begin: "ico-", length: 32, of: u8::is_ascii_alphanumeric },
    // ClickHouse Cloud
    Fixed { begin: "4b1d", length: 38, of: u8::is_ascii_alphanumeric },
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

/// At most this many bytes of a text: tokens are looked for at every place of a word, and looking at all of the
/// rest each time would take time quadratic in its length.
fn beginning_of(text: &str, most: usize) -> &str {
    text.get(..most).unwrap_or(text)
}

/// Tokens without a beginning of their own, known by the lengths of their parts.
fn in_parts(text: &str) -> bool {
    let of_part =
        |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    // Microsoft Entra: three characters, a digit, `Q~`, and 31 to 34 further characters.
    let entra = text.get(3..6).is_some_and(|middle| {
        middle.ends_with("Q~") && middle.starts_with(|c: char| c.is_ascii_digit())
    }) && (37..=40).contains(&text.len());
    let parts: Vec<&str> = text.splitn(4, '.').collect();
    let dotted = match parts.as_slice() {
        // HCP Terraform
        [id, "atlasv1", secret] => id.len() == 14 && secret.len() >= 60,
        // Bots of Discord: the id in base64, a time, a signature
        [id, time, signature] => {
            let lengths = (24..=28).contains(&id.len()) && time.len() == 6;
            lengths && (27..=38).contains(&signature.len()) && id.starts_with(['M', 'N', 'O'])
        }
        _ => false,
    };
    // 1Password: `A3-XXXXXX-XXXXXX-XXXXX-XXXXX-XXXXX-XXXXX`
    let account = text.starts_with("A3-")
        && text.len() >= 37
        && text.bytes().all(|b| is_upper(&b) || b == b'-')
        && text.bytes().filter(|b| *b == b'-').count() >= 5;
    entra || account || (dotted && parts.iter().all(|part| of_part(part)))
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
    /// The word `login` came after the program: `-p` is a password then, and a port otherwise.
    login: bool,
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
            self.login = false;
        }
        self.login |= word == "login";
        if let Some(kind) = self.kind(word) {
            return Some(Secret::Next(kind));
        }
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, value),
            // Written together: `curl -uA:B`, `mysql -psecret`.
            _ => word.split_at_checked(2).filter(|(flag, _)| flag.starts_with('-'))?,
        };
        let mysql = self.program.starts_with("mysql") || self.program == "mariadb";
        // `7z -psecret` has no form with a space.
        let joined = mysql || matches!(self.program, "7z" | "7za" | "7zz");
        let kind = match self.kind(flag) {
            None if joined && flag == "-p" => Kind::Password,
            kind => kind?,
        };
        kind.is_secret(value).then(|| Secret::Within(word.len() - value.len()))
    }

    /// What the word behind a flag is, for the program and its subcommand.
    fn kind(&self, flag: &str) -> Option<Kind> {
        match flag {
            "-p" if self.login && LOGINS.contains(&self.program) => Some(Kind::Password),
            flag => Kind::of(self.program, flag),
        }
    }
}

/// What the word behind a flag is.
pub(super) enum Kind {
    /// `user:password`
    User,
    /// `user%password`, `user,password`
    Separated,
    /// `pass:password`
    Prefixed,
    Password,
}

/// Programs whose short flags take a password.
const PROGRAMS: [&str; 45] = [
    "curl",
    "http",
    "https",
    "xh",
    "xhs",
    "docker",
    "podman",
    "nerdctl",
    "buildah",
    "skopeo",
    "helm",
    "oras",
    "crane",
    "az",
    "cf",
    "oc",
    "ibmcloud",
    "7z",
    "7za",
    "7zz",
    "zip",
    "unzip",
    "sqlcmd",
    "bcp",
    "cqlsh",
    "mongo",
    "mongodump",
    "mongorestore",
    "keytool",
    "jarsigner",
    "smbclient",
    "lftp",
    "openssl",
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

/// Programs whose `login -p` takes a password.
const LOGINS: [&str; 12] = [
    "docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "crane", "az", "cf", "oc",
    "ibmcloud",
];

impl Kind {
    fn of(program: &str, flag: &str) -> Option<Kind> {
        match (program, flag) {
            ("smbclient" | "lftp", "-U" | "-u") => Some(Kind::Separated),
            (_, "-u" | "--user" | "-U" | "--proxy-user") => Some(Kind::User),
            // Short flags of `curl` can be joined: `-sSLu user:password`.
            ("curl", joined) if is_joined(joined) && joined.ends_with(['u', 'U']) => {
                Some(Kind::User)
            }
            ("http" | "https" | "xh" | "xhs", "-a") => Some(Kind::User),
            ("openssl", "-pass" | "-passin" | "-passout") => Some(Kind::Prefixed),
            ("sshpass" | "mongosh" | "mongo" | "mongodump" | "mongorestore" | "cqlsh", "-p") => {
                Some(Kind::Password)
            }
            ("zip" | "unzip" | "sqlcmd" | "bcp", "-P") => Some(Kind::Password),
            ("keytool" | "jarsigner", "-storepass" | "-keypass") => Some(Kind::Password),
            ("redis-cli" | "valkey-cli", "-a") => Some(Kind::Password),
            (ldap, "-w") if ldap.starts_with("ldap") => Some(Kind::Password),
            _ => None,
        }
    }

    pub(super) fn is_secret(&self, value: &str) -> bool {
        match self {
            Kind::Password => !value.is_empty() && !value.starts_with('-'),
            Kind::Separated => value.contains(['%', ',', ':']),
            Kind::Prefixed => value.starts_with("pass:"),
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
