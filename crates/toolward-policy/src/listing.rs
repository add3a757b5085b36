//! The list after `Allowed:` in a refusal: calls that the agent can make instead.
//!
//! It never contains a tool that the agent's listing does not have, nor anything that covers the
//! refused call. For an unlisted name, the result depends only on the name as sent, the agent's
//! policy and its listing, so a hidden tool gets the same response as one that does not exist.

use crate::allowed::Allowed;
use crate::call::Arguments;
use crate::fnmatch::Pattern;
use crate::layer::{Allowlist, Rule, Rules};
use crate::policy::Policy;
use crate::spelling::{Callable, Readable, covers_name};
use crate::text::cut;

/// At most this many callable names.
const MAX_NAMES: usize = 10;
/// At most this many entries of an allowlist.
const MAX_ENTRIES: usize = 50;
/// At most this many characters in all, so that long selectors do not make long refusals.
const MAX_CHARS: usize = 4000;
/// At most this many characters of the sent name are compared with others.
const MAX_COMPARED: usize = 256;

/// A call as sent.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    /// The name, as the client sent it.
    pub tool: &'a str,
    /// The result of [`Cell::stated_action`](crate::Cell::stated_action), or of
    /// [`stated_action`](crate::call::stated_action) for an unlisted name.
    pub action: Option<&'a str>,
    pub arguments: Option<&'a dyn Arguments>,
}

/// The refused call.
pub(crate) struct What<'a> {
    pub(crate) sent: Sent<'a>,
    /// As messages name it.
    pub(crate) shown: &'a str,
    pub(crate) listed: bool,
}

/// A callable name, with an action if only some are allowed.
struct Name<'a> {
    tool: &'a Callable,
    action: Option<&'a str>,
    nearness: usize,
}

impl Name<'_> {
    fn text(&self) -> String {
        match self.action {
            Some(action) => format!("{}.{action}", self.tool.name),
            None => self.tool.name.to_string(),
        }
    }
}

impl Allowed {
    /// The list as text. `layer` is the layer that refused, if the tool is listed.
    pub(crate) fn listing(&self, policy: &Policy, what: &What<'_>, layer: Option<u16>) -> String {
        let found = match policy.refusing_allowlist(what.listed, layer) {
            Some((layer, list)) => self.of_allowlist(policy, what, layer, list),
            None => Found { names: self.nearest(what, |_| true), ..Found::default() },
        };
        // Tools behind the discovery server are not in the agent's own list.
        let in_list = !self.servers.iter().any(|(_, prefix)| prefix.ends_with('/'));
        found.text(in_list)
    }

    /// Entries of an allowlist as written. `hint:` entries, and those that cover the refused call,
    /// are replaced by the names of the listed tools that they cover.
    fn of_allowlist<'a>(
        &'a self,
        policy: &Policy,
        what: &What<'_>,
        layer: u16,
        list: &Allowlist,
    ) -> Found<'a> {
        let readings = self.readings(what.sent.tool);
        let (case, action) = (list.case, what.sent.action);
        let covers_call = |rule: &Rule| {
            readings
                .iter()
                .any(|(server, tool)| covers_name(&rule.selector, case, *server, tool, action))
        };
        // Other layers may deny everything that a pattern covers.
        let sole = policy.layers.len() == 1;
        let (mut entries, mut replaced) = (Vec::new(), Vec::new());
        let readable = self.entries.get(&layer).map(Vec::as_slice).unwrap_or_default();
        for (rule, readable) in list.tools.rules.iter().zip(readable) {
            let covers_some = || self.tools.iter().any(|tool| self.covers(rule, case, tool));
            if rule.selector.tags().is_some() || covers_call(rule) {
                replaced.push(rule);
                continue;
            }
            match readable {
                Readable::Named(name) if name.is_callable => entries.push(name.text.clone()),
                Readable::Pattern(text)
                    if sole || entries.len() >= MAX_ENTRIES || covers_some() =>
                {
                    entries.push(text.clone());
                }
                Readable::Named(_) | Readable::Pattern(_) | Readable::Hidden => {}
            }
        }
        entries.retain(|entry| entry != what.shown);
        let names = match replaced.is_empty() {
            true => Names::default(),
            false => {
                self.nearest(what, |tool| replaced.iter().any(|rule| self.covers(rule, case, tool)))
            }
        };
        Found { entries, names }
    }

    /// Callable names, closest to the sent name first, without those that cover the call.
    fn nearest<'a>(&'a self, what: &What<'_>, which: impl Fn(&Callable) -> bool) -> Names<'a> {
        let sent = cut(what.sent.tool, MAX_COMPARED);
        let mut names: Vec<Name<'a>> = Vec::new();
        for tool in self.tools.iter().filter(|tool| which(tool)) {
            let same = what.listed && *tool.name == *what.sent.tool;
            let nearness = if same { usize::MAX } else { nearness(&sent, &tool.name) };
            match &tool.actions {
                None if same => {}
                None => names.push(Name { tool, action: None, nearness }),
                Some(actions) => names.extend(actions.iter().filter_map(|action| {
                    let covers = |sent: &str| Pattern::new(action).matches(sent);
                    let refused = same && what.sent.action.is_some_and(covers);
                    (!refused).then_some(Name { tool, action: Some(action), nearness })
                })),
            }
        }
        let contradicts = |name: &Name<'_>| match name.action {
            None => *name.tool.name == *what.shown,
            Some(_) => name.text() == what.shown,
        };
        names.retain(|name| !contradicts(name));
        let all = names.len();
        // Stable: equally close names keep the order of the listing.
        names.sort_by_key(|name| std::cmp::Reverse(name.nearness));
        names.truncate(MAX_NAMES);
        Names { first: names, all }
    }
}

