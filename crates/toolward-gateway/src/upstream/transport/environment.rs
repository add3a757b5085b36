//! The environment of child processes.
//!
//! A stdio server gets the variables it needs to reach the network and those that the configuration
//! declares. All others are withheld: the gateway's environment may contain credentials of other
//! servers.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use toolward_policy::selector::Glob;

/// Variables that every child gets if they are set.
pub(crate) const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// Variables by which programs reach the network and find their files.
const CONNECTIVITY: [&str; 8] = [
    "LANG",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
];
/// Programs that install packages, and the prefixes of the variables that configure them.
const INSTALLERS: [&str; 6] = ["npx", "npm", "uvx", "uv", "pip", "pipx"];
const INSTALLER_PREFIXES: [&str; 3] = ["NPM_CONFIG_", "UV_", "PIP_"];
/// Words in the names of variables that contain credentials.
const SECRET_WORDS: [&str; 3] = ["AUTH", "TOKEN", "PASSWORD"];
/// The gateway's own variables, which no server gets.
const OWN_PREFIX: &str = "TOOLWARD_";
/// The prefix of the list of withheld variables.
const WITHHELD: &str = "it does not get these variables of the gateway: ";
/// At most this many withheld variables are named in a message.
const MAX_NAMED: usize = 20;

/// The gateway's variables that a child gets, in addition to the declared ones.
#[derive(Debug, Clone, PartialEq)]
pub enum Inherit {
    /// Those needed to reach the network, and those that match.
    Also(Vec<Glob>),
    /// All except the gateway's own.
    Everything,
}

impl Default for Inherit {
    fn default() -> Inherit {
        Inherit::Also(Vec::new())
    }
}

impl Inherit {
    /// Whether a variable is passed to a program.
    fn passes(&self, name: &OsStr, program: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return *self == Inherit::Everything };
        if name.starts_with(OWN_PREFIX) {
            return false;
        }
        match self {
            Inherit::Everything => true,
            Inherit::Also(patterns) => {
                INHERITED.contains(&name)
                    || is_connectivity(name, program)
                    || patterns.iter().any(|pattern| pattern.matches(name))
            }
        }
    }

    /// The variables that a program gets.
    pub(in crate::upstream) fn variables(
        &self,
        program: &OsStr,
        all: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        all.filter(|(name, _)| self.passes(name, program)).collect()
    }

    /// The names of the variables that a program does not get, to append to a message.
    pub(in crate::upstream) fn withheld(
        &self,
        program: &OsStr,
        declared: &[(OsString, OsString)],
        all: impl Iterator<Item = OsString>,
    ) -> Option<String> {
        let is_declared = |name: &OsString| declared.iter().any(|(known, _)| known == name);
        let held = all.filter(|name| !self.passes(name, program) && !is_declared(name));
        let mut names: Vec<String> = held
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| !name.starts_with(OWN_PREFIX) && !name.starts_with('_'))
            .collect();
        names.sort();
        let more = names.len().saturating_sub(MAX_NAMED);
        names.truncate(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "{WITHHELD}{}{more}; pass what it needs with `env` or `inherit_env`",
                names.join(", ")
            )
        })
    }
}

/// Whether the withheld variables of a server were logged.
///
/// Every session of a server that does not respond fails in the same way, and the list is long: it
/// is logged once per server.
#[derive(Debug, Default)]
pub(in crate::upstream) struct WithheldReport(AtomicBool);

impl WithheldReport {
    /// The message, without the withheld variables if they were logged before.
    pub(in crate::upstream) fn log_line<'m>(&self, message: &'m str) -> &'m str {
        match message.find(WITHHELD) {
            Some(at) if self.0.swap(true, Ordering::Relaxed) => {
                message[..at].trim_end_matches([';', ' '])
            }
            _ => message,
        }
    }
}

fn is_connectivity(name: &str, program: &OsStr) -> bool {
    // Proxy variables and npm's settings are written in either case.
    let upper = name.to_ascii_uppercase();
    if SECRET_WORDS.iter().any(|word| upper.contains(word)) {
        return false;
    }
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| upper.starts_with(prefix));
    CONNECTIVITY.contains(&upper.as_str())
        || upper.ends_with("_PROXY")
        || name.starts_with("XDG_")
        || name.starts_with("LC_")
        || (is_installer(program) && starts(&INSTALLER_PREFIXES))
}

fn is_installer(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| INSTALLERS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_policy::source::Case;

    fn passed(inherit: &Inherit, program: &str, names: &[&str]) -> Vec<String> {
        let all = names.iter().map(|name| (OsString::from(name), OsString::from("x")));
        let passed = inherit.variables(OsStr::new(program), all);
        passed.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn connectivity_passes_and_credentials_do_not() {
        let names = [
            "HOME",
            "PATH",
            "https_proxy",
            "ALL_PROXY",
            "NO_PROXY",
            "SSL_CERT_FILE",
            "XDG_CACHE_HOME",
            "LC_ALL",
            "TMPDIR",
            "NODE_EXTRA_CA_CERTS",
            "npm_config_registry",
            "UV_INDEX_URL",
        ];
        let npx = passed(&Inherit::default(), "/usr/bin/npx", &names);
        assert_eq!(npx, names);
        let other = passed(&Inherit::default(), "/usr/bin/node", &names);
        assert_eq!(other, names[..names.len() - 2]);
        let kept = [
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "npm_config__authToken",
            "UV_INDEX_X_PASSWORD",
            "PIP_TOKEN",
            "TOOLWARD_TOKEN",
            "AUTH_PROXY",
            "LD_PRELOAD",
            "NODE_OPTIONS",
        ];
        assert!(passed(&Inherit::default(), "npx", &kept).is_empty());
    }

    #[test]
    fn patterns_and_everything_never_pass_the_gateways_own() {
        let names = ["GITHUB_TOKEN", "GITHUB_HOST", "OTHER", "TOOLWARD_TOKEN"];
        let pattern = vec![Glob::new("GITHUB_*", Case::Sensitive)];
        assert_eq!(passed(&Inherit::Also(pattern), "x", &names), ["GITHUB_TOKEN", "GITHUB_HOST"]);
        assert_eq!(passed(&Inherit::Everything, "x", &names), names[..3]);
        let all = vec![Glob::new("*", Case::Sensitive)];
        assert_eq!(passed(&Inherit::Also(all), "x", &names), names[..3]);
    }

    #[test]
    fn withheld_variables_are_named_without_their_values() {
        let all =
            || ["HOME", "API_KEY", "TOOLWARD_TOKEN", "DECLARED"].map(OsString::from).into_iter();
        let declared = [(OsString::from("DECLARED"), OsString::from("x"))];
        let said = Inherit::default().withheld(OsStr::new("x"), &declared, all()).unwrap();
        assert!(said.contains(": API_KEY; pass"), "{said}");
        let (report, message) = (WithheldReport::default(), format!("no answer; {said}"));
        assert_eq!(report.log_line("no answer"), "no answer");
        assert_eq!(report.log_line(&message), message);
        assert_eq!(report.log_line(&message), "no answer");
        assert_eq!(Inherit::Everything.withheld(OsStr::new("x"), &declared, all()), None);
    }
}
