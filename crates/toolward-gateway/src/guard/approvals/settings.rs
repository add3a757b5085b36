//! The part of the configuration that is about approvals.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use sha2::{Digest, Sha256};
use toolward_policy::approval::AskText;
use toolward_policy::{AskingRule, Policy};

use super::notify::Notifier;
use super::ticket::{AskedBy, Subject};
use crate::audit::line::hex;
use crate::lock::RwLockUnpoisoned;

/// How calls wait for a person.
pub struct Settings {
    /// How long a call is kept open, unless its entry states another time.
    pub hold: Duration,
    /// How long a person may take, unless the entry states another time.
    pub ttl: Duration,
    /// The longest grant that can be given.
    pub max_grant: Duration,
    pub notify: Arc<[Notifier]>,
    /// Digests of the credentials of agents.
    credentials: HashMap<Box<str>, Box<str>>,
    entries: RwLock<HashMap<AskingRule, Arc<AskingEntry>>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hold: Duration::from_secs(45),
            ttl: Duration::from_secs(600),
            max_grant: Duration::from_secs(7 * 86_400),
            notify: Arc::from([]),
            credentials: HashMap::default(),
            entries: RwLock::default(),
        }
    }
}

/// An entry that asks.
pub(crate) struct AskingEntry {
    pub(crate) rule: AskedBy,
    /// Identifies the entry in tickets and grants.
    pub(crate) digest: String,
    pub(crate) hold: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
}

impl Settings {
    pub fn new(
        (hold, ttl, max_grant): (Duration, Duration, Duration),
        notify: Vec<Notifier>,
    ) -> Settings {
        Settings { hold, ttl, max_grant, notify: notify.into(), ..Settings::default() }
    }

    /// The same settings, with digests of the credentials of agents.
    pub fn with_credentials(
        self,
        credentials: impl IntoIterator<Item = (Box<str>, Box<str>)>,
    ) -> Settings {
        Settings { credentials: credentials.into_iter().collect(), ..self }
    }

    /// The origin of an agent's calls of a server with this identity, for [`Subject::origin`].
    pub(crate) fn origin(&self, server: &str, agent: Option<&str>) -> String {
        let credentials = agent.and_then(|agent| self.credentials.get(agent));
        format!("{server} {}", credentials.map_or("", |digest| digest))
    }

    /// An entry of the policy that these settings belong to.
    pub(crate) fn entry(&self, policy: &Policy, at: AskingRule) -> Option<Arc<AskingEntry>> {
        if let Some(entry) = self.entries.read_locked().get(&at) {
            return Some(entry.clone());
        }
        let AskText { rule, ask, identity } = policy.ask_at(at)?;
        let entry = Arc::new(AskingEntry {
            rule: AskedBy {
                written: rule.written(),
                location: rule.location(),
                path: rule.path,
                approvers: ask.approvers,
            },
            digest: digest(&identity),
            hold: ask.hold,
            ttl: ask.ttl,
        });
        self.entries.write_locked().insert(at, entry.clone());
        Some(entry)
    }
}

/// The entries of a policy that ask, by digest.
pub(crate) struct AskingEntries(HashSet<String>);

impl AskingEntries {
    pub(crate) fn of(policy: &Policy) -> AskingEntries {
        AskingEntries(policy.all_asks().iter().map(|entry| digest(&entry.identity)).collect())
    }

    /// Whether tickets and grants are still valid under the policy: all their entries ask, and their agent has rules.
    pub(crate) fn support(&self, policy: &Policy, subject: &Subject) -> bool {
        subject.entries.iter().all(|entry| self.0.contains(entry))
            && policy.has_rules_for(subject.agent.as_deref())
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}
