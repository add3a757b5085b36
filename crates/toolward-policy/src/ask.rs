//! Approvers of the calls of entries that `ask`.

use crate::selector::Glob;
use crate::source::{AdminSource, ApproversSource, Ask, Case};

/// The approvers of calls, compiled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Approvers {
    admins: Option<Vec<(Box<str>, Vec<Glob>)>>,
    trusted_ui: Vec<Glob>,
    /// Callers without a name are denied instead.
    pub(crate) named_only: bool,
}

impl Approvers {
    pub(crate) fn new(source: &ApproversSource) -> Approvers {
        let globs = |patterns: &[String]| -> Vec<Glob> {
            patterns.iter().map(|pattern| Glob::new(pattern, Case::Sensitive)).collect()
        };
        let admin = |admin: &AdminSource| (admin.name.as_str().into(), globs(&admin.approve));
        Approvers {
            admins: source.admins.as_ref().map(|admins| admins.iter().map(admin).collect()),
            trusted_ui: globs(&source.trusted_ui),
            named_only: false,
        }
    }

    pub(crate) fn has_admins(&self) -> bool {
        self.admins.is_some()
    }

    /// Whether an admin may approve calls of a tool, prompt or resource.
    pub(crate) fn may_approve(&self, admin: &str, server: &str, name: &str) -> bool {
        let admins = self.admins.iter().flatten().filter(|(own, _)| **own == *admin);
        let subject = format!("{server}/{name}");
        admins.flat_map(|(_, globs)| globs).any(|glob| glob.matches(&subject))
    }

    /// The patterns of `SERVER/NAME` that admins may approve.
    pub(crate) fn globs(&self) -> impl Iterator<Item = &Glob> {
        self.admins.iter().flatten().flat_map(|(_, globs)| globs)
    }

    /// The agents whose clients show requests for approval, as patterns.
    pub(crate) fn agents(&self) -> impl Iterator<Item = &Glob> {
        self.trusted_ui.iter()
    }

    /// Whether the client of an agent shows requests for approval to a person.
    pub(crate) fn trusts_ui(&self, agent: Option<&str>) -> bool {
        agent.is_some_and(|agent| self.trusted_ui.iter().any(|glob| glob.matches(agent)))
    }

    /// Whether anyone could approve the calls of an entry. If not, the entry denies them.
    pub(crate) fn can_answer(
        &self,
        ask: &Ask,
        agent: Option<&str>,
        (server, name): (&str, &str),
    ) -> bool {
        if self.named_only && agent.is_none() {
            return false;
        }
        let anyone = ask.approvers.is_empty();
        match &self.admins {
            None => anyone,
            Some(_) if anyone && self.trusts_ui(agent) => true,
            Some(admins) => {
                let listed = |admin: &str| anyone || ask.approvers.iter().any(|one| one == admin);
                let mut able = admins.iter().filter(|(admin, _)| listed(admin));
                able.any(|(admin, _)| self.may_approve(admin, server, name))
            }
        }
    }

    /// Why no one could approve any call of an entry; `None` if someone could approve some.
    pub(crate) fn problem(&self, ask: &Ask) -> Option<String> {
        let Some(admins) = &self.admins else {
            let missing = ask.approvers.first()?;
            return Some(format!("there is no admin `{missing}`, because there are no `admins`"));
        };
        let listed =
            |admin: &str| ask.approvers.is_empty() || ask.approvers.iter().any(|one| one == admin);
        let mut listed = admins.iter().filter(|(admin, _)| listed(admin)).peekable();
        match (listed.peek().is_some(), ask.approvers.first()) {
            (false, Some(first)) => Some(format!("there is no admin `{first}`")),
            _ if listed.any(|(_, globs)| !globs.is_empty()) => None,
            _ if ask.approvers.is_empty() && !self.trusted_ui.is_empty() => None,
            _ => Some("no admin may `approve` it".into()),
        }
    }
}
