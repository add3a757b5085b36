//! Lints: rules that load but are probably a mistake.
//!
//! Lints check one agent's lists at a time, through the indexes that decisions use, so a policy of
//! a hundred thousand rules is linted in the time of a load. Whether a rule can ever decide is computed with
//! the automata of the analysis ([`reach`]), in bounded time.

mod cover;
mod known_tools;
mod reach;
mod unreachable;

use hashbrown::HashSet;

use self::cover::{candidates_covering, covered_earlier, covers};
use self::reach::Work;

use crate::catalogue::Catalogue;
use crate::decision::{Kind, RuleRef, Side, Verdict};
use crate::fnmatch::Pattern;
use crate::hints::BUILT_IN;
use crate::layer::{Agent, Layer, List, Rule, Rules};
use crate::policy::Policy;
use crate::reason::{RuleText, list_name};
use crate::selector::fold;
use crate::source::{Case, Place};
use crate::view::server_step;

/// A finding and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    pub kind: LintKind,
    /// The name of the layer.
    pub layer: String,
    pub path: String,
    pub place: Place,
    pub message: String,
    /// A word that may be misspelled, and suggestions.
    pub misspelt: Option<(String, Vec<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LintKind {
    NeverMatches,
    Shadowed,
    NoKnownTool,
    EmptyAllowList,
    UnknownServer,
    ToolOrAction,
    DisplayName,
    OddName,
    NobodyApproves,
}

impl LintKind {
    pub fn as_str(self) -> &'static str {
        match self {
            LintKind::NeverMatches => "never-matches",
            LintKind::Shadowed => "shadowed",
            LintKind::NoKnownTool => "no-known-tool",
            LintKind::EmptyAllowList => "empty-allow-list",
            LintKind::UnknownServer => "unknown-server",
            LintKind::ToolOrAction => "tool-or-action",
            LintKind::DisplayName => "display-name",
            LintKind::OddName => "odd-name",
            LintKind::NobodyApproves => "nobody-approves",
        }
    }
}

impl Policy {
    /// Lints every rule. Lints that need servers or tools are skipped for those that the catalogue
    /// does not contain.
    pub fn lint(&self, catalogue: &Catalogue) -> Vec<Lint> {
        let (mut lints, mut work) = (Vec::new(), Work::default());
        for layer in &self.layers {
            let mut linter = Linter {
                policy: self,
                catalogue,
                layer,
                lints: &mut lints,
                seen: HashSet::new(),
                flagged: HashSet::new(),
                work: &mut work,
            };
            match &layer.rules {
                Rules::ReadOnly => {}
                Rules::Allowlist(allowlist) => {
                    let at = |entry| RuleRef {
                        side: Side::Allowlist,
                        kind: Kind::Tools,
                        agent: 0,
                        key: 0,
                        entry,
                    };
                    linter.list(&allowlist.tools, allowlist.case, None, &at);
                    linter.approvable(&allowlist.tools, &at);
                    linter.unreachable_in_allowlist(&allowlist.tools, allowlist.case, &at);
                }
                Rules::Agents(agents) => {
                    for (at, agent) in agents.agents.iter().enumerate() {
                        linter.agent(agent, at as u32);
                    }
                }
            }
        }
        lints
    }

    /// Whether an empty allowlist denies everything on purpose.
    pub fn allows_nothing_on_purpose(&self) -> bool {
        self.layers.iter().any(
            |layer| matches!(&layer.rules, Rules::Allowlist(list) if list.tools.rules.is_empty()),
        )
    }

    /// Whether no agent sees any tool of the known catalogue; `None` if no list is known.
    pub fn hides_everything(&self, catalogue: &Catalogue) -> Option<bool> {
        catalogue.lists().next()?;
        let agents = self.agents();
        let agents = agents.iter().map(|name| Some(*name)).chain([None]);
        let sees = |agent: Option<&str>| {
            let caller = crate::Caller { agent, claims: None };
            catalogue.lists().any(|(server, tools)| {
                let row = self.row(agent, server, tools);
                row.iter().any(|(_, cell)| cell.list(caller).decision.verdict != Verdict::Deny)
            })
        };
        Some(!agents.into_iter().any(sees))
    }
}

struct Linter<'a> {
    policy: &'a Policy,
    catalogue: &'a Catalogue,
    layer: &'a Layer,
    lints: &'a mut Vec<Lint>,
    /// Lists of roles that are linted, by role and path.
    seen: HashSet<String>,
    /// Rules that something was found about.
    flagged: HashSet<RuleRef>,
    work: &'a mut Work,
}