#[derive(Default)]
struct Names<'a> {
    first: Vec<Name<'a>>,
    /// The total number.
    all: usize,
}

#[derive(Default)]
struct Found<'a> {
    entries: Vec<String>,
    names: Names<'a>,
}

impl Found<'_> {
    fn text(&self, in_list: bool) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut room = MAX_CHARS;
        let mut push = |part: String| {
            let length = part.chars().count() + 2;
            let fits = length <= room || parts.is_empty();
            if fits {
                room = room.saturating_sub(length);
                parts.push(part);
            }
            fits
        };
        let entries = self.entries.iter().take(MAX_ENTRIES);
        let entries = entries.take_while(|entry| push((*entry).clone())).count();
        let names = self.names.first.iter().take_while(|name| push(name.text())).count();
        let more_entries = self.entries.len() - entries;
        let more_names = self.names.all - names;
        let listed = match (more_entries + more_names, more_entries) {
            (0, _) => String::new(),
            (more, 0) if in_list => format!(" ({more} more in tools/list)"),
            (more, _) => format!(" ({more} more)"),
        };
        match parts.is_empty() {
            true => "nothing".into(),
            false => format!("{}{listed}", parts.join(", ")),
        }
    }
}

impl Policy {
    /// The allowlist whose entries a refusal names. For an unlisted tool it depends on the policy
    /// alone: the first allowlist, if no layer has agents.
    fn refusing_allowlist(&self, listed: bool, layer: Option<u16>) -> Option<(u16, &Allowlist)> {
        let allowlist = |(at, layer): (usize, &'_ crate::layer::Layer)| match &layer.rules {
            Rules::Allowlist(_) => Some(at),
            _ => None,
        };
        let at = match listed {
            true => usize::from(layer?),
            false => {
                let agents = |layer: &crate::layer::Layer| matches!(layer.rules, Rules::Agents(_));
                if self.layers.iter().any(agents) {
                    return None;
                }
                self.layers.iter().enumerate().find_map(allowlist)?
            }
        };
        match &self.layers.get(at)?.rules {
            Rules::Allowlist(list) => Some((at as u16, list)),
            _ => None,
        }
    }
}

/// The similarity of two names: the number of characters they share at the start and the end,
/// ignoring case. Linear in the names, because any caller can make the gateway compare a long
/// listing.
fn nearness(sent: &str, name: &str) -> usize {
    let (sent, name) = (sent.as_bytes(), name.as_bytes());
    let same = |(one, other): &(&u8, &u8)| one.eq_ignore_ascii_case(other);
    let begin = sent.iter().zip(name).take_while(same).count();
    let end = sent.iter().rev().zip(name.iter().rev()).take_while(same).count();
    (begin + end).min(sent.len()).min(name.len())
}
