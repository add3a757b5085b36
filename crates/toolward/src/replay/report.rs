//! The result of a replay.

use serde_json::{Value, json};
use toolward_policy::reason::RuleText;
use toolward_policy::recorded::Unrecorded;
use toolward_policy::{Decision, Family, Policy, Verdict};

use super::listings::{ListingChanges, Listings};
use super::record::{ListedKind, NotCompared};
use super::subjects::{PastSubject, Subjects};

pub(crate) use super::listings::ChangedName;

/// Which past calls and listings a policy decides differently.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Calls that were compared, or that could not be decided.
    pub(crate) calls: u64,
    /// Widening changes first, then by the number of calls.
    pub(crate) changes: Vec<CallGroup>,
    /// Calls whose verdict depends on something that was not recorded.
    pub(crate) undecided: Vec<CallGroup>,
    pub(crate) listings: u64,
    pub(crate) listing_changes: ListingChanges,
    pub(crate) skipped: Skipped,
}

/// Past calls that are decided alike.
#[derive(Debug)]
pub(crate) struct CallGroup {
    pub(crate) agent: Option<String>,
    pub(crate) server: String,
    pub(crate) family: Family,
    pub(crate) name: String,
    pub(crate) action: Option<String>,
    pub(crate) before: Verdict,
    pub(crate) after: Decision,
    pub(crate) why_open: Option<Unrecorded>,
    pub(crate) calls: u64,
    pub(crate) last: String,
    pub(crate) examples: Vec<String>,
}

/// Records that were not compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// All records of the period.
    pub(crate) records: u64,
    /// There were more records than are read.
    pub(crate) cut: bool,
    /// Lines that are not records.
    pub(crate) unreadable: u64,
    /// Incomplete last lines.
    pub(crate) torn: u64,
    pub(crate) other_versions: u64,
    pub(crate) guarded: u64,
    pub(crate) aggregated: u64,
    pub(crate) unavailable: u64,
    pub(crate) no_such_tool: u64,
    pub(crate) follows_another: u64,
    /// Calls of too many distinct subjects.
    pub(crate) beyond: u64,
}

impl Skipped {
    pub(crate) fn add(&mut self, why: NotCompared) {
        match why {
            NotCompared::Guarded => self.guarded += 1,
            NotCompared::Aggregated(count) => self.aggregated += count,
            NotCompared::Unavailable => self.unavailable += 1,
            NotCompared::NoSuchTool => self.no_such_tool += 1,
            NotCompared::FollowsAnother => self.follows_another += 1,
            NotCompared::OtherVersion => self.other_versions += 1,
        }
    }

    /// Each reason that occurred, with its number.
    pub(crate) fn reasons(&self) -> Vec<(u64, &'static str)> {
        let all = [
            (self.torn, "incomplete last lines"),
            (self.unreadable, "lines that are not records (`toolward audit verify` lists them)"),
            (self.other_versions, "records of other versions"),
            (self.guarded, "calls that a limit, a hook, a pin or a person refused"),
            (self.aggregated, "refusals that were only counted"),
            (self.unavailable, "calls to servers whose tools were not known"),
            (self.no_such_tool, "calls to names that did not exist"),
            (self.follows_another, "completions and tasks, which follow what they refer to"),
            (self.beyond, "calls to more distinct tools than are compared"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "torn": self.torn,
            "unreadable": self.unreadable,
            "other_versions": self.other_versions,
            "guarded": self.guarded,
            "aggregated": self.aggregated,
            "unavailable": self.unavailable,
            "no_such_tool": self.no_such_tool,
            "follows_another": self.follows_another,
            "beyond": self.beyond,
        })
    }
}

impl CallGroup {
    pub(crate) fn is_wider(&self) -> bool {
        self.after.verdict < self.before
    }