impl Linter<'_> {
    fn agent(&mut self, agent: &Agent, index: u32) {
        for (side, lists) in [(Side::Deny, &agent.deny), (Side::Allow, &agent.allow)] {
            let at = |kind, key, entry| RuleRef { side, kind, agent: index, key, entry };
            for (entry, rule) in lists.servers.iter().enumerate() {
                let at = at(Kind::Servers, 0, entry as u32);
                if agent.origin(at).is_none() || self.seen.insert(self.layer.path(at)) {
                    self.server(rule, agent.case, at);
                }
            }
            for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
                for (key, list) in lists.of(kind).iter().enumerate() {
                    let at = |entry| at(kind, key as u32, entry);
                    // A role is linted once. That one of its agents overrides it is no mistake.
                    let of_role = list.role.is_some();
                    if of_role && !self.seen.insert(self.layer.path(at(0))) {
                        continue;
                    }
                    if !of_role || list.rules.is_empty() {
                        self.key(agent, list, &at);
                    }
                    self.approvable(list, &at);
                    if kind == Kind::Tools {
                        self.list(list, agent.case, Some(list), &at);
                        if side == Side::Allow && !of_role {
                            self.denied(agent, list, &at);
                        }
                    }
                }
            }
        }
        self.unreachable(agent, index);
    }

    fn server(&mut self, rule: &Rule, case: Case, at: RuleRef) {
        let name = rule.selector.written();
        let known = |server: &str| rule.selector.matches_server(&fold(server, case));
        if !rule.selector.is_wildcard()
            && self.catalogue.servers().next().is_some()
            && !self.catalogue.servers().any(known)
        {
            self.unknown_server(name, at, rule.place);
        }
    }

    /// A key of `tools`: an unknown server, an empty list, a server that is denied anyway.
    fn key(&mut self, agent: &Agent, list: &List, at: &dyn Fn(u32) -> RuleRef) {
        let address = at(0);
        let exact = !crate::fnmatch::is_pattern(&list.key_written);
        if list.rules.is_empty() {
            if address.side == Side::Allow {
                self.push_at(
                    LintKind::EmptyAllowList,
                    address,
                    list.key_place,
                    format!(
                        "the list for `{}` is empty, which grants everything the server offers; \
                         to grant nothing, deny the server",
                        list.key_written
                    ),
                    None,
                );
            }
            return;
        }
        if !exact {
            return;
        }
        let server = fold(&list.key_written, agent.case);
        if self.catalogue.servers().next().is_some()
            && !self.catalogue.servers().any(|known| list.key.matches(&fold(known, agent.case)))
        {
            self.unknown_server(&list.key_written, address, list.key_place);
        } else if server_step(agent, address.agent, &server).verdict == Verdict::Deny {
            self.push(
                LintKind::NeverMatches,
                address,
                format!(
                    "agent `{}` may not use the server `{}` at all, so these rules never apply",
                    agent.name, list.key_written
                ),
                None,
            );
        }
    }

    fn unknown_server(&mut self, name: &str, at: RuleRef, place: Place) {
        let words = self.catalogue.servers().map(String::from).collect();
        let message = format!("there is no server named `{name}`");
        self.push_at(LintKind::UnknownServer, at, place, message, Some((name.into(), words)));
    }

    fn list(&mut self, list: &List, case: Case, keyed: Option<&List>, at: &dyn Fn(u32) -> RuleRef) {
        for (entry, rule) in list.rules.iter().enumerate() {
            let address = at(entry as u32);
            if self.odd(rule, address) || self.never(rule, address) {
                continue;
            }
            let work = self.work.spend(list.index.scanned());
            let earlier = work.and_then(|()| covered_earlier(list, entry, address.side));
            if let Some(earlier) = earlier {
                let message = format!(
                    "`{}` is never reached: `{}` before it covers the same",
                    rule.selector.written(),
                    list.rules[earlier].selector.written()
                );
                self.push(LintKind::Shadowed, address, message, None);
                continue;
            }
            self.tools(rule, case, keyed, address);
        }
    }

    /// Entries that ask when no one could approve: they deny.
    fn approvable(&mut self, list: &List, at: &dyn Fn(u32) -> RuleRef) {
        for (entry, rule) in list.rules.iter().enumerate() {
            let problem = rule.ask.as_ref().and_then(|ask| self.policy.approvers.problem(ask));
            if let Some(problem) = problem {
                let message = format!(
                    "no one can approve `{}`, so it is denied: {problem}",
                    rule.selector.written()
                );
                self.push(LintKind::NobodyApproves, at(entry as u32), message, None);
            }
        }
    }

    /// Entries that are valid names but rarely intended.
    fn odd(&mut self, rule: &Rule, at: RuleRef) -> bool {
        let text = rule.selector.written();
        let message = if text.is_empty() {
            "an empty entry matches only a tool whose name is empty".into()
        } else if let Some(name) = text.strip_prefix('!') {
            format!(
                "`{text}` is the name of a tool here; to deny `{name}`, put it into a deny list"
            )
        } else if is_nearly_hint(text) {
            format!("`{text}` is the name of a tool here; a hint is written `hint:read-only`")
        } else if text.trim() != text {
            format!("`{text}` has leading or trailing whitespace, which is part of the name")
        } else {
            return false;
        };
        self.push(LintKind::OddName, at, message, None);
        true
    }

    /// Hints that no tool can have, and patterns that match nothing.
    fn never(&mut self, rule: &Rule, at: RuleRef) -> bool {
        let selector = &rule.selector;
        if let Some(tags) = selector.tags() {
            let carries = |tag: &str| tags.iter().any(|own| **own == *tag);
            for (one, other) in [("read-only", "destructive"), ("open-world", "closed-world")] {
                if carries(one) && carries(other) {
                    let message = format!("no tool is both `{one}` and `{other}`");
                    self.push(LintKind::NeverMatches, at, message, None);
                    return true;
                }
            }
            let stated = self.policy.stated_tags();
            let known = |tag: &str| BUILT_IN.contains(&tag) || stated.iter().any(|own| own == tag);
            if let Some(tag) = tags.iter().find(|tag| !known(tag)) {
                let words = BUILT_IN.iter().map(|tag| tag.to_string()).chain(stated.clone());
                let message =
                    format!("no tool has the hint `{tag}`, and no server's `hints` define it");
                self.push(
                    LintKind::NeverMatches,
                    at,
                    message,
                    Some((tag.to_string(), words.collect())),
                );
                return true;
            }
            return false;
        }
        let impossible = Pattern::new(selector.written()).is_impossible();
        if impossible {
            let message =
                format!("`{}` has a character class that matches no character", selector.written());
            self.push(LintKind::NeverMatches, at, message, None);
        }
        impossible
    }

    /// Allow entries that a deny entry of the same agent fully overrides.
    fn denied(&mut self, agent: &Agent, list: &List, at: &dyn Fn(u32) -> RuleRef) {
        for deny in &agent.deny.tools {
            let same_servers = deny.key_written == list.key_written || &*deny.key_written == "*";
            if !same_servers {
                continue;
            }
            for (entry, rule) in list.rules.iter().enumerate() {
                if self.work.spend(deny.index.scanned()).is_none() {
                    return;
                }
                let mut found = Vec::new();
                candidates_covering(deny, &rule.selector, &mut found);
                let covering = found
                    .into_iter()
                    .map(|at| &deny.rules[at as usize])
                    .find(|other| other.when.is_none() && covers(&other.selector, &rule.selector));
                if let Some(other) = covering {
                    let message = format!(
                        "`{}` allows nothing: `{}` in {} covers it, and deny wins",
                        rule.selector.written(),
                        other.selector.written(),
                        list_name(Side::Deny, Kind::Tools)
                    );
                    self.push(LintKind::Shadowed, at(entry as u32), message, None);
                }
            }
        }
    }

    fn push(
        &mut self,
        kind: LintKind,
        at: RuleRef,
        message: String,
        misspelt: Option<(String, Vec<String>)>,
    ) {
        let place = self.layer.rule(at).map(|rule| rule.place).unwrap_or_default();
        self.push_at(kind, at, place, message, misspelt);
    }

    fn push_at(
        &mut self,
        kind: LintKind,
        at: RuleRef,
        place: Place,
        message: String,
        misspelt: Option<(String, Vec<String>)>,
    ) {
        self.flagged.insert(at);
        self.lints.push(Lint {
            kind,
            layer: self.layer.name.to_string(),
            path: self.layer.path(at),
            place,
            message,
            misspelt,
        });
    }
}

/// `Hint:…`, `hint :…`: probably intended as a hint, but parsed as a name.
fn is_nearly_hint(text: &str) -> bool {
    let before = text.split(':').next().filter(|before| before.len() < text.len());
    before.is_some_and(|before| before != "hint" && before.trim().eq_ignore_ascii_case("hint"))
}

impl Lint {
    /// `file:line:column`, or the path.
    pub fn location(&self) -> String {
        RuleText {
            path: self.path.clone(),
            selector: String::new(),
            when: None,
            limit: None,
            role: None,
            layer: self.layer.clone(),
            place: self.place,
        }
        .location()
    }
}
