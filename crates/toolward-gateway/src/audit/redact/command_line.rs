//! Passwords on command lines: `curl -u user:password`, `mysql -psecret`.

use std::ops::Range;

/// Passwords after a flag whose name does not show it.
pub(super) fn flags(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut words = words(text);
    let mut command = Command::default();
    std::iter::from_fn(move || {
        loop {
            let (begin, word) = words.next()?;
            match command.secret(word) {
                // Flags named after secrets are found with other assignments.
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

/// The word at a position up to its closing quote, if it is quoted.
fn quoted(text: &str, begin: usize) -> Option<&str> {
    let quote = text.get(..begin)?.chars().next_back().filter(|c| matches!(c, '"' | '\''))?;
    text.get(begin..)?.split([quote, '\n']).next()
}

/// A command line, read word by word.
#[derive(Default)]
pub(super) struct Command {
    program: &'static str,
    /// The word `login` came after the program: `-p` is a password then, and a port otherwise.
    login: bool,
}

/// The position of a flag's secret.
pub(super) enum Secret {
    /// In the same word, from this offset.
    Within(usize),
    /// It is the next word, if that is of this kind.
    Next(Kind),
    /// It is the next word, because of the flag's name.
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

    /// The kind of the word after a flag, for the program and its subcommand.
    fn kind(&self, flag: &str) -> Option<Kind> {
        match flag {
            "-p" if self.login && LOGINS.contains(&self.program) => Some(Kind::Password),
            flag => Kind::of(self.program, flag),
        }
    }
}

/// The kind of the word after a flag.
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