    /// `wider`, `narrower` or `undecided`.
    pub(crate) fn direction(&self) -> &'static str {
        match (self.why_open, self.is_wider()) {
            (Some(_), _) => "undecided",
            (None, true) => "wider",
            (None, false) => "narrower",
        }
    }

    /// `tracker/get_issue`, with the action; prompts and resources are called that.
    pub(crate) fn subject(&self) -> String {
        let action = self.action.as_ref().map_or_else(String::new, |action| format!(".{action}"));
        format!("{}{}/{}{action}", noun(ListedKind::Of(self.family)), self.server, self.name)
    }

    pub(crate) fn rule(&self, policy: &Policy) -> Option<RuleText> {
        policy.rule(&self.after)
    }
}

/// The word in front of a name that is not a tool's.
pub(crate) fn noun(kind: ListedKind) -> &'static str {
    match kind {
        ListedKind::Of(Family::Tools) => "",
        ListedKind::Of(Family::Prompts) => "prompt ",
        ListedKind::Of(Family::Resources) => "resource ",
        ListedKind::Templates => "template ",
    }
}

/// Why a call is undecided, in a few words.
pub(crate) fn why_open(why: Unrecorded) -> &'static str {
    match why {
        Unrecorded::Call => "depends on arguments, an action or claims that were not recorded",
        Unrecorded::Definition => "depends on the tool's hints or schema, which are not known",
    }
}

impl Report {
    pub(super) fn new(subjects: Subjects<'_>, listings: Listings<'_>, skipped: Skipped) -> Report {
        let (calls, beyond) = (subjects.calls, subjects.beyond);
        let total = listings.listings;
        let all = subjects.into_subjects().into_iter().flat_map(groups);
        let (mut undecided, mut changes): (Vec<CallGroup>, Vec<CallGroup>) =
            all.partition(|group| group.why_open.is_some());
        let order = |one: &CallGroup, other: &CallGroup| {
            let key = |group: &CallGroup| (!group.is_wider(), std::cmp::Reverse(group.calls));
            key(one).cmp(&key(other)).then_with(|| {
                let name = |group: &CallGroup| (group.agent.clone(), group.subject());
                name(one).cmp(&name(other))
            })
        };
        changes.sort_by(order);
        undecided.sort_by(order);
        Report {
            calls: calls - beyond,
            changes,
            undecided,
            listings: total,
            listing_changes: listings.into_changes(),
            skipped: Skipped { beyond, ..skipped },
        }
    }

    pub(crate) fn changed_calls(&self) -> u64 {
        self.changes.iter().map(|group| group.calls).sum()
    }

    pub(crate) fn undecided_calls(&self) -> u64 {
        self.undecided.iter().map(|group| group.calls).sum()
    }

    /// Whether a past call or listing would change.
    pub(crate) fn is_changed(&self) -> bool {
        !self.changes.is_empty() || self.listing_changes.changed > 0
    }

    /// `3 of 1204 calls and 1 of 30 listings would change`, with what could not be decided.
    pub(crate) fn summary(&self) -> String {
        let calls = format!("{} of {} calls", self.changed_calls(), self.calls);
        let listings = format!("{} of {} listings", self.listing_changes.changed, self.listings);
        let mut text = format!("{calls} and {listings} would change");
        let open = (self.undecided_calls(), self.listing_changes.open);
        if open != (0, 0) {
            text += &format!("; {} calls and {} listings are undecided", open.0, open.1);
        }
        if self.listing_changes.unknown > 0 {
            let count = self.listing_changes.unknown;
            text += &format!("; the names of {count} listings are not in these records");
        }
        text
    }
}

fn groups(subject: PastSubject) -> Vec<CallGroup> {
    let PastSubject { agent, server, family, name, groups, .. } = subject;
    let group = |group: super::subjects::Group| CallGroup {
        agent: agent.clone(),
        server: server.clone(),
        family,
        name: name.clone(),
        action: group.action,
        before: group.before,
        after: group.after,
        why_open: group.open,
        calls: group.calls,
        last: group.last,
        examples: group.examples,
    };
    groups.into_iter().map(group).collect()
}
