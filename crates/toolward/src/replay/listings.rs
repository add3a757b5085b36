//! Past listings: which names they would gain and lose.
//!
//! The log contains the names of a view once per segment, so listings are counted by view, and names are compared when a
//! record has them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use toolward_gateway::view::names::Naming;
use toolward_policy::{Caller, Family};

use super::Rules;
use super::record::{ListedKind, PastListing};

/// The maximum number of distinct views; listings of further ones are counted and not compared.
const MAX_VIEWS: usize = 10_000;
/// The maximum number of changed names that are kept in total.
const MAX_NAMES: usize = 100_000;

/// Counts of past listings.
pub(super) struct Listings<'a> {
    rules: Rules<'a>,
    views: HashMap<(Option<String>, String), ViewedNames>,
    /// The names that clients use for the tools of each server, and the original ones.
    originals: HashMap<String, Option<HashMap<String, String>>>,
    names: usize,
    pub(super) listings: u64,
    /// Listings of views beyond the maximum.
    beyond: u64,
}

/// The listings of one view.
#[derive(Default)]
struct ViewedNames {
    listings: u64,
    /// Whether the names were recorded.
    known: bool,
    changed: Vec<ChangedName>,
    /// Names about which nothing can be said.
    open: usize,
}

/// A name that a view would gain or lose.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChangedName {
    pub(crate) server: String,
    pub(crate) kind: ListedKind,
    pub(crate) name: String,
    pub(crate) gained: bool,
}

/// The result for all listings.
#[derive(Debug, Default)]
pub(crate) struct ListingChanges {
    /// By agent and name, with the number of listings.
    pub(crate) names: BTreeMap<(Option<String>, ChangedName), u64>,
    /// Listings that would change.
    pub(crate) changed: u64,
    /// Listings with names whose definition is not known and decides.
    pub(crate) open: u64,
    /// Listings whose names are not in the records of the period.
    pub(crate) unknown: u64,
}

impl<'a> Listings<'a> {
    pub(super) fn new(rules: Rules<'a>) -> Listings<'a> {
        Listings {
            rules,
            views: HashMap::new(),
            originals: HashMap::new(),
            names: 0,
            listings: 0,
            beyond: 0,
        }
    }

    pub(super) fn add(&mut self, listing: &PastListing<'_>) {
        self.listings += 1;
        let key = (listing.agent.map(String::from), listing.view.to_string());
        if !self.views.contains_key(&key) && self.views.len() >= MAX_VIEWS {
            self.beyond += 1;
            return;
        }
        let view = self.views.entry(key.clone()).or_default();
        view.listings += 1;
        let known = view.known;
        let names = listing.names.filter(|_| !known && self.names < MAX_NAMES);
        let Some(names) = names else { return };
        let (changed, open) = self.compare(listing, names);
        self.names += changed.len();
        if let Some(view) = self.views.get_mut(&key) {
            (view.known, view.changed, view.open) = (true, changed, open);
        }
    }

    /// The names of a view that are listed otherwise, and how many are undecided.
    fn compare(
        &mut self,
        listing: &PastListing<'_>,
        names: &Map<String, Value>,
    ) -> (Vec<ChangedName>, usize) {
        let (mut changed, mut open) = (Vec::new(), 0);
        for (server, of) in names {
            for (member, was_listed) in [("shown", true), ("removed", false)] {
                for name in of[member].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let name = match (listing.kind, was_listed) {
                        (ListedKind::Of(Family::Tools), true) => self.original(server, name),
                        (ListedKind::Of(Family::Prompts), true) => self.stripped(server, name),
                        _ => name.to_string(),
                    };
                    match self.is_listed(listing, server, &name) {
                        None => open += 1,
                        Some(listed) if listed == was_listed => {}
                        Some(gained) => changed.push(ChangedName {
                            server: server.clone(),
                            kind: listing.kind,
                            name,
                            gained,
                        }),
                    }
                }
            }
        }
        (changed, open)
    }

    fn is_listed(&self, listing: &PastListing<'_>, server: &str, name: &str) -> Option<bool> {
        let Rules { policy, catalogue, .. } = self.rules;
        match listing.kind {
            ListedKind::Of(family) => policy
                .recorded_subject(listing.agent, server, (family, name), catalogue)
                .is_listed(listing.agent),
            ListedKind::Templates => {
                let caller = Caller { agent: listing.agent, claims: None };
                Some(policy.shows_template(caller, server, name))
            }
        }
    }

    /// The original name behind a tool's name in a listing: that of a known tool, or without prefix and rename.
    fn original(&mut self, server: &str, name: &str) -> String {
        if !self.originals.contains_key(server) {
            let known = self.names_of(server);
            self.originals.insert(server.into(), known);
        }
        match self.originals.get(server) {
            Some(Some(known)) => {
                known.get(name).cloned().unwrap_or_else(|| self.stripped(server, name))
            }
            _ => self.stripped(server, name),
        }
    }

    fn names_of(&self, server: &str) -> Option<HashMap<String, String>> {
        let tools = self.rules.catalogue.tools(server)?;
        let exposure = self.rules.naming.and_then(|policy| policy.exposure(server));
        let prefix = Naming::Prefix { separator: self.rules.separator.into() };
        let mut known = HashMap::new();
        for tool in tools.tools() {
            let shown = exposure.and_then(|exposure| exposure.show(tool.name()));
            let shown = shown.map_or_else(|| tool.name().to_string(), |shown| shown.name.into());
            let names = [prefix.called(server, &shown), Naming::Address.called(server, &shown)];
            for name in names.into_iter().map(String::from).chain([shown]) {
                known.entry(name).or_insert_with(|| tool.name().to_string());
            }
        }
        Some(known)
    }

    fn stripped(&self, server: &str, name: &str) -> String {
        let of_server = name.strip_prefix(server);
        let own = of_server.and_then(|rest| {
            let separators = [self.rules.separator, "/"].into_iter().filter(|one| !one.is_empty());
            separators.into_iter().find_map(|separator| rest.strip_prefix(separator))
        });
        let own = own.unwrap_or(name);
        let exposure = self.rules.naming.and_then(|policy| policy.exposure(server));
        exposure.and_then(|exposure| exposure.renamed_from(own)).unwrap_or(own).to_string()
    }

    pub(super) fn into_changes(self) -> ListingChanges {
        let mut changes = ListingChanges { unknown: self.beyond, ..ListingChanges::default() };
        for ((agent, _), view) in self.views {
            let ViewedNames { listings, known, changed, open } = view;
            match known {
                false => changes.unknown += listings,
                true if !changed.is_empty() => changes.changed += listings,
                true if open > 0 => changes.open += listings,
                true => {}
            }
            for name in changed {
                *changes.names.entry((agent.clone(), name)).or_default() += listings;
            }
        }
        changes
    }
}
